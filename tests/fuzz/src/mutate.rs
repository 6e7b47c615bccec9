//! A small seeded mutator: enough to walk away from a corpus of good input.

/// Makes new inputs out of old ones. The same seed gives the same inputs.
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

/// Values at the borders of what length, version and count fields mean.
const EDGES: [u8; 12] = [
    0x00, 0x01, 0x03, 0x04, 0x3f, 0x40, 0x41, 0x7f, 0x80, 0xc1, 0xfd, 0xff,
];
/// Bytes beyond which an input does not grow.
const LIMIT: usize = 4096;

impl Mutator {
    /// `seed`: anything.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    /// xorshift64*.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        let random = usize::try_from(self.random() >> 33).unwrap_or(0);
        random.checked_rem(end).unwrap_or(0)
    }

    /// One to eight changes of `input`, pieces of `other` among them.
    pub fn mutate(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(8) {
            self.change(&mut bytes, other);
        }
        bytes.truncate(LIMIT);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        let len = self.below(24);
        let end = (at + len).min(bytes.len());
        match self.below(7) {
            0 => self.set(bytes, at, |old, random| old ^ 1 << (random % 8)),
            1 => self.set(bytes, at, |_, random| random),
            2 => self.set(bytes, at, |_, random| {
                EDGES[usize::from(random) % EDGES.len()]
            }),
            3 => bytes.truncate(at),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let from = self.below(other.len());
                let piece = other.iter().skip(from).take(len).copied();
                drop(bytes.splice(at..at, piece));
            }
            _ => {
                let copy = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, copy));
            }
        }
    }

    fn set(&mut self, bytes: &mut [u8], at: usize, value: impl FnOnce(u8, u8) -> u8) {
        let random = self.random().to_be_bytes()[0];
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value(*byte, random);
        }
    }
}

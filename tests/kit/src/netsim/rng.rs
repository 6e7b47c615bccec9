//! Random numbers that a seed reproduces.

use std::fmt;

/// What all randomness of a simulation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed(pub u64);

impl fmt::Display for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The generator xoshiro256** of Blackman and Vigna, its state filled by splitmix64 as they advise.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// 2^32, the number of values that a `u32` has.
const U32_VALUES: f64 = 4_294_967_296.0;

impl Rng {
    /// A generator of its own for every `stream` of a seed.
    pub fn new(Seed(seed): Seed, stream: u64) -> Self {
        let mut state = seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Self(std::array::from_fn(|_| splitmix64(&mut state)))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        let Self(s) = self;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// True with this probability: never with 0, always with 1.
    pub fn chance(&mut self, probability: f64) -> bool {
        let draw = u32::try_from(self.draw() >> 32).unwrap_or(u32::MAX);
        f64::from(draw) < probability * U32_VALUES
    }

    /// A number below `bound`, which is not 0. The bias is below 2^-32 for any bound that a test
    /// has.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// An index of something of `len` elements, at least one.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.draw().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitmix64_gives_the_published_numbers_for_seed_1234567() {
        let mut state = 1_234_567;
        let first: Vec<u64> = (0..3).map(|_| splitmix64(&mut state)).collect();
        assert_eq!(
            first,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423
            ]
        );
    }

    #[test]
    fn same_seed_and_stream_give_the_same_numbers_and_others_do_not() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(Seed(seed), stream);
            [rng.draw(), rng.draw(), rng.draw()]
        };
        assert_eq!(draw(7, 0), draw(7, 0));
        assert_ne!(draw(7, 0), draw(7, 1));
        assert_ne!(draw(7, 0), draw(8, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
    fn chances_are_about_what_was_asked_for() {
        let mut rng = Rng::new(Seed(1), 0);
        let mut hits = |probability| (0..100_000).filter(|_| rng.chance(probability)).count();
        assert_eq!(hits(0.0), 0);
        assert_eq!(hits(1.0), 100_000);
        let hits = hits(0.02);
        assert!((1_800..2_200).contains(&hits), "{hits} of 100000 at 2 %");
    }
}

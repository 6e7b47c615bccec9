//! Private data by which two queue pairs recognise each other (decision record dropin/0011).

/// Bytes of a hello.
pub const HELLO_BYTES: usize = 24;
const MAGIC: [u8; 4] = *b"XWRV";
const VERSION: u8 = 1;
/// The sender knows the PSN of its first message.
const HAS_SEND_PSN: u8 = 1;
/// Queue pair numbers and PSNs have 24 bits.
pub const MAX_24: u32 = (1 << 24) - 1;

/// Private data of a queue pair that is brought up by hand: its own number and its peer's, and the
/// PSNs of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Number of the sender's queue pair.
    pub from: u32,
    /// Number of the queue pair that is meant.
    pub to: u32,
    /// PSN of the sender's first message, once its program has set it.
    pub send_psn: Option<u32>,
    /// PSN that the sender expects in its peer's first message.
    pub recv_psn: u32,
}

impl Hello {
    /// The bytes of version 1.
    pub fn to_bytes(self) -> [u8; HELLO_BYTES] {
        let flags = self.send_psn.map_or(0, |_| HAS_SEND_PSN);
        let [from, to] = [self.from, self.to].map(u32::to_be_bytes);
        let [send, recv] = [self.send_psn.unwrap_or(0), self.recv_psn].map(u32::to_be_bytes);
        let mut bytes = [0; HELLO_BYTES];
        let parts = [MAGIC, [VERSION, flags, 0, 0], from, to, send, recv];
        for (place, part) in bytes.chunks_exact_mut(4).zip(parts) {
            place.copy_from_slice(&part);
        }
        bytes
    }

    /// Reads private data of any length. Bytes after the hello and unknown flags are ignored, so
    /// that a later version may add some. `None` if it is no hello of version 1.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (words, _) = bytes.get(..HELLO_BYTES)?.as_chunks::<4>();
        let &[magic, [version, flags, ..], from, to, send, recv] = words else {
            return None;
        };
        if magic != MAGIC || version != VERSION {
            return None;
        }
        let [from, to, send, recv] = [from, to, send, recv].map(u32::from_be_bytes);
        let are_of_24_bits = [from, to, send, recv].iter().all(|it| *it <= MAX_24);
        are_of_24_bits.then_some(Self {
            from,
            to,
            send_psn: (flags & HAS_SEND_PSN != 0).then_some(send),
            recv_psn: recv,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HELLO: Hello = Hello {
        from: 0x01_0203,
        to: 0x04_0506,
        send_psn: Some(0x07_0809),
        recv_psn: 0x0a_0b0c,
    };

    #[test]
    fn bytes_are_those_of_the_record() {
        let expected: [u8; HELLO_BYTES] = [
            b'X', b'W', b'R', b'V', 1, 1, 0, 0, 0, 1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 10, 11, 12,
        ];
        assert_eq!(HELLO.to_bytes(), expected);
        assert_eq!(Hello::parse(&expected), Some(HELLO));
    }

    #[test]
    fn other_private_data_is_no_hello() {
        let good = HELLO.to_bytes();
        for (at, byte) in [(0, b'Y'), (4, 0), (4, 2), (8, 1), (12, 1), (16, 1), (20, 1)] {
            let mut bytes = good;
            bytes[at] = byte;
            assert_eq!(Hello::parse(&bytes), None, "byte {at} is {byte}");
        }
        assert_eq!(Hello::parse(&good[..HELLO_BYTES - 1]), None);
        assert_eq!(Hello::parse(&[]), None);
    }

    #[test]
    fn later_version_may_add_flags_and_bytes() {
        let mut bytes = HELLO.to_bytes().to_vec();
        bytes[5] |= 0xfe;
        bytes.push(7);
        assert_eq!(Hello::parse(&bytes), Some(HELLO));
    }

    proptest! {
        #[test]
        fn each_hello_is_read_as_written(
            from in 0..=MAX_24, to in 0..=MAX_24,
            send_psn in proptest::option::of(0..=MAX_24), recv_psn in 0..=MAX_24,
        ) {
            let hello = Hello { from, to, send_psn, recv_psn };
            prop_assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
        }
    }
}

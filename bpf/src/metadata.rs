//! Receive metadata: what a NIC's driver tells of a frame's arrival, as the program writes it in front of the frame.

use std::fmt;
use std::time::Duration;

/// Begins metadata, so that none is read where the program wrote none. steer.bpf.c has it as `RX_METADATA_MARK`.
const MARK: u32 = 0x6d65_7461;

/// Receive metadata of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxMetadata {
    /// When the frame arrived, by the NIC's clock. That clock may be another than the host's.
    pub time: Option<Duration>,
    /// The hash that the NIC has computed of the frame.
    pub hash: Option<RxHash>,
}

/// A received frame's hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RxHash {
    /// Its value.
    pub value: u32,
    /// The headers that it is of, as bits of `enum xdp_rss_hash_type`.
    pub headers: u32,
}

impl RxMetadata {
    /// Bytes that the program writes in front of a frame.
    pub const BYTES: usize = 24;

    /// Reads what is in front of a frame; `None` if the program wrote nothing there.
    pub fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (words, time) = bytes.split_last_chunk::<8>()?;
        let mut words = (words.as_chunks::<4>().0.iter()).map(|word| u32::from_ne_bytes(*word));
        if words.next() != Some(MARK) {
            return None;
        }
        let (headers, value) = (words.next()?, words.next()?);
        let time = u64::from_ne_bytes(*time);
        Some(Self {
            time: (time != 0).then(|| Duration::from_nanos(time)),
            hash: (headers != 0).then_some(RxHash { value, headers }),
        })
    }
}

impl fmt::Display for RxMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.time {
            Some(time) => write!(
                f,
                "NIC time {}.{:09} s",
                time.as_secs(),
                time.subsec_nanos()
            )?,
            None => f.write_str("no NIC time")?,
        }
        match self.hash {
            Some(hash) => write!(
                f,
                ", RX hash {:#010x} (type {:#x})",
                hash.value, hash.headers
            ),
            None => f.write_str(", no RX hash"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(mark: u32, headers: u32, hash: u32, time: u64) -> [u8; RxMetadata::BYTES] {
        let mut bytes = [0; RxMetadata::BYTES];
        for (at, word) in [mark, headers, hash].into_iter().enumerate() {
            bytes[at * 4..][..4].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[16..].copy_from_slice(&time.to_ne_bytes());
        bytes
    }

    fn shown(bytes: [u8; RxMetadata::BYTES]) -> Option<String> {
        RxMetadata::parse(&bytes).map(|metadata| metadata.to_string())
    }

    #[test]
    fn what_the_program_wrote_is_read() {
        let all = shown(written(MARK, 0x18, 0x0bad_cafe, 5_000_000_007));
        let all = all.unwrap();
        assert_eq!(
            all,
            "NIC time 5.000000007 s, RX hash 0x0badcafe (type 0x18)"
        );
    }

    /// A clock that stands at 0 and a hash of no header are what drivers say that have none.
    #[test]
    fn what_the_driver_does_not_know_is_not_made_up() {
        let none = shown(written(MARK, 0, 7, 0)).unwrap();
        assert_eq!(none, "no NIC time, no RX hash");
    }

    #[test]
    fn bytes_that_the_program_did_not_write_are_no_metadata() {
        assert_eq!(shown([0; RxMetadata::BYTES]), None);
        assert_eq!(shown(written(MARK + 1, 0x18, 1, 1)), None);
    }
}

//! Receive metadata: what a NIC's driver reports of a frame's arrival, as the program writes it in
//! front of the frame.
//!
//! It is asked for only by a capture or by completions with times, since it costs three calls in
//! the kernel for each frame. A frame of several chunks is joined in other memory and has none. A
//! hash of type 0 is not shown: `virtio_net` reports a value without meaning with it.

use std::fmt;
use std::time::Duration;

/// Begins metadata, so that none is read where the program wrote none. steer.bpf.c has it as
/// `RX_METADATA_MARK`.
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

    /// Metadata of a frame that arrived at this time, and has no hash.
    pub fn at(time: Duration) -> Self {
        Self {
            time: Some(time),
            hash: None,
        }
    }

    /// What the program writes of it. A time past the year 2554 is the last one before.
    pub fn written(&self) -> [u8; Self::BYTES] {
        let (headers, value) = self.hash.map_or((0, 0), |hash| (hash.headers, hash.value));
        let nanoseconds = self.time.map_or(0, |time| time.as_nanos());
        let time = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        let mut bytes = [0; Self::BYTES];
        let words = [MARK, headers, value]
            .into_iter()
            .flat_map(u32::to_ne_bytes);
        let all = words.chain([0; 4]).chain(time.to_ne_bytes());
        bytes
            .iter_mut()
            .zip(all)
            .for_each(|(byte, written)| *byte = written);
        bytes
    }

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

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let time = Some(Duration::from_nanos(7));
        let (value, headers) = (0x0bad_cafe, 0x18);
        for hash in [None, Some(RxHash { value, headers })] {
            let metadata = RxMetadata { time, hash };
            assert_eq!(RxMetadata::parse(&metadata.written()), Some(metadata));
        }
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

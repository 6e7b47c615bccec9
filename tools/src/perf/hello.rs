//! What client and server of a test tell each other in the private data of their connection.

use std::fmt;

use anyhow::{Context, bail, ensure};
use xwarp::{RemoteAddress, Stag};

const MAGIC: [u8; 4] = *b"XWPF";
const VERSION: u8 = 1;
/// Octets of region area beside the test's buffers: control messages, and rounding to pages.
const SPARE_OCTETS: usize = 256 << 10;

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    Send,
}

/// What a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bandwidth,
    Latency,
}

/// Which test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) verb: Verb,
    pub(crate) style: Style,
}

impl Kind {
    fn to_octet(self) -> u8 {
        let verb = match self.verb {
            Verb::Write => 0,
            Verb::Read => 1,
            Verb::Send => 2,
        };
        verb | u8::from(self.style == Style::Latency) << 4
    }

    fn from_octet(octet: u8) -> Option<Self> {
        let verb = match octet & 0x0f {
            0 => Verb::Write,
            1 => Verb::Read,
            2 => Verb::Send,
            _ => return None,
        };
        let style = match octet >> 4 {
            0 => Style::Bandwidth,
            1 => Style::Latency,
            _ => return None,
        };
        Some(Self { verb, style })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match (self.verb, self.style) {
            (Verb::Write, Style::Bandwidth) => "write-bw",
            (Verb::Read, Style::Bandwidth) => "read-bw",
            (Verb::Send, Style::Bandwidth) => "send-bw",
            (Verb::Write, Style::Latency) => "write-lat",
            (Verb::Read, Style::Latency) => "read-lat",
            (Verb::Send, Style::Latency) => "send-lat",
        })
    }
}

/// What a client asks for. Octets: magic, version, kind, verify, 0, size, slots, depth, then the places of [`Places`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    /// Octets of a message.
    pub(crate) size: u32,
    /// Buffers of that size, used in turn.
    pub(crate) slots: u32,
    /// Messages outstanding at once.
    pub(crate) depth: u32,
    /// Whether buffers are checked at the end.
    pub(crate) verify: bool,
    /// The client's memory.
    pub(crate) places: Places,
}

/// Memory of one side that the other one accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// What is written or read by the test.
    pub(crate) buffer: RemoteAddress,
    /// Where control records are written.
    pub(crate) control: RemoteAddress,
}

impl Places {
    /// Before the memory is there.
    pub(crate) const NONE: Self = {
        let nowhere = RemoteAddress {
            stag: Stag(0),
            to: 0,
        };
        Self {
            buffer: nowhere,
            control: nowhere,
        }
    };

    /// 12 octets each: `STag`, TO.
    pub(crate) fn to_octets(self) -> Vec<u8> {
        [self.buffer, self.control]
            .iter()
            .flat_map(|place| {
                place
                    .stag
                    .0
                    .to_be_bytes()
                    .into_iter()
                    .chain(place.to.to_be_bytes())
            })
            .collect()
    }

    pub(crate) fn from_octets(octets: &[u8]) -> Option<Self> {
        let mut rest = octets;
        let mut place = || {
            Some(RemoteAddress {
                stag: Stag(take(&mut rest).map(u32::from_be_bytes)?),
                to: take(&mut rest).map(u64::from_be_bytes)?,
            })
        };
        Some(Self {
            buffer: place()?,
            control: place()?,
        })
    }
}

impl Hello {
    /// Octets of all buffers.
    pub(crate) fn buffer_octets(&self) -> usize {
        (self.size as usize) * (self.slots as usize)
    }

    /// Octets of region area that one side needs: sources and sinks.
    pub(crate) fn region_octets(&self) -> usize {
        2 * self.buffer_octets() + SPARE_OCTETS
    }

    /// Where the buffer of message number `message` begins.
    pub(crate) fn slot_offset(&self, message: u64) -> u64 {
        message % u64::from(self.slots) * u64::from(self.size)
    }

    /// Size and number of the buffers that `messages` messages have filled.
    pub(crate) fn full_slots(&self, messages: u64) -> (usize, usize) {
        let slots = usize::try_from(messages)
            .unwrap_or(usize::MAX)
            .min(self.slots as usize);
        (self.size as usize, slots)
    }

    /// Size and number of the buffers whose last octet is a marker: what is before it.
    pub(crate) fn marked_slot(&self) -> (usize, usize) {
        ((self.size as usize).saturating_sub(1), 1)
    }

    pub(crate) fn to_octets(&self) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        octets.extend([VERSION, self.kind.to_octet(), u8::from(self.verify), 0]);
        for number in [self.size, self.slots, self.depth] {
            octets.extend(number.to_be_bytes());
        }
        octets.extend(self.places.to_octets());
        octets
    }

    pub(crate) fn from_octets(octets: &[u8]) -> anyhow::Result<Self> {
        let mut rest = octets;
        let head: [u8; 8] = take(&mut rest).context("the client is no xwarp perf")?;
        ensure!(head[..4] == MAGIC, "the client is no xwarp perf");
        ensure!(
            head[4] == VERSION,
            "the client is an xwarp perf of another version"
        );
        let Some(kind) = Kind::from_octet(head[5]) else {
            bail!("the client asks for a test that is not known here");
        };
        let mut number = || take(&mut rest).map(u32::from_be_bytes);
        let numbers = (number(), number(), number());
        let (Some(size), Some(slots), Some(depth)) = numbers else {
            bail!("the client's request is cut off");
        };
        let places = Places::from_octets(rest).context("the client's request is cut off")?;
        let buffers = u64::from(size) * u64::from(slots);
        ensure!(
            slots > 0 && depth > 0 && depth <= 4096 && buffers <= super::MEMORY_LIMIT,
            "the client asks for more than a test may take"
        );
        Ok(Self {
            kind,
            size,
            slots,
            depth,
            verify: head[6] != 0,
            places,
        })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELLO: Hello = Hello {
        kind: Kind {
            verb: Verb::Send,
            style: Style::Latency,
        },
        size: 0x0102,
        slots: 3,
        depth: 4,
        verify: true,
        places: Places {
            buffer: RemoteAddress {
                stag: Stag(0xaabb_ccdd),
                to: 5,
            },
            control: RemoteAddress {
                stag: Stag(0x0000_0100),
                to: 0,
            },
        },
    };

    const OCTETS: [u8; 44] = [
        b'X', b'W', b'P', b'F', 1, 0x12, 1, 0, // version 1, send-lat, verified
        0, 0, 1, 2, 0, 0, 0, 3, 0, 0, 0, 4, // size, slots, depth
        0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0, 5, // buffer: STag, TO
        0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // control: STag, TO
    ];

    #[test]
    fn a_request_is_these_octets() {
        assert_eq!(HELLO.to_octets(), OCTETS);
        assert_eq!(Hello::from_octets(&OCTETS).unwrap(), HELLO);
    }

    #[test]
    fn a_request_that_is_cut_off_or_too_large_is_refused() {
        for len in 0..44 {
            assert!(Hello::from_octets(&OCTETS[..len]).is_err(), "{len}");
        }
        let mut huge = OCTETS;
        huge[8..16].fill(0xff);
        assert!(Hello::from_octets(&huge).is_err());
    }
}

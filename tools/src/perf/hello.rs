//! Private data of a test's connections: the client's request and the server's answer.
//!
//! With `--qps N`, a further connection belongs to a run if it comes from the first one's address
//! with an equal request, which includes a random number of the run. Several connections use
//! version 2 of the private data, one uses version 1. An older server rejects version 2 with an
//! error message.

use std::fmt;
use std::num::NonZeroU8;

use anyhow::{Context, bail, ensure};
use xwarp::{RemoteAddress, Stag};

use super::data::Slots;

/// Length in bytes of a control record: four numbers.
pub(crate) const RECORD_BYTES: u32 = 32;

const MAGIC: [u8; 4] = *b"XWPF";
/// Version of a test over one connection.
const VERSION_ALONE: u8 = 1;
/// Version of a test over several connections. Older servers do not know it.
const VERSION_SEVERAL: u8 = 2;
/// Maximum number of outstanding messages on a connection.
pub(crate) const DEPTH_LIMIT: u32 = 4096;
/// Maximum number of connections of a test. The number beyond the first is sent in a byte.
pub(crate) const QPS_LIMIT: u16 = 256;
/// Maximum number of entries of an RNIC's completion queue.
pub(crate) const CQ_LIMIT: usize = 1 << 20;
/// Bytes of region area beside a connection's buffers: control messages, and rounding to pages.
const SPARE_BYTES: usize = 256 << 10;

/// Operation of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Write,
    Read,
    Send,
}

/// Quantity that a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Bandwidth,
    Latency,
}

/// Kind of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) verb: Verb,
    pub(crate) style: Style,
}

impl Kind {
    fn to_byte(self) -> u8 {
        let verb = match self.verb {
            Verb::Write => 0,
            Verb::Read => 1,
            Verb::Send => 2,
        };
        verb | u8::from(self.style == Style::Latency) << 4
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let verb = match byte & 0x0f {
            0 => Verb::Write,
            1 => Verb::Read,
            2 => Verb::Send,
            _ => return None,
        };
        let style = match byte >> 4 {
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

/// A client's request. It is equal on each of its connections, except for the places. Bytes: magic,
/// version, kind, verify, connections beyond the first, size, slots, depth, the places of
/// [`Places`], and the run if there are several connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: Kind,
    pub(crate) connections: Count,
    /// Bytes per message.
    pub(crate) size: u32,
    /// Number of buffers of that size, used in turn.
    pub(crate) slots: u32,
    /// Messages outstanding at once on a connection.
    pub(crate) depth: u32,
    /// Buffers are checked at the end.
    pub(crate) verify: bool,
    /// The client's memory for this connection.
    pub(crate) places: Places,
}

/// Number of connections of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    One,
    Several {
        beside_first: NonZeroU8,
        /// A random number that identifies the run.
        run: u64,
    },
}

impl Count {
    /// From 1 to [`QPS_LIMIT`]; otherwise `None`.
    pub(crate) fn new(connections: u32, run: u64) -> Option<Self> {
        let beside_first = u8::try_from(connections.checked_sub(1)?).ok()?;
        Some(match NonZeroU8::new(beside_first) {
            None => Self::One,
            Some(beside_first) => Self::Several { beside_first, run },
        })
    }

    pub(crate) fn get(self) -> usize {
        1 + usize::from(self.beside_first())
    }

    fn beside_first(self) -> u8 {
        match self {
            Self::One => 0,
            Self::Several { beside_first, .. } => beside_first.get(),
        }
    }

    /// Version of the private data for this number of connections.
    fn version(self) -> u8 {
        match self {
            Self::One => VERSION_ALONE,
            Self::Several { .. } => VERSION_SEVERAL,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One => f.write_str("1 QP"),
            Self::Several { .. } => write!(f, "{} QPs", self.get()),
        }
    }
}

/// Memory of one side that the other side accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Buffer that the test writes or reads.
    pub(crate) buffer: RemoteAddress,
    /// Destination of control records.
    pub(crate) control: RemoteAddress,
}

impl Places {
    /// Length of both on the wire: `STag` and TO each.
    const BYTES: usize = 24;

    /// Placeholder before the memory is registered.
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

    pub(crate) fn to_bytes(self) -> Vec<u8> {
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

    /// True if a buffer of `buffer_bytes` bytes, and a control record, fit between these Tagged
    /// Offsets and 2^64.
    fn have_room_for(&self, buffer_bytes: usize) -> bool {
        let ends = |place: RemoteAddress, bytes: u64| place.to.checked_add(bytes).is_some();
        ends(self.buffer, buffer_bytes as u64) && ends(self.control, RECORD_BYTES.into())
    }

    /// Parses a server's answer to `hello`.
    pub(crate) fn from_answer(bytes: &[u8], hello: &Hello) -> Option<Self> {
        Self::from_bytes(bytes).filter(|places| places.have_room_for(hello.buffer_bytes()))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut place = || {
            Some(RemoteAddress {
                stag: Stag(take(&mut rest).map(u32::from_be_bytes)?),
                to: take(&mut rest).map(u64::from_be_bytes)?,
            })
        };
        let places = Self {
            buffer: place()?,
            control: place()?,
        };
        rest.is_empty().then_some(places)
    }

    /// Parses the places at the start of `rest`.
    fn take(rest: &mut &[u8]) -> Option<Self> {
        let bytes: [u8; Self::BYTES] = take(rest)?;
        Self::from_bytes(&bytes)
    }
}

impl Hello {
    /// True if such a test is possible.
    fn is_possible(&self) -> bool {
        let (slots_limit, connections_limit) = match self.kind.style {
            Style::Bandwidth => (self.depth, QPS_LIMIT),
            Style::Latency => (1, 1),
        };
        let size_least = match (self.kind.verb, self.kind.style) {
            // The byte that is polled.
            (Verb::Write, Style::Latency) => 1,
            _ => 0,
        };
        (1..=DEPTH_LIMIT).contains(&self.depth)
            && (1..=slots_limit).contains(&self.slots)
            && self.size >= size_least
            && self.connections.get() <= connections_limit.into()
            && self.cq_entries() <= CQ_LIMIT
            && self.test_bytes() <= super::MEMORY_LIMIT
            && self.places.have_room_for(self.buffer_bytes())
    }

    /// True if the client's buffers are sent, or written from.
    pub(crate) fn client_sends(&self) -> bool {
        self.kind.verb != Verb::Read
    }

    /// True if the server's buffers are sent, written from or read.
    pub(crate) fn server_sends(&self) -> bool {
        self.kind.verb == Verb::Read || self.kind.style == Style::Latency
    }

    /// True if a request of another connection belongs to this run.
    pub(crate) fn is_of_run(&self, other: &Self) -> bool {
        let places = self.places;
        *self
            == Self {
                places,
                ..other.clone()
            }
    }

    /// Entries of a completion queue for all queues.
    pub(crate) fn cq_entries(&self) -> usize {
        cq_entries_each(self.depth) * self.connections.get()
    }

    /// Bytes of all connections' buffers.
    pub(crate) fn test_bytes(&self) -> u64 {
        u64::from(self.size) * u64::from(self.slots) * self.connections.get() as u64
    }

    /// Bytes of a connection's buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        (self.size as usize) * (self.slots as usize)
    }

    /// Bytes of region area that one side needs: sources and sinks.
    pub(crate) fn region_bytes(&self) -> usize {
        (2 * self.buffer_bytes() + SPARE_BYTES) * self.connections.get()
    }

    /// Offset of the buffer for message number `message`.
    pub(crate) fn slot_offset(&self, message: u64) -> u64 {
        message % u64::from(self.slots) * u64::from(self.size)
    }

    /// All buffers of a connection.
    pub(crate) fn all_slots(&self, connection: usize) -> Slots {
        Slots {
            connection,
            size: self.size as usize,
            count: self.slots as usize,
        }
    }

    /// No buffer of a connection.
    pub(crate) fn no_slots(&self, connection: usize) -> Slots {
        Slots {
            count: 0,
            ..self.all_slots(connection)
        }
    }

    /// Buffers of a connection that `messages` messages have filled.
    pub(crate) fn full_slots(&self, connection: usize, messages: u64) -> Slots {
        let all = self.all_slots(connection);
        let filled = usize::try_from(messages).unwrap_or(usize::MAX);
        Slots {
            count: all.count.min(filled),
            ..all
        }
    }

    /// The buffer of a connection whose last byte is a marker, without that byte.
    pub(crate) fn marked_slot(&self, connection: usize) -> Slots {
        Slots {
            size: (self.size as usize).saturating_sub(1),
            count: 1,
            connection,
        }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        let kind = self.kind.to_byte();
        let verify = u8::from(self.verify);
        let beside_first = self.connections.beside_first();
        bytes.extend([self.connections.version(), kind, verify, beside_first]);
        for number in [self.size, self.slots, self.depth] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.places.to_bytes());
        if let Count::Several { run, .. } = self.connections {
            bytes.extend(run.to_be_bytes());
        }
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> anyhow::Result<Self> {
        let mut rest = bytes;
        let head = take(&mut rest).context("the client is no xwarp perf")?;
        let (kind, verify, beside_first) = read_head(head)?;
        let mut number = || take(&mut rest).map(u32::from_be_bytes);
        let numbers = (number(), number(), number());
        let (Some(size), Some(slots), Some(depth)) = numbers else {
            bail!("the client's request is cut off");
        };
        let places = Places::take(&mut rest).context("the client's request is cut off")?;
        let connections = read_count(beside_first, rest)
            .context("the client's request is cut off, or too long")?;
        let hello = Self {
            kind,
            connections,
            size,
            slots,
            depth,
            verify,
            places,
        };
        ensure!(
            hello.is_possible(),
            "the client requests an impossible test, or more memory than a test may take"
        );
        Ok(hello)
    }
}

/// Entries of a completion queue for the queues of one connection: more than can complete between
/// two polls.
pub(crate) fn cq_entries_each(depth: u32) -> usize {
    8 * depth as usize + 64
}

/// Parses kind, whether data are compared, and the number of connections beyond the first.
fn read_head(head: [u8; 8]) -> anyhow::Result<(Kind, bool, Option<NonZeroU8>)> {
    ensure!(head[..4] == MAGIC, "the client is no xwarp perf");
    ensure!(
        matches!(head[4], VERSION_ALONE | VERSION_SEVERAL),
        "the client is an xwarp perf of another version"
    );
    let Some(kind) = Kind::from_byte(head[5]) else {
        bail!("the client requests a test that this version does not know");
    };
    let beside_first = NonZeroU8::new(head[7]);
    let several = head[4] == VERSION_SEVERAL;
    match head[6] {
        flag @ (0 | 1) if beside_first.is_some() == several => Ok((kind, flag == 1, beside_first)),
        _ => bail!("the client requests an option that this version does not know"),
    }
}

/// Parses the number of connections, and the run if there are several. Returns the rest of the
/// request.
fn read_count(beside_first: Option<NonZeroU8>, rest: &[u8]) -> Option<Count> {
    Some(match beside_first {
        None => rest.is_empty().then_some(Count::One)?,
        Some(beside_first) => Count::Several {
            beside_first,
            run: u64::from_be_bytes(rest.try_into().ok()?),
        },
    })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HELLO: Hello = Hello {
        kind: Kind {
            verb: Verb::Send,
            style: Style::Latency,
        },
        connections: Count::One,
        size: 0x0102,
        slots: 1,
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

    const BYTES: [u8; 44] = [
        b'X', b'W', b'P', b'F', 1, 0x12, 1, 0, // version 1, send-lat, verified
        0, 0, 1, 2, 0, 0, 0, 1, 0, 0, 0, 4, // size, slots, depth
        0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0, 0, 0, 0, 0, 5, // buffer: STag, TO
        0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, // control: STag, TO
    ];

    #[test]
    fn request_is_these_bytes() {
        assert_eq!(HELLO.to_bytes(), BYTES);
        assert_eq!(Hello::from_bytes(&BYTES).unwrap(), HELLO);
    }

    /// The request for a bandwidth test over 8 connections.
    fn several() -> Vec<u8> {
        let mut bytes = BYTES.to_vec();
        bytes[4..8].copy_from_slice(&[2, 2, 1, 7]);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        bytes
    }

    #[test]
    fn request_for_several_connections_is_these_bytes() {
        let kind = Kind {
            verb: Verb::Send,
            style: Style::Bandwidth,
        };
        let hello = Hello {
            kind,
            connections: Count::new(8, 0x0102_0304_0506_0708).unwrap(),
            ..HELLO
        };
        assert_eq!(hello.to_bytes(), several());
        assert_eq!(Hello::from_bytes(&several()).unwrap(), hello);
    }

    #[test]
    fn connections_of_a_run_differ_in_their_places_only() {
        let first = Hello::from_bytes(&several()).unwrap();
        let changed = |at: usize| {
            let mut bytes = several();
            bytes[at] ^= 1;
            Hello::from_bytes(&bytes).unwrap().is_of_run(&first)
        };
        assert!(first.is_of_run(&first) && changed(23) && changed(43));
        for at in [6, 7, 11, 19, 44, 51] {
            assert!(!changed(at), "{at}");
        }
    }

    #[test]
    fn connections_are_from_1_to_256() {
        let count = |connections| Count::new(connections, 0).map(Count::get);
        assert_eq!([0, 257].map(count), [None; 2]);
        assert_eq!([1, 2, 256].map(count), [1, 2, 256].map(Some));
    }

    #[test]
    fn request_that_is_cut_off_or_too_long_is_refused() {
        for request in [BYTES.to_vec(), several()] {
            for len in 0..request.len() {
                assert!(Hello::from_bytes(&request[..len]).is_err(), "{len}");
            }
            assert!(Hello::from_bytes(&[&request[..], &[0]].concat()).is_err());
        }
    }

    /// Replacement bytes at offsets.
    type Changes<'a> = &'a [(usize, &'a [u8])];

    /// A request with some bytes replaced.
    fn with(mut bytes: Vec<u8>, changes: Changes<'_>) -> anyhow::Result<Hello> {
        for (at, change) in changes {
            bytes[*at..at + change.len()].copy_from_slice(change);
        }
        Hello::from_bytes(&bytes)
    }

    /// The request for one connection with some bytes replaced.
    fn changed(changes: Changes<'_>) -> anyhow::Result<Hello> {
        with(BYTES.to_vec(), changes)
    }

    #[test]
    fn several_connections_are_refused_where_they_cannot_be() {
        const ALL: (usize, &[u8]) = (7, &[255]);
        let refused: [(&str, Changes<'_>); 6] = [
            ("the version of one", &[(4, &[1])]),
            ("a version that is unknown", &[(4, &[3])]),
            ("none beside the first", &[(7, &[0])]),
            ("a latency test", &[(5, &[0x12])]),
            ("8 times 128 MiB and a little", &[(8, &[8, 0, 0, 1])]),
            (
                "completions of 2^23 messages",
                &[ALL, (16, &[0, 0, 0x10, 0])],
            ),
        ];
        for (what, changes) in refused {
            assert!(with(several(), changes).is_err(), "{what}");
        }
        for (what, changes) in [
            ("8 times 128 MiB", &[(8, &[8, 0, 0, 0][..])][..]),
            ("256 connections", &[ALL]),
        ] {
            assert!(with(several(), changes).is_ok(), "{what}");
        }
    }

    #[test]
    fn request_for_what_cannot_be_is_refused() {
        const WRITE_BW: (usize, &[u8]) = (5, &[0]);
        const WRITE_LAT: (usize, &[u8]) = (5, &[0x10]);
        let refused: [(&str, Changes<'_>); 12] = [
            ("a kind that is unknown", &[(5, &[0x13])]),
            ("a flag that is unknown", &[(6, &[2])]),
            ("what was reserved", &[(7, &[1])]),
            ("1 GiB and a little", &[(8, &[0x40, 0, 0, 1])]),
            ("write-lat without a byte", &[WRITE_LAT, (8, &[0; 4])]),
            ("no slot", &[(12, &[0; 4])]),
            ("two slots for latency", &[(15, &[2])]),
            (
                "2^32 - 1 slots of no bytes",
                &[WRITE_BW, (8, &[0; 4]), (12, &[0xff; 4])],
            ),
            ("more slots than depth", &[WRITE_BW, (15, &[5])]),
            ("no depth", &[(16, &[0; 4])]),
            ("4097 messages at once", &[(16, &[0, 0, 0x10, 1])]),
            ("a buffer that leaves 2^64", &[(24, &[0xff; 8])]),
        ];
        for (what, changes) in refused {
            assert!(changed(changes).is_err(), "{what}");
        }
        assert!(
            changed(&[(36, &[0xff; 8])]).is_err(),
            "a record that leaves 2^64"
        );
        for (what, changes) in [
            ("send-lat without a byte", &[(8, &[0; 4][..])][..]),
            ("as many slots as depth", &[WRITE_BW, (15, &[4])]),
            ("1 GiB", &[(8, &[0x40, 0, 0, 0])]),
            ("4096 messages at once", &[(16, &[0, 0, 0x10, 0])]),
        ] {
            assert!(changed(changes).is_ok(), "{what}");
        }
    }

    /// A number of slots, or a depth, which is mostly valid, so that dependent checks are reached.
    fn few() -> impl Strategy<Value = u32> {
        prop_oneof![6 => 1_u32..6, 1 => number()]
    }

    /// Mostly a number near a limit.
    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![
            0_u32..5,
            4094_u32..4099,
            (1_u32 << 30) - 2..(1 << 30) + 2,
            u32::MAX - 1..=u32::MAX,
            any::<u32>()
        ]
    }

    fn offset() -> impl Strategy<Value = u64> {
        prop_oneof![
            0_u64..5,
            u64::MAX - 40..=u64::MAX,
            u64::MAX - (1 << 30) - 2..u64::MAX - (1 << 30) + 2,
            any::<u64>()
        ]
    }

    prop_compose! {
        fn request()(
            kind in prop_oneof![0_u8..3, 0x10_u8..0x13, any::<u8>()],
            flags in prop_oneof![Just([0, 0]), Just([1, 0]), any::<[u8; 2]>()],
            numbers in (number(), few(), few()),
            buffer in (any::<u32>(), offset()),
            control in (any::<u32>(), offset()),
            several in prop_oneof![Just(None), any::<(u8, u64)>().prop_map(Some)],
        ) -> Vec<u8> {
            let mut bytes = BYTES[..4].to_vec();
            let [verify, reserved] = flags;
            match several {
                None => bytes.extend([1, kind, verify, reserved]),
                Some((beside_first, _)) => bytes.extend([2, kind, verify, beside_first]),
            }
            let (size, slots, depth) = numbers;
            bytes.extend([size, slots, depth].iter().flat_map(|number| number.to_be_bytes()));
            for (stag, to) in [buffer, control] {
                bytes.extend(stag.to_be_bytes());
                bytes.extend(to.to_be_bytes());
            }
            bytes.extend(several.iter().flat_map(|(_, run)| run.to_be_bytes()));
            bytes
        }
    }

    proptest! {
        /// Checks the arithmetic of a test, as the test profile checks for overflow.
        #[test]
        fn what_is_accepted_can_be_run(bytes in request(), message: u64) {
            let Ok(hello) = Hello::from_bytes(&bytes) else { return Ok(()) };
            prop_assert_eq!(hello.to_bytes(), bytes);
            let spare = (SPARE_BYTES * hello.connections.get()) as u64;
            prop_assert!(hello.region_bytes() as u64 <= 2 * crate::perf::MEMORY_LIMIT + spare);
            prop_assert!(hello.cq_entries() <= CQ_LIMIT && hello.connections.get() <= 256);
            prop_assert!(hello.slots <= DEPTH_LIMIT && hello.depth <= DEPTH_LIMIT);
            let end = hello.slot_offset(message) + u64::from(hello.size);
            prop_assert!(end <= hello.buffer_bytes() as u64);
            prop_assert!(hello.places.buffer.to.checked_add(end).is_some());
            prop_assert!(hello.full_slots(0, message).bytes() <= hello.buffer_bytes());
            prop_assert!(hello.marked_slot(0).bytes() <= hello.buffer_bytes());
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            prop_assert!(Hello::from_bytes(&bytes).is_err(), "they are no request");
        }

        #[test]
        fn answer_is_places_with_room_for_the_buffers(buffer in offset(), control in offset()) {
            let place = |to| RemoteAddress { stag: Stag(1), to };
            let places = Places { buffer: place(buffer), control: place(control) };
            let fits = buffer.checked_add(0x0102).is_some() && control.checked_add(32).is_some();
            let read = Places::from_answer(&places.to_bytes(), &HELLO);
            prop_assert_eq!(read, fits.then_some(places));
        }
    }
}

//! TCP segments that must not count: wire.md rows 48 and 109.

use std::cell::RefCell;
use std::rc::Rc;

use xwarp::QpState;
use xwarp_sim_tests::wire::{Tagged, Untagged};
use xwarp_sim_tests::{Done, Target, pattern};
use xwarp_test_kit::netsim::{Direction, Sighting};

use super::Dut;

/// Bytes of the Ethernet and IPv4 headers in front of a TCP header.
const TCP: usize = 14 + 20;
/// The time of sending, in the timestamps option behind two NOPs (RFC 7323 appendix A).
const TSVAL: usize = TCP + 20 + 4;
/// The same headers and one of TCP with timestamps.
const PAYLOAD: usize = TCP + 20 + 12;

/// A frame with TCP over IPv4.
#[derive(Clone)]
struct Frame(Vec<u8>);

impl Frame {
    fn seq(&self) -> u32 {
        u32::from_be_bytes(self.0[TCP + 4..TCP + 8].try_into().unwrap())
    }

    fn with_seq(mut self, seq: u32) -> Self {
        self.0[TCP + 4..TCP + 8].copy_from_slice(&seq.to_be_bytes());
        self.summed()
    }

    /// Sets the timestamp `age` of the peer's ticks back.
    fn older_by(mut self, age: u32) -> Self {
        let then = u32::from_be_bytes(self.0[TSVAL..TSVAL + 4].try_into().unwrap());
        let sent = then.wrapping_sub(age).to_be_bytes();
        self.0[TSVAL..TSVAL + 4].copy_from_slice(&sent);
        self.summed()
    }

    fn with_payload(mut self, payload: &[u8]) -> Self {
        assert_eq!(self.0.len(), PAYLOAD + payload.len());
        self.0[PAYLOAD..].copy_from_slice(payload);
        self.summed()
    }

    /// With the checksum that it should have (RFC 9293 §3.1).
    fn summed(mut self) -> Self {
        self.0[TCP + 16..TCP + 18].fill(0);
        let segment = &self.0[TCP..];
        let len = u32::try_from(segment.len()).unwrap();
        let words = |bytes: &[u8]| -> u32 {
            let word = |pair: &[u8]| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&o| o.into());
            bytes.chunks(2).map(word).sum()
        };
        let mut sum = words(&self.0[26..TCP]) + 6 + len + words(segment);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = !u16::try_from(sum).unwrap();
        self.0[TCP + 16..TCP + 18].copy_from_slice(&checksum.to_be_bytes());
        self
    }
}

/// A DUT that has received one Write of the peer's, and the frame that brought it.
struct Replay {
    dut: Dut,
    target: Target,
    frame: Frame,
    /// Bytes of the Write's FPDU.
    fpdu: Vec<u8>,
}

impl Replay {
    fn new(drops: &[&'static str]) -> Self {
        let mut dut = Dut::new().expecting(drops);
        dut.sim.run_until_idle();
        let target = dut.end.target(100);
        let place = target.remote(0);
        let fpdu = Tagged::write(place.stag, place.to).fpdu(&pattern(100));
        let last: Rc<RefCell<Vec<u8>>> = Rc::default();
        let seen = Rc::clone(&last);
        let len = PAYLOAD + fpdu.len();
        dut.sim.link().observe(move |sighting: &Sighting<'_>| {
            if sighting.direction == Direction::BToA && sighting.frame.len() == len {
                *seen.borrow_mut() = sighting.frame.to_vec();
            }
        });
        dut.peer.send(&fpdu);
        dut.sim.run_until_idle();
        assert_eq!(target.to_vec(), pattern(100));
        let frame = Frame(last.borrow().clone());
        assert_eq!(frame.0[PAYLOAD..], fpdu);
        assert_eq!(frame.0, frame.clone().summed().0, "the sum is understood");
        Self {
            dut,
            target,
            frame,
            fpdu,
        }
    }

    /// Another Write to the same place, as long.
    fn other_write(&self) -> Vec<u8> {
        let place = self.target.remote(0);
        Tagged::write(place.stag, place.to).fpdu(&[0x55; 100])
    }

    /// Lets the frame arrive; nothing may come of it.
    fn assert_ignored(&mut self, what: &str, frame: Frame) {
        let before = self.dut.end.host().memory();
        let counted = |dut: &Dut| dut.end.host().rnic().counters().unwrap();
        let fpdus = counted(&self.dut).rdma.fpdus_in;
        let frames = counted(&self.dut).io.rx_frames;
        let Frame(bytes) = frame;
        self.dut.sim.link().inject(Direction::BToA, bytes);
        self.dut.sim.run_until_idle();
        let now = counted(&self.dut);
        assert_eq!(now.io.rx_frames, frames + 1, "{what}: it arrived");
        assert_eq!(now.rdma.fpdus_in, fpdus, "{what}");
        assert!(self.dut.end.host().memory() == before, "{what}");
        assert_eq!(self.dut.end.state(), QpState::Rts, "{what}");
    }

    /// The connection works as before.
    fn assert_goes_on(&mut self) {
        self.dut.end.post_recv(9, 100);
        self.dut.peer.send(&Untagged::default().fpdu(b"and on"));
        self.dut.sim.run_until_idle();
        assert_eq!(self.dut.end.receives(), [Done::receive(9, 6)]);
        assert_eq!(self.dut.end.buffer(9)[..6], *b"and on");
    }
}

/// RFC 5044 section 4.2 would have it placed once; the repeated segment says something else, with a
/// right CRC and checksum. Row 48.
#[test]
fn repeated_segment_with_other_bytes_is_not_placed() {
    let mut replay = Replay::new(&[]);
    let same = replay.frame.clone();
    replay.assert_ignored("the same again", same);
    let other = replay.frame.clone().with_payload(&replay.other_write());
    replay.assert_ignored("other bytes", other);
    replay.assert_goes_on();
}

/// Of a segment that repeats old bytes, differently, and has new ones behind them, only the new
/// ones count. Row 48.
#[test]
fn overlapping_segment_counts_only_for_its_new_bytes() {
    let mut replay = Replay::new(&[]);
    replay.dut.end.post_recv(9, 100);
    let new = Untagged::default().fpdu(b"behind");
    let mut bytes = replay.frame.0[..PAYLOAD].to_vec();
    bytes.extend(replay.other_write());
    bytes.extend(&new);
    let ip_len = u16::try_from(bytes.len() - 14).unwrap();
    bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
    let frame = Frame(with_ip_checksum(bytes)).summed();
    replay.dut.sim.link().inject(Direction::BToA, frame.0);
    replay.dut.sim.run_for(std::time::Duration::from_millis(1));
    assert_eq!(replay.target.to_vec(), pattern(100), "the old ones stay");
    assert_eq!(replay.dut.end.receives(), [Done::receive(9, 6)]);
    assert_eq!(replay.dut.end.buffer(9)[..6], *b"behind");
}

fn with_ip_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair[1]);
    let mut sum: u32 = frame[14..TCP].chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let checksum = !u16::try_from(sum).unwrap();
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// The segment would be the next one, and its FPDU right.
/// Row 109.
#[test]
fn segment_with_a_bad_checksum_is_dropped() {
    let mut replay = Replay::new(&["drop_bad_checksum"]);
    let next = replay.frame.seq() + u32::try_from(replay.fpdu.len()).unwrap();
    let right = replay.frame.clone().with_seq(next);
    let right = right.with_payload(&replay.other_write());
    for bit in [0, 7, 12] {
        let mut bad = right.clone();
        bad.0[TCP + 16 + bit / 8] ^= 1 << (bit % 8);
        replay.assert_ignored("a bad checksum", bad);
    }
    let drops = replay.dut.end.host().drops();
    assert_eq!(drops["drop_bad_checksum"], 3);
    replay.assert_goes_on();
}

/// Row 109.
#[test]
fn segment_out_of_the_window_is_dropped() {
    let mut replay = Replay::new(&["drop_beyond_window"]);
    let next = replay.frame.seq() + u32::try_from(replay.fpdu.len()).unwrap();
    let other = replay.frame.clone().with_payload(&replay.other_write());
    for (what, distance) in [
        ("just beyond it", 1 << 20),
        ("half of all numbers away", 0x8000_0000),
        ("far below", u32::MAX - 0x1000_0000),
    ] {
        let frame = other.clone().with_seq(next.wrapping_add(distance));
        replay.assert_ignored(what, frame);
    }
    replay.assert_goes_on();
}

/// A segment that would be the next one, but was sent before what has arrived (RFC 7323 §5.3).
/// Row 109.
#[test]
fn segment_with_an_old_timestamp_is_dropped() {
    let mut replay = Replay::new(&["drop_old_timestamp"]);
    let next = replay.frame.seq() + u32::try_from(replay.fpdu.len()).unwrap();
    let other = replay.frame.clone().with_seq(next);
    let other = other.with_payload(&replay.other_write());
    for age in [1, 1 << 20, 0x7fff_ffff] {
        let frame = other.clone().older_by(age);
        replay.assert_ignored("sent before", frame);
    }
    let drops = replay.dut.end.host().drops();
    assert_eq!(drops["drop_old_timestamp"], 3);
    replay.assert_goes_on();
}

/// A segment with an acknowledgement for what was never sent (RFC 9293 §3.10.7.4).
/// Row 109.
#[test]
fn segment_that_acknowledges_the_future_is_dropped() {
    let mut replay = Replay::new(&[]);
    let next = replay.frame.seq() + u32::try_from(replay.fpdu.len()).unwrap();
    let mut frame = replay.frame.clone().with_seq(next);
    frame.0[TCP + 8] ^= 0x40;
    let frame = frame.with_payload(&replay.other_write());
    replay.assert_ignored("an ACK of the future", frame);
    replay.assert_goes_on();
}

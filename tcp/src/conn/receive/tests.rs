//! The receive side against a model whose sequence numbers do not wrap.

use std::net::SocketAddr;

use proptest::prelude::*;
use smoltcp::wire::{IpEndpoint, TcpControl};
use xwarp_driver::MemoryIo;

use super::*;
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options};
use crate::wire::seq::testing::{alike, at, near};

/// Offset of payloads in their frames.
const HEADERS: usize = 54;
/// The largest window that can be announced (RFC 7323 §2.3).
const LARGEST: usize = (u16::MAX as usize) << 14;
const WINDOWS: [usize; 7] = [0, 1, 2, 1000, 65_535, 1 << 20, LARGEST];

/// A receive side that expects the byte at `next` and has announced this window.
fn side(next: i64, window: usize) -> ReceiveSide {
    let mut side = ReceiveSide::new(window.max(1024), Duration::ZERO);
    side.begin(at(next - 1), window);
    side
}

fn segment(place: i64, len: usize, control: TcpControl) -> Segment {
    let endpoint = |text: &str| IpEndpoint::from(text.parse::<SocketAddr>().unwrap());
    Segment {
        flow: Flow {
            local: endpoint("10.0.0.2:4791"),
            remote: endpoint("10.0.0.1:40000"),
        },
        control,
        seq: at(place),
        ack: None,
        window: 0,
        options: Options::default(),
        payload: HEADERS..HEADERS + len,
        ecn: Ecn::default(),
    }
}

/// Two received frames of `len` bytes, and the device that owns them.
fn received(len: usize) -> (Device, [RxFrame; 2]) {
    let (io, wire) = MemoryIo::new(4).unwrap();
    let mut device = Device::new(Box::new(io), 1500);
    for _ in 0..2 {
        wire.deliver(vec![7; len]);
    }
    let mut frames = Vec::new();
    device.receive(2, &mut frames);
    let frames = <[RxFrame; 2]>::try_from(frames);
    (device, frames.map_err(|frames| frames.len()).unwrap())
}

fn wide(n: usize) -> i64 {
    i64::try_from(n).unwrap()
}

/// The expected number, the window, and a segment: its start, its payload, and whether it has a
/// FIN.
#[derive(Clone, Copy, Debug)]
struct Case {
    next: i64,
    window: usize,
    place: i64,
    len: usize,
    control: TcpControl,
}

impl Case {
    fn segment(&self) -> Segment {
        segment(self.place, self.len, self.control)
    }

    fn side(&self) -> ReceiveSide {
        side(self.next, self.window)
    }

    fn edge(&self) -> i64 {
        self.next + wide(self.window)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let next = prop_oneof![Just(0_i64), Just(1 << 31), 0..1_i64 << 32];
    let window = prop_oneof![prop::sample::select(WINDOWS.to_vec()), 0..LARGEST];
    let len = prop_oneof![Just(0_usize), Just(1), 0..2000_usize, Just(65_495)];
    let control = prop::sample::select(vec![TcpControl::Psh, TcpControl::Fin]);
    (next, window, len, control).prop_flat_map(|(next, window, len, control)| {
        let capacity = wide(window.max(1024));
        let edges = vec![
            0,
            wide(window),
            -wide(len),
            wide(window) - wide(len),
            -capacity,
        ];
        near(edges).prop_map(move |from_next| Case {
            next,
            window,
            place: next + from_next,
            len,
            control,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

    /// RFC 9293 §3.10.7.4; for a segment larger than the window, also the middle of the segment.
    #[test]
    fn what_meets_the_window_is_acceptable(case in case()) {
        let len = wide(case.segment().len());
        let acceptable = alike(case.place).any(|place| match (len, case.window) {
            (0, 0) => place == case.next,
            (_, 0) => false,
            (0, _) => place >= case.next && place < case.edge(),
            (_, _) => place < case.edge() && place + len > case.next,
        });
        prop_assert_eq!(case.side().is_acceptable(&case.segment()), acceptable);
    }

    #[test]
    fn what_lies_in_the_window_is_taken(case in case()) {
        let (side, segment) = (case.side(), case.segment());
        let taken = alike(case.place).find_map(|place| {
            let (begin, end) = (place.max(case.next), (place + wide(case.len)).min(case.edge()));
            (begin < end).then(|| (at(begin), usize::try_from(begin - place).unwrap(), usize::try_from(end - begin).unwrap()))
        });
        let (begin, range) = side.clip(&segment);
        let got = (!range.is_empty()).then(|| (begin, range.start - HEADERS, range.len()));
        prop_assert_eq!(got, taken);
    }

    /// The shortcut for ordinary segments has the same result as the general path.
    #[test]
    fn next_segment_is_taken_as_any_other(case in case(), comes_next: bool) {
        let place = if comes_next { case.next } else { case.place };
        let case = Case { place, ..case };
        let (segment, [mut one, mut other]) = (case.segment(), [case.side(), case.side()]);
        let next = at(case.place) == at(case.next);
        let ordinary = next && case.len <= case.window && case.control == TcpControl::Psh;
        prop_assert_eq!(one.is_next(&segment), ordinary);
        if ordinary && case.len > 0 {
            let (mut device, frames) = received(HEADERS + case.len);
            let [frame, same] = frames;
            prop_assert_eq!(other.duplicate(&segment), None);
            prop_assert_eq!(other.accept(&segment, same, &mut device), Arrival::InOrder { filled: false });
            one.take_next(&segment, frame, &mut device);
            prop_assert_eq!((one.next(), one.queue().len()), (other.next(), other.queue().len()));
            prop_assert_eq!(other.next(), at(case.next + wide(case.len)));
        }
    }

    #[test]
    fn fin_is_noted_in_the_window_or_at_its_edge(case in case()) {
        let mut side = case.side();
        side.note_fin(&case.segment());
        let end = case.place + wide(case.len);
        let noted = alike(end).any(|fin| fin >= case.next && fin <= case.edge());
        prop_assert_eq!(side.fin, (noted && case.control == TcpControl::Fin).then(|| at(end)));
    }

    /// No further back than the buffer size, and never bytes that were not received.
    #[test]
    fn what_came_lately_is_a_duplicate(case in case(), held in 1..3000_usize) {
        let (mut side, segment) = (case.side(), case.segment());
        let (io, _) = MemoryIo::new(1).unwrap();
        let mut device = Device::new(Box::new(io), 1500);
        let hole = case.next + 100;
        let fits = held.min(case.window.saturating_sub(100));
        let waits = Chunk::Copied { bytes: vec![0; fits], begin: 0 };
        side.parts.insert(at(hole), waits, &mut device);
        let oldest = case.next - wide(side.capacity) - 1;
        let known = alike(case.place).filter(|_| case.len > 0).find_map(|place| {
            let end = place + wide(case.len);
            if place >= oldest && place < case.next {
                return Some((at(place), at(end.min(case.next))));
            }
            let right = hole + wide(fits);
            (place >= hole && place < right).then(|| (at(place), at(end.min(right))))
        });
        prop_assert_eq!(side.duplicate(&segment), known);
    }

    #[test]
    fn beyond_is_what_is_nearer_to_the_future(case in case()) {
        let least = case.edge() + i64::from(case.segment().len() == 0);
        let beyond = alike(case.place).any(|place| place >= least && place - case.next < 1 << 31);
        prop_assert_eq!(case.side().is_beyond(&case.segment()), beyond);
    }

    /// An announced edge stays, whatever is read, and however coarse the field is (RFC 9293
    /// §3.8.6.2.1).
    #[test]
    fn announced_edge_is_never_taken_back(shift in 0..15_u8, steps in prop::collection::vec((0..3000_usize, 0..3000_usize), 1..40)) {
        let mut side = ReceiveSide::new(60_000 << shift, Duration::ZERO);
        side.begin(at(-5_000_000), 0);
        let (mut next, mut edge, mut device) = (-4_999_999_i64, i64::MIN, Device::new(Box::new(MemoryIo::new(1).unwrap().0), 1500));
        for (received, read) in steps {
            let window = wide(usize::from(side.announce(shift)) << shift);
            prop_assert!(next + window >= edge);
            prop_assert_eq!(at(next + window), side.edge);
            edge = next + window;
            let received = received.min(side.window());
            side.append(Chunk::Copied { bytes: vec![0; received], begin: 0 });
            next += wide(received);
            side.consume(read, &mut device);
        }
    }
}

/// A report of an attack found this: neither number is anywhere near the window.
#[test]
fn half_the_space_behind_is_not_in_the_window() {
    let side = side(7, 256 << 10);
    for behind in [0, 1, 2, 1000, 200_000, 262_143, 262_144] {
        for len in [0, 1, 1460] {
            let fin = segment(7 - (1 << 31) + behind, len, TcpControl::Fin);
            assert!(!side.is_acceptable(&fin), "{behind} {len}");
            assert_eq!(side.duplicate(&fin), None, "{behind} {len}");
        }
    }
}

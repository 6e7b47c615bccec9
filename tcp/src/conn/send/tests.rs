//! The send side against a model whose sequence numbers do not wrap.

use std::net::SocketAddr;

use proptest::prelude::*;
use smoltcp::wire::{IpEndpoint, TcpControl};

use super::*;
use crate::wire::flow::Flow;
use crate::wire::inbound::{Ecn, Options};
use crate::wire::seq::testing::{HALF, LARGEST, alike, at, near, start};

/// Maximum of bytes in flight.
const FLIGHTS: i64 = 256 * 65_535;

/// SND.UNA, the bytes in flight behind it, and the largest window so far.
#[derive(Clone, Copy, Debug)]
struct Sent {
    una: i64,
    flight: i64,
    largest: i64,
}

impl Sent {
    fn side(&self) -> SendSide {
        let mut side = SendSide::new(at(self.una), 0);
        side.nxt = at(self.una + self.flight);
        side.end = side.nxt;
        side.largest_window = usize::try_from(self.largest).unwrap();
        side
    }

    fn nxt(&self) -> i64 {
        self.una + self.flight
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let una = prop_oneof![Just(0), Just(HALF), 0..1_i64 << 32];
    let flight = prop_oneof![Just(0), Just(1), 0..FLIGHTS];
    let largest = prop_oneof![Just(0), Just(65_535), Just(LARGEST), 0..LARGEST];
    (una, flight, largest).prop_map(|(una, flight, largest)| Sent {
        una,
        flight,
        largest,
    })
}

/// Sent data, and two numbers from the peer.
fn case() -> impl Strategy<Value = (Sent, i64, i64)> {
    sent().prop_flat_map(|sent| {
        let edges = vec![0, sent.flight, -sent.largest, sent.flight / 2];
        let place = move || near(edges.clone()).prop_map(move |from_una| sent.una + from_una);
        (Just(sent), place(), place())
    })
}

fn segment(place: i64, window: u16) -> Segment {
    let endpoint = |text: &str| IpEndpoint::from(text.parse::<SocketAddr>().unwrap());
    Segment {
        flow: Flow {
            local: endpoint("10.0.0.2:4791"),
            remote: endpoint("10.0.0.1:40000"),
        },
        control: TcpControl::None,
        seq: at(place),
        ack: None,
        window,
        options: Options::default(),
        payload: 0..0,
        ecn: Ecn::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

    /// RFC 5961 §5.2.
    #[test]
    fn ack_is_plausible_from_a_window_before_what_is_in_flight_to_its_end((sent, ack, _) in case()) {
        let side = sent.side();
        let within = |from: i64, to: i64| alike(ack).any(|ack| ack >= from && ack <= to);
        prop_assert_eq!(side.is_plausible(at(ack)), within(sent.una - sent.largest, sent.nxt()));
        prop_assert_eq!(side.is_forward(at(ack)), within(sent.una, sent.nxt()));
        prop_assert_eq!(side.acks_new_data(at(ack)), within(sent.una + 1, sent.nxt()));
        if side.is_plausible(at(ack)) {
            // A deferred ACK may be judged so.
            prop_assert_eq!(side.una.is_before(at(ack)), side.acks_new_data(at(ack)));
        }
    }

    #[test]
    fn block_is_believed_of_what_is_in_flight((sent, left, right) in case()) {
        let in_flight = alike(left).any(|left| alike(right).any(|right| {
            sent.una < left && left < right && right <= sent.nxt()
        }));
        prop_assert_eq!(sent.side().may_have((at(left), at(right)), at(sent.una)), in_flight);
    }

    #[test]
    fn duplicate_is_believed_of_a_window_before_the_ack((sent, left, right) in case()) {
        let ack = sent.nxt();
        let lately = alike(left).any(|left| alike(right).any(|right| {
            ack - sent.largest <= left && left < right && right <= ack
        }));
        prop_assert_eq!(sent.side().may_repeat((at(left), at(right)), at(ack)), lately);
    }

    /// SND.WL1 and SND.WL2 (RFC 9293 §3.10.7.4), for acceptable segments in any order.
    #[test]
    fn window_is_that_of_the_segment_sent_last(
        first in start(),
        steps in prop::collection::vec((-5..=5_i64, -5..=5_i64, 0..4_u16), 1..30),
    ) {
        let una = first + 77;
        let mut side = Sent { una, flight: 5, largest: LARGEST }.side();
        let mut last: Option<(i64, i64)> = None;
        let mut edge = una;
        for (seq, ack, window) in steps {
            let (seq, ack) = (first + seq, una + ack);
            let forward = ack >= una && ack <= una + 5;
            let before = edge;
            if forward && last.is_none_or(|last| last <= (seq, ack)) {
                (last, edge) = (Some((seq, ack)), ack + (i64::from(window) << 14));
            }
            prop_assert_eq!(side.update_window(&segment(seq, window), at(ack), 14), edge != before);
            prop_assert_eq!(side.edge(), at(edge));
        }
    }

    /// The peer may have shrunk its window: the edge is anywhere less than a window away (RFC 9293
    /// §3.8.6).
    #[test]
    fn room_is_from_what_is_queued_to_the_edge(sent in sent(), waiting in 0..FLIGHTS, from_una in prop_oneof![-3..3_i64, -LARGEST..=LARGEST]) {
        let mut side = sent.side();
        let (end, edge) = (sent.nxt() + waiting, sent.una + from_una);
        side.end = at(end);
        side.edge = at(edge);
        prop_assert_eq!(i64::try_from(side.room()).unwrap(), (edge - end).max(0));
        prop_assert_eq!(side.bare_seq(), at(sent.nxt().min(edge.max(sent.una))));
    }

    #[test]
    fn byte_is_in_flight_from_what_is_acknowledged_to_what_is_sent((sent, place, _) in case()) {
        let in_flight = alike(place).any(|place| place >= sent.una && place < sent.nxt());
        prop_assert_eq!(sent.side().is_in_flight(at(place)), in_flight);
    }
}

#[test]
fn ack_half_the_space_away_is_not_plausible() {
    let idle = Sent {
        una: 7,
        flight: 0,
        largest: 65_535,
    }
    .side();
    assert!(!idle.is_plausible(at(7 + HALF)));
    assert!(idle.is_plausible(at(7)) && idle.is_plausible(at(7 - 65_535)));
    assert!(!idle.is_plausible(at(8)) && !idle.is_plausible(at(7 - 65_536)));
}

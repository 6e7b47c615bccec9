//! Segments in flight, of all sizes: how many a connection may have in each direction.

use super::Conn;
use super::send::congestion_control::Delivery;
use super::testing::Opened;
use crate::config::StackConfig;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// Length in bytes of IP and TCP headers with timestamps.
const HEADERS: usize = 52;

impl Opened {
    /// Number of full segments that can be sent before one is acknowledged, with an unlimited
    /// congestion window.
    fn sent(&mut self) -> usize {
        let conn = &mut self.conn;
        conn.congestion.set_window_limited(true);
        conn.congestion.on_ack(&Delivery {
            now: self.now,
            bytes: 1 << 24,
            in_flight: 0,
            rtt: None,
            min_rtt: None,
            ece: false,
            in_recovery: false,
        });
        let (mut sent, len) = (0, conn.emss());
        while conn.can_write(len, self.now) {
            let begin: Seq = conn.send.end();
            conn.track(begin, len, Conn::DATA, None, self.now);
            sent += 1;
        }
        sent
    }

    /// Number of full segments that the peer may send before one is acknowledged.
    fn received(&mut self) -> usize {
        self.conn.receive.acks_mut().demand();
        self.turn();
        self.conn.receive.window() / self.conn.emss()
    }
}

#[test]
fn sixteen_segments_of_any_size_can_be_in_flight_both_ways() {
    for (mtu, segments) in [(1500, 181), (9000, 29), (65_523, 16), (65_535, 16)] {
        let mut large = Opened::new(mtu, &StackConfig::default());
        assert_eq!(large.conn.emss(), mtu - HEADERS);
        assert_eq!((large.received(), large.sent()), (segments, segments));
    }
}

#[test]
fn peer_with_larger_windows_is_sent_four_times_as_much_at_most() {
    for (mtu, segments) in [(1500, 256), (9000, 117), (65_535, 64)] {
        let mut large = Opened::new(mtu, &StackConfig::default());
        let window = Segment {
            window: u16::MAX,
            ..large.segment(1)
        };
        large.conn.negotiation.set_peer_shift(14);
        large.answer(&window);
        assert_eq!(large.sent(), segments);
    }
}

#[test]
fn buffer_that_was_asked_for_is_what_is_announced() {
    let config = StackConfig {
        buffer: Some(200_000),
        ..StackConfig::default()
    };
    let mut large = Opened::new(65_535, &config);
    assert_eq!((large.received(), large.sent()), (3, 3));
}

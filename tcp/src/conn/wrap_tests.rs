//! Connections that outlast the sequence number space, or begin where it wraps.

use std::time::Duration;

use proptest::prelude::*;
use smoltcp::wire::TcpControl;

use super::testing::Opened;
use super::{Conn, State};
use crate::config::StackConfig;
use crate::wire::inbound::{Ecn, Options, Segment};
use crate::wire::seq::testing::{HALF, alike, at, near, start};
use crate::wire::seq::{Seq, from_raw};

/// Size of the sequence number space.
const SPACE: usize = 1 << 32;
/// Distances over which a connection proceeds without unusual events. At each one, state remembered
/// from before lies in its future, or looks like the present.
const DISTANCES: [usize; 4] = [0, SPACE / 2 + (1 << 24), SPACE - (1 << 24), SPACE + 1];
const MTU: usize = 65_535;
/// Bytes of the pieces of unusual events.
const SMALL: usize = 100;
/// Window field of the peer's full window, and of ours.
const WINDOW: u16 = u16::MAX;
/// A round trip.
const ROUND: Duration = Duration::from_micros(100);

/// A connection whose bulk data goes one way.
struct Long {
    host: Opened,
    /// Bytes that the peer has sent, including its SYN.
    sent: usize,
}

impl Long {
    fn new() -> Self {
        let config = StackConfig {
            ecn: true,
            ..StackConfig::default()
        };
        let host = Opened::between(from_raw(5), from_raw(7), MTU, &config);
        Self { host, sent: 1 }
    }

    fn conn(&mut self) -> &mut Conn {
        &mut self.host.conn
    }

    /// The peer's next segment, without data.
    fn plain(&self) -> Segment {
        Segment {
            window: WINDOW,
            ..self.host.segment(self.sent)
        }
    }

    /// Processes a segment one round trip after the last one, and answers it.
    fn deliver(&mut self, segment: &Segment) {
        self.host.now = self.host.now + ROUND;
        self.host.answer(segment);
        self.host.turn();
    }

    /// Processes a segment with SACK blocks one round trip after the last one, and answers it.
    fn deliver_sack(&mut self, ack: Seq, first: (Seq, Seq)) {
        let plain = self.plain();
        let options = Options {
            sack: [Some(first), None, None],
            ..self.host.options()
        };
        self.deliver(&Segment {
            ack: Some(ack),
            options,
            ..plain
        });
    }

    fn write_small(&mut self) {
        let Opened {
            conn, device, now, ..
        } = &mut self.host;
        let mut frame = device.data_frame(conn.frames_taken()).unwrap();
        conn.room_in(&mut frame, SMALL).unwrap().fill(7);
        conn.commit(frame, SMALL, None, device, *now);
        self.host.turn();
    }

    /// Sends a flight of full segments, which the peer acknowledges. Returns its bytes.
    fn send_flight(&mut self) -> usize {
        let now = self.host.now;
        let conn = self.conn();
        let (una, len) = (conn.send.una(), conn.emss());
        while conn.can_write(len, now) {
            let begin = conn.send.end();
            conn.track(begin, len, Conn::DATA, None, now);
        }
        let sent = conn.send.nxt().offset(una);
        self.deliver(&self.plain());
        assert!(sent >= len && self.conn().unacked() == 0);
        sent
    }

    /// Receives `len` bytes from the peer, `ahead` of the expected ones.
    fn receive(&mut self, ahead: usize, len: usize) {
        let segment = Segment {
            payload: 54..54 + len,
            control: Conn::DATA,
            ..self.plain()
        };
        self.deliver(&Segment {
            seq: segment.seq + ahead,
            ..segment
        });
    }

    fn read(&mut self) -> usize {
        let len = self.conn().readable_len();
        let Opened { conn, device, .. } = &mut self.host;
        conn.consume(len, device);
        self.sent += len;
        self.host.turn();
        len
    }

    fn retransmissions(&self) -> u64 {
        self.host.device.counters().retransmissions
    }

    /// Loses a piece, which is found lost at once as no reordering was seen, and repairs it.
    /// `needless`: the peer reports it as a duplicate.
    fn lose_one(&mut self, needless: bool) {
        let (una, repeated) = (self.conn().send.una(), self.retransmissions());
        let undone = self.host.device.counters().undone;
        (0..5).for_each(|_| self.write_small());
        self.deliver_sack(una, (una + SMALL, una + 5 * SMALL));
        assert_eq!(self.retransmissions(), repeated + 1);
        assert!(self.conn().recovery.is_repairing());
        self.deliver(&self.plain());
        assert!(self.conn().recovery.is_open() && self.conn().unacked() == 0);
        if needless {
            let all = self.conn().send.nxt();
            self.deliver_sack(all, (una, una + SMALL));
        }
        let undoes = self.host.device.counters().undone - undone;
        assert_eq!(undoes, u64::from(needless));
    }

    /// Receives a report of a duplicate that concerns no piece repaired long ago.
    fn report_duplicate(&mut self) {
        let counters = *self.host.device.counters();
        let all = self.conn().send.nxt();
        self.deliver_sack(all, (all - SMALL, all));
        let now = self.host.device.counters();
        assert_eq!(now.duplicates_reported, counters.duplicates_reported + 1);
        assert_eq!(now.undone, counters.undone);
    }

    /// Retransmits the last piece needlessly, as no acknowledgment has arrived.
    fn probe_tail(&mut self) {
        let (begin, probes) = (self.conn().send.nxt(), self.tail_probes());
        self.write_small();
        let Opened {
            conn, device, now, ..
        } = &mut self.host;
        *now = conn.deadline(*now).unwrap();
        conn.on_timer(device, *now);
        self.host.turn();
        assert_eq!(self.tail_probes(), probes + 1);
        let (window, all) = (self.conn().window(), self.conn().send.nxt());
        self.deliver_sack(all, (begin, all));
        assert!(!self.conn().recovery.is_probing() && self.conn().window() >= window);
    }

    fn tail_probes(&self) -> u64 {
        self.host.device.counters().tail_probes
    }

    /// Answers congestion, once per flight.
    fn meet_congestion(&mut self) {
        let first = self.conn().send.nxt() + SMALL;
        (0..2).for_each(|_| self.write_small());
        for (ack, answers) in [(first, 1), (first + SMALL, 0)] {
            let before = self.host.device.counters().congestion_answered;
            let ecn = Ecn {
                ece: true,
                ..Ecn::default()
            };
            let plain = self.plain();
            self.deliver(&Segment {
                ack: Some(ack),
                ecn,
                ..plain
            });
            let now = self.host.device.counters().congestion_answered;
            assert_eq!(now - before, answers);
        }
    }

    /// Closes and opens the peer's window.
    fn change_window(&mut self) {
        let shift = self.conn().negotiation.agreed().peer_shift;
        for window in [0, 1, WINDOW] {
            let plain = self.plain();
            self.deliver(&Segment { window, ..plain });
            assert_eq!(self.conn().send.room(), usize::from(window) << shift);
        }
    }

    /// Receives bytes out of order, and acknowledges them.
    fn reorder(&mut self) {
        let before = self.host.device.counters().out_of_order;
        let next = self.conn().receive.next();
        self.receive(SMALL, SMALL);
        assert_eq!(self.host.device.counters().out_of_order, before + 1);
        self.receive(0, SMALL);
        assert_eq!(self.read(), 2 * SMALL);
        assert_eq!(self.conn().receive.acked(), next + 2 * SMALL);
        assert_eq!(self.host.conn.receive.sack_blocks(), [None; 3]);
    }

    /// Exercises all state that a connection remembers.
    fn have_it_all(&mut self) {
        self.report_duplicate();
        self.change_window();
        self.lose_one(true);
        self.lose_one(false);
        self.probe_tail();
        self.meet_congestion();
        self.reorder();
    }
}

#[test]
#[cfg_attr(miri, ignore = "carries gigabytes")]
fn sender_goes_on_beyond_all_sequence_numbers() {
    let mut long = Long::new();
    for distance in DISTANCES {
        let mut sent = 0;
        while sent < distance {
            sent += long.send_flight();
        }
        long.have_it_all();
    }
}

#[test]
#[cfg_attr(miri, ignore = "carries gigabytes")]
fn receiver_goes_on_beyond_all_sequence_numbers() {
    let mut long = Long::new();
    for distance in DISTANCES {
        let mut received = 0;
        while received < distance {
            let len = long.conn().emss();
            long.receive(0, len);
            assert_eq!(long.read(), len);
            received += len;
        }
        long.have_it_all();
    }
    let plain = long.plain();
    long.deliver(&Segment {
        control: TcpControl::Fin,
        ..plain
    });
    assert_eq!(long.conn().state(), State::CloseWait);
}

/// A connection in TIME-WAIT, and the peer's next number.
fn in_time_wait(irs: i64) -> (Opened, i64) {
    let mut host = Opened::between(at(irs), at(irs), 1500, &StackConfig::default());
    host.conn.close(host.now);
    host.turn();
    host.answer(&Segment {
        control: TcpControl::Fin,
        ..host.segment(1)
    });
    assert_eq!(host.conn.state(), State::TimeWait);
    (host, irs + 2)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    /// RFC 9293 §3.6.1 and RFC 6191 §2: by the timestamp if there is another one, otherwise by the
    /// sequence number.
    #[test]
    fn next_connection_is_one_with_a_higher_number(
        irs in start(),
        from_next in near(vec![0]),
        from_recent in prop::option::of(near(vec![0])),
    ) {
        let (host, next) = in_time_wait(irs);
        let recent = i64::from(host.conn.stamps.recent());
        let stamp = |place| crate::wire::seq::raw(at(place));
        let syn = Segment {
            control: TcpControl::Syn,
            seq: at(next + from_next),
            ack: None,
            options: Options {
                timestamp: from_recent.map(|from| (stamp(recent + from), 0)),
                ..Options::default()
            },
            ..host.segment(0)
        };
        let higher = |place, base| alike(place).any(|place| place > base && place < base + HALF);
        let succeeds = match from_recent.filter(|from| stamp(recent + from) != stamp(recent)) {
            Some(from) => !higher(recent, recent + from),
            None => higher(next + from_next, next),
        };
        prop_assert_eq!(host.conn.is_succeeded_by(&syn, host.now), succeeds);
    }

    /// RFC 7323 §5.3, R1: old segments that carry something are counted.
    #[test]
    fn bytes_with_an_old_timestamp_are_counted_if_they_are_to_come(irs in start(), from_next in near(vec![0, -100])) {
        let mut host = Opened::between(at(irs), at(irs), 1500, &StackConfig::default());
        let (next, place) = (irs + 1, irs + 1 + from_next);
        let segment = Segment {
            seq: at(place),
            payload: 54..154,
            options: Options { timestamp: Some((0, 0)), ..Options::default() },
            ..host.segment(0)
        };
        host.answer(&segment);
        let news = alike(place + 100).any(|end| end > next && end < next + HALF);
        prop_assert_eq!(host.device.counters().drop_old_timestamp, u64::from(news));
        prop_assert_eq!(host.conn.receive.next(), at(next));
    }

    /// Data that waits for the peer's window leaves when it has room, and is cut if it never has,
    /// wherever the numbers wrap.
    #[test]
    fn piece_leaves_if_it_ends_in_the_window(iss in start(), window in 1..1448_u16, len in 1..1448_usize) {
        let config = StackConfig { buffer: Some(65_535), ..StackConfig::default() };
        let mut host = Opened::between(at(iss), at(iss), 1500, &config);
        host.answer(&Segment { window, ..host.segment(1) });
        let room = usize::from(window);
        host.conn.enqueue_bytes(&vec![7; len], &mut host.device, host.now);
        host.turn();
        let una = at(iss + 1);
        prop_assert_eq!(host.conn.send.nxt(), if len <= room { una + len } else { una });
        prop_assert_eq!(host.conn.cut_at_edge(&mut host.device), len > room);
        host.turn();
        prop_assert_eq!(host.conn.send.nxt(), una + len.min(room));
    }
}

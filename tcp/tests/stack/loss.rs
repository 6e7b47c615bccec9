//! Loss, repetition and reordering on the cable.

use std::time::Duration;

use xwarp_test_kit::{Side, pattern_of};

use crate::net::{BUDGET, Fate, Net};

/// Bytes to carry: enough for each fate to concern several segments.
const BYTES: usize = if cfg!(miri) { 20_000 } else { 300_000 };

fn survives(judge: impl FnMut(Side, &mut Vec<u8>) -> Fate + 'static) -> Net {
    let mut net = Net::new();
    let pair = net.connect(false);
    net.judge(judge);
    let data = pattern_of(8, BYTES);
    let mut len = 700;
    let received = net.transfer(pair, &data, || {
        len = (len * 31 + 7) % 1460 + 1;
        len
    });
    assert!(received == data, "the bytes differ");
    assert_eq!(net.b.conn(pair.1).readable_len(), 0);
    net
}

#[test]
fn every_kth_frame_may_be_lost() {
    // If every second frame were lost, each retransmission or its ACK would be.
    for k in [3, 7, 50] {
        let mut count = 0;
        let net = survives(move |_, _| {
            count += 1;
            if count % k == 0 {
                Fate::Lose
            } else {
                Fate::Pass
            }
        });
        assert!(net.a.stack.counters().retransmissions > 0, "one in {k}");
    }
}

#[test]
fn acknowledgments_may_be_lost() {
    let mut count = 0;
    survives(move |from, _| {
        count += 1;
        let lost = from == Side::B && count % 3 != 0;
        if lost { Fate::Lose } else { Fate::Pass }
    });
}

#[test]
fn frames_may_come_twice() {
    let net = survives(|_, _| Fate::Repeat);
    assert_eq!(net.a.stack.counters().retransmissions, 0);
}

#[test]
fn frames_may_overtake_each_other() {
    let mut count = 0;
    survives(move |_, _| {
        count += 1;
        if count % 5 == 0 {
            Fate::Delay
        } else {
            Fate::Pass
        }
    });
}

#[test]
fn everything_at_once() {
    for seed in 1..6_u32 {
        let mut state = seed;
        survives(move |_, _| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match state >> 28 {
                0 | 1 => Fate::Lose,
                2 | 3 => Fate::Repeat,
                4..=6 => Fate::Delay,
                _ => Fate::Pass,
            }
        });
    }
}

#[test]
fn corrupted_frames_are_dropped_counted_and_sent_again() {
    let mut count = 0;
    let net = survives(move |from, frame| {
        count += 1;
        if from == Side::A && count % 9 == 0 {
            let at = 14 + count % (frame.len() - 14);
            frame[at] ^= 0x10;
        }
        Fate::Pass
    });
    let counters = net.b.stack.counters();
    assert!(counters.drop_bad_checksum > 0);
    assert_eq!(counters.drop_beyond_window, 0);
    assert!(net.a.stack.counters().retransmissions > 0);
}

/// A host that did not run for a while finds more frames than one turn receives, and the timer of
/// the data that they acknowledge has expired.
#[test]
fn what_has_arrived_is_heard_before_timers_are() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    net.a.write(a, b"acknowledged in time", net.now);
    net.a.step(net.now);
    let [question] = &net.a.sent()[..] else {
        panic!("one segment was written");
    };
    net.b.wire.deliver(question.clone());
    net.b.step(net.now);
    let answers = net.b.sent();
    let late = net.now + Duration::from_secs(2);
    let no_ip_packet = [&Side::A.mac()[..], &[0; 8]].concat();
    (0..5 * BUDGET).for_each(|_| net.a.wire.deliver(no_ip_packet.clone()));
    for answer in answers {
        net.a.wire.deliver(answer);
    }
    while net.a.step(late) > 0 {}
    let counters = net.a.stack.counters();
    assert_eq!(counters.drop_not_ip, 5 * BUDGET as u64);
    assert_eq!((net.a.conn(a).unacked(), counters.retransmissions), (0, 0));
}

#[test]
fn flood_does_not_stop_the_timers() {
    let mut net = Net::new();
    let (a, _) = net.connect(false);
    net.a.write(a, b"lost", net.now);
    net.a.step(net.now);
    net.a.sent();
    let late = net.now + Duration::from_secs(2);
    for _ in 0..64 {
        assert_eq!(net.a.stack.counters().retransmissions, 0);
        (0..BUDGET).for_each(|_| net.a.wire.deliver(vec![0; 14]));
        net.a.step(late);
    }
    assert_eq!(net.a.stack.counters().retransmissions, 1);
}

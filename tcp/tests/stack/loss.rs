//! A cable that does not carry everything as it was sent.

use crate::net::{Fate, From, Net, pattern};

fn survives(judge: impl FnMut(From, &mut Vec<u8>) -> Fate + 'static) -> Net {
    let mut net = Net::new();
    let pair = net.connect(false);
    net.judge(judge);
    let data = pattern(300_000, 8);
    let mut len = 700;
    let received = net.transfer(pair, &data, || {
        len = (len * 31 + 7) % 1460 + 1;
        len
    });
    assert!(received == data, "the octets differ");
    assert_eq!(net.b.stack.readable_len(pair.1), 0);
    net
}

#[test]
fn every_kth_frame_may_be_lost() {
    // Of every second frame, each repetition or its ACK would be lost.
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
        let lost = from == From::B && count % 3 != 0;
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
        if from == From::A && count % 9 == 0 {
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

//! Start-up frames that are damaged or lost.

use super::{
    A, C, CRC, ENHANCED, Initiating, Responding, connected, exchange, info, pair, peer_to_peer,
    up_to,
};
use std::time::Duration;
use xwarp::cm::{MpaConfig, Revision, Rtr, RtrTypes};
use xwarp::error::ConnectError;
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::Done;
use xwarp_sim_tests::wire::{enhanced, reply, request};
use xwarp_tcp::CloseReason;
use xwarp_test_kit::netsim::Direction;

/// Bytes of the key.
const KEY: usize = 16;

/// A frame with each of its bits flipped in turn, and which byte that bit is in.
fn damaged(frame: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (0..8 * frame.len()).map(|bit| {
        let mut damaged = frame.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        (bit / 8, damaged)
    })
}

#[test]
fn request_with_any_bit_flipped_is_asked_dropped_or_waited_for() {
    let data = [&enhanced(A | 4, C | 4)[..], b"data"].concat();
    for (at, frame) in damaged(&request(CRC | ENHANCED, 2, &data)) {
        let mut responding = Responding::new(MpaConfig::default())
            .expecting(&["drop_startup", "drop_startup_timeout"]);
        responding.peer.send(&frame);
        responding.sim.run_for(Duration::from_secs(11));
        let asked = responding.listener.try_accept().unwrap();
        let dropped = responding.peer.ended() == Some(CloseReason::Reset);
        assert!(asked.is_some() != dropped, "byte {at}: one of the two");
        if at < KEY {
            assert!(dropped, "byte {at} of the key");
        }
        let Some(asked) = asked else { continue };
        let mut end = responding.sim.a().end(&QpConfig::default());
        asked.accept(&mut end.qp, b"").unwrap();
        assert_eq!(end.state(), QpState::Rts, "byte {at}");
        assert!(info(&end).ird <= 32 && info(&end).ord <= 32, "byte {at}");
    }
}

#[test]
fn reply_with_any_bit_flipped_connects_or_leaves_the_queue_pair_idle() {
    let data = [&enhanced(A | 4, C | 4)[..], b"data"].concat();
    for (at, frame) in damaged(&reply(CRC | ENHANCED, 2, &data)) {
        let config = peer_to_peer(RtrTypes::ALL);
        let initiating = Initiating::new(MpaConfig::default(), &config);
        let mut initiating = initiating.expecting(&[
            "drop_startup",
            "drop_after_failure",
            "drop_bad_fpdu", // what a shorter PD_Length leaves over
        ]);
        let outcome = initiating.answered(&frame);
        if at < KEY {
            assert!(
                matches!(outcome, Err(ConnectError::NotIwarp { .. })),
                "byte {at}: {outcome:?}"
            );
        }
        match (outcome, initiating.end.state()) {
            (Ok(_), QpState::Rts | QpState::Terminate) | (Err(_), QpState::Idle) => {}
            (outcome, state) => panic!("byte {at}: {outcome:?} and {state:?}"),
        }
    }
}

#[test]
fn fallback_is_made_whichever_frame_of_it_is_lost_but_the_reset() {
    // After SYN and ACK the responder's RST upon revision 2, which TCP does not repeat: without it
    // there is nothing to act upon.
    const RESET: (Direction, u64) = (Direction::BToA, 3);
    for direction in Direction::ALL {
        for n in (1..=8).filter(|n| (direction, *n) != RESET) {
            let mut sim = pair(up_to(Revision::Two), up_to(Revision::One))
                .expecting(&["drop_startup", "drop_no_flow"]);
            sim.link().lane(direction).drop_nth(n);
            let default = QpConfig::default();
            let (mut a, mut b) = connected(&mut sim, &default, &default);
            assert_eq!(info(&a).revision, 1, "without frame {n} of {direction:?}");
            exchange(&mut sim, &mut a, &mut b);
        }
    }
}

#[test]
fn rtr_arrives_whichever_frame_of_the_start_is_lost() {
    for rtr in [Rtr::Send, Rtr::Write, Rtr::Read] {
        for direction in Direction::ALL {
            for n in 1..=5 {
                let mut sim = pair(MpaConfig::default(), MpaConfig::default());
                sim.link().lane(direction).drop_nth(n);
                let config = peer_to_peer(RtrTypes::only(rtr));
                let (mut a, mut b) = connected(&mut sim, &config, &QpConfig::default());
                a.post_recv(1, 10);
                b.post_send(2, b"first");
                sim.run_until_idle();
                assert_eq!(a.receives(), [Done::receive(1, 5)]);
                assert_eq!(b.sends(), [Done::send(2, 5)]);
                exchange(&mut sim, &mut a, &mut b);
            }
        }
    }
}

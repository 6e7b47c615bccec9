//! Random bytes, at random places: no panic, no byte outside of what the peer may write, and always an end.

use std::time::Duration;

use xwarp::{Access, MemoryRegion, QpConfig, QpState, Stag};
use xwarp_netsim::{Rng, Seed};
use xwarp_sim_tests::wire::{Tagged, Untagged, atomic_request, fpdu, read_request};
use xwarp_sim_tests::{KIB, for_each_seed};

use super::Victim;

const ANY: &[&str] = &[
    "drop_bad_fpdu",
    "drop_refused_segment",
    "drop_after_failure",
    "drop_startup",
    "drop_no_flow",
];
/// Bytes of noise.
const NOISE: usize = 10_000;

fn victim(seed: Seed) -> Victim {
    let victim = Victim::fenced(seed, &QpConfig::default()).expecting(ANY);
    victim.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
    victim
}

#[test]
fn random_bytes_instead_of_fpdus_end_the_connection() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 300);
        let mut victim = victim(seed);
        victim.end.post_recv(1, 100);
        let target = victim.end.target(100);
        victim
            .peer
            .send_pieces(&rng.bytes(NOISE), 1 + rng.index(1460));
        // What looks like the begin of a long FPDU is waited for.
        victim.sim.run_for(Duration::from_secs(1));
        victim.peer.close();
        victim.sim.run_until_idle();
        assert_eq!(victim.end.state(), QpState::Error);
        assert_eq!(target.to_vec(), [0; 100]);
        assert_eq!(victim.end.buffer(1), [0; 100]);
    });
}

#[test]
fn random_bytes_instead_of_a_request_end_the_connection() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 301);
        let (sim, peer) = xwarp_sim_tests::Sim::with_plain_peer(seed);
        let mut sim = sim.expecting(&["drop_startup", "drop_no_flow"]);
        let at = sim.a().at(sim.new_port());
        let mut listener = sim.a().rnic().listen(at).unwrap();
        peer.connect(at);
        peer.send_pieces(&rng.bytes(NOISE), 1 + rng.index(1460));
        sim.run_until("the end", || peer.ended().is_some());
        assert!(listener.try_accept().unwrap().is_none());
    });
}

/// A valid FPDU around header fields that are random, but near what is right.
fn nearly_right(rng: &mut Rng, target: &MemoryRegion, msn: u32) -> Vec<u8> {
    let near = |rng: &mut Rng, right: u64| match rng.below(8) {
        0 => rng.draw(),
        1 => right.wrapping_add(rng.below(3)).wrapping_sub(1),
        _ => right,
    };
    let byte = |rng: &mut Rng, right: u8| match rng.below(12) {
        0 => right ^ (1 << rng.below(8)),
        _ => right,
    };
    let word = |rng: &mut Rng, right: u32| near(rng, u64::from(right)).to_le_bytes();
    let word =
        |rng: &mut Rng, right: u32| u32::from_le_bytes(*word(rng, right).first_chunk().unwrap());
    let place = target.remote(0);
    let len = rng.index(300);
    let payload = rng.bytes(len);
    match rng.below(6) {
        0 => {
            let header = Untagged {
                control: byte(rng, 0x41),
                rdmap: byte(rng, 0x43),
                msn: word(rng, msn),
                qn: word(rng, 0),
                mo: word(rng, 0),
                stag: 0,
            };
            header.fpdu(&payload)
        }
        1 => {
            let stag = Stag(word(rng, place.stag.0));
            let request = read_request(
                Stag(7),
                rng.draw(),
                word(rng, 64),
                stag,
                near(rng, place.to),
            );
            let header = Untagged {
                msn: word(rng, msn),
                ..Untagged::read_request()
            };
            header.fpdu(&request)
        }
        2 => {
            let header = Tagged {
                control: byte(rng, 0xc1),
                rdmap: byte(rng, 0x40),
                stag: Stag(word(rng, place.stag.0)),
                to: near(rng, place.to),
            };
            header.fpdu(&payload)
        }
        3 => {
            let (swaps, number) = (rng.below(2) == 0, rng.below(37));
            let operation = word(rng, if swaps { 2 } else { 0 });
            let stag = Stag(word(rng, place.stag.0));
            let to = near(rng, place.to + 8 * number);
            let request = atomic_request(operation, word(rng, msn), stag, to, rng.draw());
            let header = Untagged {
                control: byte(rng, 0x41),
                rdmap: byte(rng, 0x4a),
                msn: word(rng, msn),
                ..Untagged::read_request()
            };
            header.fpdu(&request)
        }
        4 => {
            let header = Untagged {
                control: byte(rng, 0x41),
                rdmap: byte(rng, 0x48),
                msn: word(rng, msn),
                ..Untagged::default()
            };
            header.fpdu(payload.get(..8).unwrap_or(&payload))
        }
        _ => fpdu(&payload),
    }
}

#[test]
fn valid_fpdus_with_random_headers_touch_nothing_but_the_target() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 302);
        let mut victim = victim(seed);
        // Neighbours in the region area, and the one between them that the peer may touch.
        let before = victim.end.target(KIB);
        let target = victim.end.region(300, Access::all());
        let after = victim.end.target(KIB);
        for i in 0..50 {
            victim.end.post_recv(i, 300);
        }
        for msn in 1..=50 {
            let fpdu = nearly_right(&mut rng, &target, msn);
            victim.peer.send(&fpdu);
        }
        victim.sim.run_for(Duration::from_secs(1));
        victim.peer.close();
        victim.sim.run_until_idle();
        assert_eq!(before.to_vec(), [0; KIB]);
        assert_eq!(after.to_vec(), [0; KIB]);
        let state = victim.end.state();
        assert!(matches!(state, QpState::Error | QpState::Idle), "{state:?}");
    });
}

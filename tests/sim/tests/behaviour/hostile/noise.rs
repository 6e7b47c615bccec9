//! Random bytes, at random places: no panic, no byte outside of what the peer may write, and always
//! an end.

use std::time::Duration;

use xwarp::{Access, QpConfig, QpState, RemoteAddress, Stag};
use xwarp_sim_tests::wire::{Tagged, Untagged, atomic_request, fpdu, read_request};
use xwarp_sim_tests::{KIB, for_each_seed};
use xwarp_test_kit::netsim::{Rng, Seed};

use super::Dut;

const ANY: &[&str] = &[
    "drop_bad_fpdu",
    "drop_refused_segment",
    "drop_after_failure",
    "drop_startup",
    "drop_no_flow",
];
/// Bytes of noise.
const NOISE: usize = 10_000;

fn dut(seed: Seed) -> Dut {
    let dut = Dut::fenced(seed, &QpConfig::default()).expecting(ANY);
    dut.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
    dut
}

#[test]
fn random_bytes_instead_of_fpdus_end_the_connection() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 300);
        let mut dut = dut(seed);
        dut.end.post_recv(1, 100);
        let target = dut.end.target(100);
        dut.peer.send_pieces(&rng.bytes(NOISE), 1 + rng.index(1460));
        // What looks like the begin of a long FPDU is waited for.
        dut.sim.run_for(Duration::from_secs(1));
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(dut.end.state(), QpState::Error);
        assert_eq!(target.to_vec(), [0; 100]);
        assert_eq!(dut.end.buffer(1), [0; 100]);
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

/// Source of valid FPDUs whose header fields are random, but near what is right.
struct Headers<'a> {
    rng: &'a mut Rng,
    /// The memory that the peer may touch.
    place: RemoteAddress,
    msn: u32,
}

impl Headers<'_> {
    fn near(&mut self, right: u64) -> u64 {
        match self.rng.below(8) {
            0 => self.rng.draw(),
            1 => right.wrapping_add(self.rng.below(3)).wrapping_sub(1),
            _ => right,
        }
    }

    fn byte(&mut self, right: u8) -> u8 {
        match self.rng.below(12) {
            0 => right ^ (1 << self.rng.below(8)),
            _ => right,
        }
    }

    fn word(&mut self, right: u32) -> u32 {
        let near = self.near(u64::from(right)).to_le_bytes();
        u32::from_le_bytes(*near.first_chunk().unwrap())
    }

    fn stag(&mut self) -> Stag {
        Stag(self.word(self.place.stag.0))
    }

    fn fpdu(&mut self) -> Vec<u8> {
        let len = self.rng.index(300);
        let payload = self.rng.bytes(len);
        match self.rng.below(6) {
            0 => self.send(&payload),
            1 => self.read_request(),
            2 => self.write(&payload),
            3 => self.atomic_request(),
            4 => self.immediate_data(payload.get(..8).unwrap_or(&payload)),
            _ => fpdu(&payload),
        }
    }

    fn send(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = Untagged {
            control: self.byte(0x41),
            rdmap: self.byte(0x43),
            msn: self.word(self.msn),
            qn: self.word(0),
            mo: self.word(0),
            stag: 0,
        };
        header.fpdu(payload)
    }

    fn read_request(&mut self) -> Vec<u8> {
        let stag = self.stag();
        let (sink_to, len) = (self.rng.draw(), self.word(64));
        let request = read_request(Stag(7), sink_to, len, stag, self.near(self.place.to));
        let header = Untagged {
            msn: self.word(self.msn),
            ..Untagged::read_request()
        };
        header.fpdu(&request)
    }

    fn write(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = Tagged {
            control: self.byte(0xc1),
            rdmap: self.byte(0x40),
            stag: self.stag(),
            to: self.near(self.place.to),
        };
        header.fpdu(payload)
    }

    fn atomic_request(&mut self) -> Vec<u8> {
        let (swaps, number) = (self.rng.below(2) == 0, self.rng.below(37));
        let operation = self.word(if swaps { 2 } else { 0 });
        let (stag, to) = (self.stag(), self.near(self.place.to + 8 * number));
        let id = self.word(self.msn);
        let request = atomic_request(operation, id, stag, to, self.rng.draw());
        let header = Untagged {
            control: self.byte(0x41),
            rdmap: self.byte(0x4a),
            msn: self.word(self.msn),
            ..Untagged::read_request()
        };
        header.fpdu(&request)
    }

    fn immediate_data(&mut self, payload: &[u8]) -> Vec<u8> {
        let header = Untagged {
            control: self.byte(0x41),
            rdmap: self.byte(0x48),
            msn: self.word(self.msn),
            ..Untagged::default()
        };
        header.fpdu(payload)
    }
}

#[test]
fn valid_fpdus_with_random_headers_touch_nothing_but_the_target() {
    for_each_seed(|seed| {
        let mut rng = Rng::new(seed, 302);
        let mut dut = dut(seed);
        // Neighbours in the region area, and the one between them that the peer may touch.
        let before = dut.end.target(KIB);
        let target = dut.end.region(300, Access::all());
        let after = dut.end.target(KIB);
        for i in 0..50 {
            dut.end.post_recv(i, 300);
        }
        for msn in 1..=50 {
            let mut headers = Headers {
                rng: &mut rng,
                place: target.remote(0),
                msn,
            };
            let fpdu = headers.fpdu();
            dut.peer.send(&fpdu);
        }
        dut.sim.run_for(Duration::from_secs(1));
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_eq!(before.to_vec(), [0; KIB]);
        assert_eq!(after.to_vec(), [0; KIB]);
        let state = dut.end.state();
        assert!(matches!(state, QpState::Error | QpState::Idle), "{state:?}");
    });
}

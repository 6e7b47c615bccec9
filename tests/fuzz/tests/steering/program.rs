//! The XDP program, run by the kernel on single frames.

use std::net::IpAddr;

use libbpf_rs::ProgramInput;
use xwarp_bpf::{Buffers, Maps, Steering, Verdict};

use crate::frames::{OURS_V4, OURS_V6, PORT};

pub(crate) struct Program {
    steering: Steering,
    maps: Maps,
}

impl Program {
    /// With a flow of each version of IP, and no socket.
    pub(crate) fn load() -> Self {
        let loaded = Steering::load(Buffers::One);
        let steering = loaded.unwrap_or_else(|error| panic!("this test runs as root: {error}"));
        let maps = steering.maps().expect("maps of its own");
        for address in [IpAddr::from(OURS_V4), IpAddr::from(OURS_V6)] {
            maps.flows.insert(address, PORT, 0).expect("room");
        }
        Self { steering, maps }
    }

    /// The one counter that moves.
    pub(crate) fn judge(&self, frame: &[u8]) -> Verdict {
        let before = self.maps.verdicts.counters().expect("our own map");
        let input = ProgramInput {
            data_in: Some(frame),
            ..ProgramInput::default()
        };
        let program = self.steering.program().expect("it is loaded");
        program
            .test_run(input)
            .expect("a frame of 14 bytes or more");
        let after = self.maps.verdicts.counters().expect("our own map");
        let moved: Vec<_> = after
            .since(&before)
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        let [(verdict, 1)] = moved[..] else {
            panic!("one counter moves by one, not {moved:?}: {frame:02x?}");
        };
        verdict
    }
}

//! The loaded program with two flows of ours, and a way to run it on a frame.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::ProgramInput;
use nix::libc;
use socket2::{Domain, Socket, Type};
use xwarp_bpf::{Buffers, Maps, Steering, Verdict};

use crate::frames::{ETHERNET_LEN, PORT, V4, V6};

/// `XDP_DROP`, `XDP_PASS` and `XDP_REDIRECT` of <linux/bpf.h>.
pub(crate) const DROP: u32 = 1;
pub(crate) const PASS: u32 = 2;
pub(crate) const REDIRECT: u32 = 4;

pub(crate) struct Kernel {
    steering: Steering,
    pub(crate) maps: Maps,
    /// Open as long as slot 0 shall be full.
    pub(crate) socket: Option<OwnedFd>,
}

impl Kernel {
    /// Nothing is ours yet.
    pub(crate) fn empty() -> Self {
        Self::load(Buffers::One)
    }

    fn load(buffers: Buffers) -> Self {
        let loaded = Steering::load(buffers);
        let steering = loaded.unwrap_or_else(|error| panic!("these tests run as root: {error}"));
        let maps = steering.maps().unwrap();
        Self {
            steering,
            maps,
            socket: None,
        }
    }

    /// One flow of each IP version is ours, and queue 0 has a socket.
    pub(crate) fn with_flows_and_socket() -> Self {
        Self::steering(Buffers::One)
    }

    /// The same with each of the two programs.
    pub(crate) fn both() -> [Self; 2] {
        [Buffers::One, Buffers::Many].map(Self::steering)
    }

    /// The same with the program for such frames.
    pub(crate) fn steering(buffers: Buffers) -> Self {
        let mut kernel = Self::load(buffers);
        kernel.maps.flows.insert(IpAddr::from(V4), PORT, 0).unwrap();
        kernel.maps.flows.insert(IpAddr::from(V6), PORT, 0).unwrap();
        let socket = af_xdp_socket();
        kernel.maps.sockets.set(0, socket.as_fd()).unwrap();
        kernel.socket = Some(socket);
        kernel
    }

    /// What the program returns for a frame on queue 0, and the one counter that moved, by one.
    pub(crate) fn run(&self, frame: &[u8]) -> (u32, Verdict) {
        assert!(
            frame.len() >= ETHERNET_LEN,
            "the kernel runs no shorter frame"
        );
        let before = self.maps.verdicts.counters().unwrap();
        let input = ProgramInput {
            data_in: Some(frame),
            ..ProgramInput::default()
        };
        let output = self.steering.program().unwrap().test_run(input).unwrap();
        let moved = self.maps.verdicts.counters().unwrap().since(&before);
        let moved: Vec<_> = moved.iter().filter(|(_, count)| *count > 0).collect();
        let [(verdict, 1)] = moved[..] else {
            panic!("one counter should have moved by one, not {moved:?}: {frame:02x?}");
        };
        (output.return_value, verdict)
    }

    /// The id that the kernel gave the program.
    pub(crate) fn program_id(&self) -> u32 {
        let program = self.steering.program().unwrap();
        libbpf_rs::Program::id_from_fd(program.as_fd()).unwrap()
    }
}

/// Not bound: a slot takes it all the same, and the test run delivers nothing.
pub(crate) fn af_xdp_socket() -> OwnedFd {
    let socket = Socket::new(Domain::from(libc::AF_XDP), Type::from(libc::SOCK_RAW), None);
    socket.expect("socket(AF_XDP)").into()
}

//! Hostile peer: it speaks MPA and then breaks the rules. The RNIC reacts as RFC 5040 to 5044 say,
//! and in no other way.

mod crc;
mod endings;
mod malformed;
mod noise;
mod streams;
mod tcp_segments;

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::{QpConfig, QpState, Stag};
use xwarp_sim_tests::wire::{REPLY, REQUEST, Tagged, terminate};
use xwarp_sim_tests::{PlainPeer, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

/// Device under test: an RNIC at A. A plain peer is connected to it and has begun to speak iWARP.
pub(crate) struct Dut {
    pub(crate) sim: Sim,
    pub(crate) end: SimEnd,
    pub(crate) peer: PlainPeer,
}

impl Dut {
    /// The peer has not sent an FPDU yet.
    pub(crate) fn fenced(seed: Seed, config: &QpConfig) -> Self {
        let (sim, peer) = Sim::with_plain_peer(seed);
        let mut sim = sim.one_way_delay(Duration::from_micros(50));
        let mut end = sim.a().end(config);
        let at = sim.a().at(sim.new_port());
        let mut listener = sim.a().rnic().listen(at).unwrap();
        peer.connect(at);
        peer.send(REQUEST);
        let request = sim.wait_for("the Request", || listener.try_accept().unwrap());
        request.accept(&mut end.qp, b"").unwrap();
        sim.run_until("the Reply", || peer.received() == REPLY);
        Self { sim, end, peer }
    }

    /// The peer has sent an FPDU, an empty Write.
    pub(crate) fn with(config: &QpConfig) -> Self {
        let dut = Self::fenced(Seed(29), config);
        dut.peer.send(&Tagged::write(Stag(1), 0).fpdu(b""));
        dut
    }

    pub(crate) fn new() -> Self {
        Self::with(&QpConfig::default())
    }

    /// The same, with drops of these names expected.
    pub(crate) fn expecting(mut self, drops: &[&'static str]) -> Self {
        self.sim = self.sim.expecting(drops);
        self
    }

    /// What the RNIC has sent after its Reply.
    pub(crate) fn answer(&self) -> Vec<u8> {
        self.peer.received().split_off(REPLY.len())
    }

    /// The peer sends `bytes`; a Terminate of `code` must come back, then a FIN, and nothing may
    /// have been placed. What of the offending segment the Terminate returns.
    pub(crate) fn assert_terminates(
        &mut self,
        what: &str,
        bytes: &[u8],
        code: TermCode,
    ) -> Vec<u8> {
        let before = self.end.host().memory();
        self.peer.send(bytes);
        self.sim.run_until("the RNIC's FIN", || self.peer.saw_fin());
        self.peer.close();
        self.sim.run_until_idle();
        let (answered, captured) = terminate(&self.answer());
        assert_eq!(answered, code, "{what}");
        assert_eq!(self.end.ended_with(), Some(code), "{what}");
        assert_eq!(self.end.state(), QpState::Error, "{what}");
        assert!(
            self.end.host().memory() == before,
            "{what}: memory has changed"
        );
        captured
    }
}

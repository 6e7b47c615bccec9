//! MPA start-up in both revisions and both roles (RFC 5044 §7.1, RFC 6581): what two RNICs settle,
//! and what a peer made by hand gets. "Row n" is a row of wire.md §9.

mod depths;
mod floods;
mod frames;
mod framing;
mod jumbo;
mod noise;
mod nudge;
mod rdmac;
mod revisions;
mod rtr;
mod windows;

use std::time::Duration;

use xwarp::cm::{
    ConnectionInfo, ConnectionRequest, MpaConfig, PeerToPeer, PrivateData, Revision, RtrTypes,
};
use xwarp::error::ConnectError;
use xwarp::{QpConfig, QpState};
use xwarp_sim_tests::wire::terminate;
use xwarp_sim_tests::{Done, PlainPeer, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

/// What a connection may take to be made.
const LIMIT: Duration = Duration::from_secs(5);

/// Flags of a start-up frame.
const MARKERS: u8 = 0x80;
const CRC: u8 = 0x40;
const REJECTED: u8 = 0x20;
const ENHANCED: u8 = 0x10;

/// Flags of the enhanced data, in its first 16 bits: peer-to-peer model, RTR by Send.
const A: u16 = 0x8000;
const B: u16 = 0x4000;
/// In its second 16 bits: RTR by Write, RTR by Read.
const C: u16 = 0x8000;
const D: u16 = 0x4000;
/// The depth that leaves it to the ULP.
const LEFT_TO_ULP: u16 = 0x3fff;

/// A silent peer is not woken, so that all that is sent is what a test posts.
fn without_nudge() -> MpaConfig {
    MpaConfig::default().first_fpdu_retry(None)
}

fn up_to(highest: Revision) -> MpaConfig {
    MpaConfig::default().max_revision(highest)
}

fn with_depths(ird: u16, ord: u16) -> QpConfig {
    QpConfig::default().ird(ird).ord(ord)
}

fn peer_to_peer(rtr: RtrTypes) -> QpConfig {
    QpConfig::default().peer_to_peer(Some(PeerToPeer {
        rtr,
        ..PeerToPeer::default()
    }))
}

fn pair(a: MpaConfig, b: MpaConfig) -> Sim {
    Sim::with_mpa(Seed(41), a, b).one_way_delay(Duration::from_millis(1))
}

/// An end at A of one configuration, connected to one at B of another. Neither end has sent an FPDU
/// of the application's yet.
fn connected(sim: &mut Sim, a: &QpConfig, b: &QpConfig) -> (SimEnd, SimEnd) {
    let (mut a, mut b) = (sim.a().end(a), sim.b().end(b));
    sim.connect_silently(&mut a, &mut b);
    (a, b)
}

fn info(end: &SimEnd) -> ConnectionInfo {
    end.qp.connection().expect("the end is connected")
}

/// A message from A to B, then one back.
fn exchange(sim: &mut Sim, a: &mut SimEnd, b: &mut SimEnd) {
    b.post_recv(1, 10);
    a.post_recv(2, 10);
    a.post_send(3, b"there");
    sim.run_until_idle();
    b.post_send(4, b"and back");
    sim.run_until_idle();
    assert_eq!(b.receives(), [Done::receive(1, 5)]);
    assert_eq!(a.receives(), [Done::receive(2, 8)]);
    assert_eq!(
        (a.sends(), b.sends()),
        (vec![Done::send(3, 5)], vec![Done::send(4, 8)])
    );
}

/// An RNIC at A, the responder, and a plain peer at B that has connected to it.
struct Responding {
    sim: Sim,
    peer: PlainPeer,
    listener: xwarp::Listener,
}

impl Responding {
    fn new(mpa: MpaConfig) -> Self {
        Self::with(Sim::with_mpa_and_plain_peer(Seed(43), mpa))
    }

    fn with((sim, peer): (Sim, PlainPeer)) -> Self {
        let mut sim = sim.one_way_delay(Duration::from_millis(1));
        let at = sim.a().at(sim.new_port());
        let listener = sim.a().rnic().listen(at).unwrap();
        peer.connect(at);
        sim.run_until("TCP", || peer.is_connected());
        Self {
            sim,
            peer,
            listener,
        }
    }

    fn expecting(mut self, drops: &[&'static str]) -> Self {
        self.sim = self.sim.expecting(drops);
        self
    }

    /// What the application sees of the peer's `request`.
    fn asked(&mut self, request: &[u8]) -> ConnectionRequest {
        self.peer.send(request);
        self.sim
            .wait_for("the Request", || self.listener.try_accept().unwrap())
    }

    /// The end that accepts the peer's `request`, and the Reply.
    fn accepted(&mut self, request: &[u8], config: &QpConfig) -> (SimEnd, Vec<u8>) {
        let request = self.asked(request);
        let mut end = self.sim.a().end(config);
        request.accept(&mut end.qp, b"").unwrap();
        self.sim.run_until_idle();
        (end, self.peer.received())
    }

    /// The peer's `request` gets no Reply, but a reset.
    fn assert_dropped(&mut self, request: &[u8]) {
        self.peer.send(request);
        self.sim.run_for(Duration::from_millis(10));
        let ended = self.peer.ended();
        assert_eq!(ended, Some(xwarp_tcp::CloseReason::Reset), "{request:?}");
        assert!(self.peer.received().is_empty(), "{request:?}");
        assert!(self.listener.try_accept().unwrap().is_none(), "{request:?}");
    }
}

/// An RNIC at A, the initiator, and a plain peer at B that has its Request.
struct Initiating {
    sim: Sim,
    peer: PlainPeer,
    end: SimEnd,
    connecting: xwarp::cm::Connecting,
    /// The Request.
    request: Vec<u8>,
}

impl Initiating {
    fn new(mpa: MpaConfig, config: &QpConfig) -> Self {
        Self::from_port(0, mpa, config)
    }

    /// From this port of this side's.
    fn from_port(local: u16, mpa: MpaConfig, config: &QpConfig) -> Self {
        let (sim, peer) = Sim::with_mpa_and_plain_peer(Seed(47), mpa);
        let mut sim = sim.one_way_delay(Duration::from_millis(1));
        let port = sim.new_port();
        peer.listen(port);
        let mut end = sim.a().end(config);
        let at = peer.at(port);
        let from = sim.a().at(local);
        let begun = end.qp.begin_connect_from(from, at, b"", LIMIT);
        let connecting = begun.unwrap();
        sim.run_until("the Request", || peer.received().len() >= 20);
        let request = peer.received();
        Self {
            sim,
            peer,
            end,
            connecting,
            request,
        }
    }

    fn expecting(mut self, drops: &[&'static str]) -> Self {
        self.sim = self.sim.expecting(drops);
        self
    }

    fn outcome(&mut self) -> Result<PrivateData, ConnectError> {
        self.sim
            .wait_for("the outcome", || self.connecting.try_finish())
    }

    /// What comes of the peer's `reply`.
    fn answered(&mut self, reply: &[u8]) -> Result<PrivateData, ConnectError> {
        self.peer.send(reply);
        self.outcome()
    }

    /// What has been sent after the Request.
    fn sent(&self) -> Vec<u8> {
        self.peer.received().split_off(self.request.len())
    }

    /// The peer's `reply` is answered by a Terminate of MPA with this `code` and nothing else, then
    /// a FIN. The queue pair stays Idle.
    fn assert_unacceptable(mut self, reply: &[u8], code: u8) {
        self = self.expecting(&["drop_startup"]);
        let outcome = self.answered(reply);
        assert!(
            matches!(outcome, Err(ConnectError::Unacceptable { .. })),
            "{outcome:?}"
        );
        self.sim.run_until("the FIN", || self.peer.saw_fin());
        self.peer.close();
        self.sim.run_until_idle();
        let sent = self.sent();
        assert_eq!(
            terminate(&sent),
            (xwarp::error::TermCode::mpa(code), vec![0, 0])
        );
        assert_eq!(xwarp_sim_tests::wire::ulpdus(&sent).len(), 1);
        assert_eq!(self.end.state(), QpState::Idle);
        assert_eq!(self.peer.ended(), Some(xwarp_tcp::CloseReason::Graceful));
    }
}

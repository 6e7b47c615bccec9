//! Rendezvous of queue pairs that programs bring up by hand: a connection without rdma_cm (decision
//! record dropin/0011).
//!
//! Programs exchange addresses and numbers themselves, and name the peer by Modify QP to RTR. The
//! lower one of the two connects to a port of the RNIC, on which the other one is found. The
//! private data of both name the queue pairs. A peer that is not expected yet is refused, and comes
//! again.

pub(crate) mod attributes;
mod block;
pub mod hello;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustc_hash::FxHashMap;

use crate::backend::connection_event::{ConnectRequest, ConnectionEvent, EventCallback, Request};
use crate::backend::{Backend, BackendRef, Qp, QpStatus, Timer};
use crate::entry::{Result, lock};
use crate::logging::say_once;
use attributes::{Attributes, Sends};
use block::{Block, BoundPorts};
use hello::Hello;

/// How long the connecting side waits for RTS, which usually follows RTR at once and names a PSN.
const GRACE: Duration = Duration::from_millis(10);
/// How soon a peer that refuses is asked again, at first and after [`SOON`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LATER_PAUSE: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(1);
/// How often a queue pair without its peer is checked for sends that wait.
const CHECK_PAUSE: Duration = Duration::from_millis(500);
/// How long a queue pair refuses its peer after a wrong PSN, so that no PSN is found by trying.
const WRONG_PSN_PAUSE: Duration = Duration::from_millis(10);

/// The queue pairs of an RNIC that are brought up by hand.
pub(crate) struct Rendezvous {
    this: Weak<Rendezvous>,
    backend: BackendRef,
    /// The block of the RNIC's queue pair numbers. `None` if all blocks of its addresses are taken.
    block: Option<Block>,
    ports: Mutex<Ports>,
    lists: Mutex<Lists>,
}

/// The port that peers connect to.
enum Ports {
    Unbound,
    Bound(BoundPorts),
    Listening(BoundPorts),
}

#[derive(Default)]
struct Lists {
    /// The queue pairs by number.
    endpoints: FxHashMap<u32, Endpoint>,
}

/// A queue pair, from RTR until it is reset, destroyed, or in Error.
struct Endpoint {
    /// Schedules its checks.
    timer: Timer,
    qp: Weak<Qp>,
    attributes: Attributes,
    /// Index of the interface, for link-local addresses.
    scope: u32,
    stage: Stage,
    /// It refuses its peer until then.
    refuses_until: Option<Instant>,
}

/// Connection of an endpoint, and since when it has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Apart(Instant),
    /// An attempt to connect is in progress.
    Connecting(Instant),
    Connected,
    /// The peer was there, and is gone.
    Ended,
}

/// Number and timer of an endpoint. A later endpoint of the number has another timer.
type EndpointKey = (u32, Timer);

impl Rendezvous {
    /// The rendezvous of an RNIC that has no queue pair yet. One that `shares` its addresses with
    /// others claims a block of numbers, unless none is left.
    pub(crate) fn new(backend: &Arc<Backend>, shares: bool) -> Result<Arc<Self>> {
        let (block, ports) = if shares {
            let claimed = Block::claim(backend);
            let claimed = claimed.inspect_err(|errno| log::info!("no block of numbers: {errno}"));
            claimed.ok().unzip()
        } else {
            (Some(Block::FIRST), None)
        };
        if let Some(block) = block {
            backend.set_qp_numbers(block.numbers())?;
        }
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            backend: BackendRef::new(backend),
            block,
            ports: Mutex::new(ports.map_or(Ports::Unbound, Ports::Bound)),
            lists: Mutex::default(),
        }))
    }

    /// A queue pair in Idle has come to RTR: it may receive from its peer.
    pub(crate) fn receive(&self, qp: &Arc<Qp>, attributes: Attributes, scope: u32) -> Result<()> {
        if !attributes.is_own_peer() {
            self.listen()?;
        }
        qp.set_by_hand(true)?;
        let mut lists = lock(&self.lists);
        let endpoint = Endpoint {
            timer: Timer::new(),
            qp: Arc::downgrade(qp),
            attributes,
            scope,
            stage: Stage::Apart(Instant::now()),
            refuses_until: None,
        };
        let pause = if attributes.connects() {
            GRACE
        } else {
            CHECK_PAUSE
        };
        self.schedule(&endpoint, pause);
        lists.endpoints.insert(attributes.own.number, endpoint);
        Ok(())
    }

    /// A queue pair has come to RTS: it may send.
    pub(crate) fn send(&self, number: u32, sends: Sends) {
        let mut lists = lock(&self.lists);
        let Some(endpoint) = lists.endpoints.get_mut(&number) else {
            return;
        };
        endpoint.attributes.sends = Some(sends);
        if !matches!(endpoint.stage, Stage::Apart(_)) {
            return;
        }
        if endpoint.attributes.is_own_peer() {
            self.loop_back(endpoint);
        } else if endpoint.attributes.connects() {
            self.schedule(endpoint, Duration::ZERO);
        }
    }

    /// Connects an endpoint to itself.
    fn loop_back(&self, endpoint: &mut Endpoint) {
        let attributes = endpoint.attributes;
        let Some(qp) = endpoint.qp.upgrade().filter(|_| attributes.agrees()) else {
            return;
        };
        let (address, terms) = (attributes.own.address, attributes.terms());
        match qp.loop_back(address, terms, self.callback(endpoint.key())) {
            Ok(()) => endpoint.stage = Stage::Connected,
            Err(errno) => log::info!("queue pair {} has no loopback: {errno}", qp.number()),
        }
    }

    /// Forgets a queue pair that is about to be reset, destroyed, or brought into Error.
    pub(crate) fn forget(&self, qp: &Arc<Qp>) {
        let endpoint = lock(&self.lists).endpoints.remove(&qp.number());
        if endpoint.is_some()
            && let Err(errno) = qp.stop_connecting()
        {
            log::debug!("an attempt ends with its RNIC: {errno}");
        }
    }

    /// Listens on the port, unless that is done already.
    fn listen(&self) -> Result<()> {
        let block = self.block.ok_or(Errno::EADDRINUSE).inspect_err(|_errno| {
            say_once(format_args!(
                "all 256 blocks of queue pair numbers are taken by other programs at this address, so ibv_modify_qp connects none"
            ));
        })?;
        let mut ports = lock(&self.ports);
        let bound = match std::mem::replace(&mut *ports, Ports::Unbound) {
            Ports::Listening(bound) => {
                *ports = Ports::Listening(bound);
                return Ok(());
            }
            Ports::Bound(bound) => bound,
            Ports::Unbound => self.bind(block)?,
        };
        let this = Weak::clone(&self.this);
        let callback: EventCallback = Arc::new(move |event| {
            if let (ConnectionEvent::Request(request), Some(this)) = (event, this.upgrade()) {
                this.answer(&request);
            }
        });
        bound.listen(&callback)?;
        *ports = Ports::Listening(bound);
        Ok(())
    }

    fn bind(&self, block: Block) -> Result<BoundPorts> {
        let backend = self.backend.get()?;
        block.bind(&backend).inspect_err(|errno| {
            say_once(format_args!(
                "cannot bind TCP port {}, by which queue pairs that ibv_modify_qp connects find each other: {errno}; `ss -ltnp` says who has it",
                block.port()
            ));
        })
    }

    /// Accepts the peer of an endpoint, and rejects all others.
    fn answer(&self, request: &Request) {
        let mut lists = lock(&self.lists);
        let endpoint = Hello::parse(&request.private_data)
            .and_then(|hello| Some((lists.endpoints.get_mut(&hello.to)?, hello)))
            .and_then(|(endpoint, hello)| endpoint.admit(request, &hello));
        let Some((endpoint, qp)) = endpoint else {
            drop(lists);
            if let Err(errno) = request.peer.reject(b"") {
                log::debug!("{} is gone: {errno}", request.remote);
            }
            return;
        };
        let hello = endpoint.attributes.hello().to_bytes();
        let callback = self.callback(endpoint.key());
        match qp.accept(&request.peer, endpoint.attributes.terms(), &hello, callback) {
            Ok(()) => endpoint.stage = Stage::Connected,
            Err(errno) => log::info!("{} is not accepted: {errno}", request.remote),
        }
    }

    fn callback(&self, key: EndpointKey) -> EventCallback {
        let this = Weak::clone(&self.this);
        Arc::new(move |event| {
            if let Some(this) = this.upgrade() {
                this.on_event(key, event);
            }
        })
    }

    /// Handles an event of an endpoint's connection.
    fn on_event(&self, key: EndpointKey, event: ConnectionEvent) {
        let mut lists = lock(&self.lists);
        let Some(endpoint) = lists.endpoint(key) else {
            return;
        };
        let pause = match event {
            ConnectionEvent::Connected { private_data, .. } => {
                let address = endpoint.attributes.peer.address;
                let answer = Hello::parse(&private_data);
                if !answer.is_some_and(|it| endpoint.attributes.is_peer(address, &it)) {
                    log::warn!("{address} is not the peer that it says it is");
                    drop(lists);
                    self.fail(key);
                    return;
                }
                endpoint.stage = Stage::Connected;
                return;
            }
            ConnectionEvent::NotConnected(failure) => {
                let Stage::Connecting(since) = endpoint.stage else {
                    return;
                };
                log::debug!("queue pair {} is without its peer: {failure:?}", key.0);
                endpoint.stage = Stage::Apart(since);
                let is_soon = since.elapsed() < SOON;
                if is_soon { FIRST_PAUSE } else { LATER_PAUSE }
            }
            ConnectionEvent::Disconnected => {
                endpoint.stage = Stage::Ended;
                CHECK_PAUSE
            }
            ConnectionEvent::Request(_) => return,
        };
        self.schedule(endpoint, pause);
    }

    /// Checks an endpoint after this time, instead of at the time that was scheduled before.
    fn schedule(&self, endpoint: &Endpoint, pause: Duration) {
        let (key, this) = (endpoint.key(), Weak::clone(&self.this));
        let check = move || {
            if let Some(this) = this.upgrade() {
                this.check(key);
            }
        };
        let backend = self.backend.get();
        let scheduled = backend.and_then(|it| it.call_at(key.1, Instant::now() + pause, check));
        if let Err(errno) = scheduled {
            log::debug!("queue pair {} ends with its RNIC: {errno}", key.0);
        }
    }

    /// Connects an endpoint that has to, and fails one whose sends have waited for too long.
    fn check(&self, key: EndpointKey) {
        let mut lists = lock(&self.lists);
        let Some(endpoint) = lists.endpoint(key) else {
            return;
        };
        match endpoint.next_step() {
            Step::None => {}
            Step::Wait => self.schedule(endpoint, CHECK_PAUSE),
            Step::Leave => drop(lists.remove(key)),
            Step::Connect { qp, since } => {
                // The outcome is reported by this thread, later.
                match qp.connect(endpoint.request(), self.callback(key)) {
                    Ok(_) => endpoint.stage = Stage::Connecting(since),
                    Err(errno) => log::info!("queue pair {} cannot connect: {errno}", key.0),
                }
                self.schedule(endpoint, CHECK_PAUSE);
            }
            Step::Fail => {
                drop(lists);
                self.fail(key);
            }
        }
    }

    /// Brings an endpoint into Error, as its peer does not answer.
    fn fail(&self, key: EndpointKey) {
        let removed = lock(&self.lists).remove(key);
        let Some(qp) = removed.and_then(|endpoint| endpoint.qp.upgrade()) else {
            return;
        };
        log::info!("queue pair {} is failed: its peer does not answer", key.0);
        let failed = qp.stop_connecting().and_then(|()| qp.fail_unanswered());
        if let Err(errno) = failed {
            log::debug!("queue pair {} has ended: {errno}", key.0);
        }
    }
}

impl Lists {
    /// The endpoint, unless it is gone.
    fn endpoint(&mut self, (number, timer): EndpointKey) -> Option<&mut Endpoint> {
        let endpoint = self.endpoints.get_mut(&number)?;
        (endpoint.timer == timer).then_some(endpoint)
    }

    /// Removes the endpoint, unless it is gone.
    fn remove(&mut self, key: EndpointKey) -> Option<Endpoint> {
        self.endpoint(key)?;
        self.endpoints.remove(&key.0)
    }
}

/// What a check of an endpoint leads to.
enum Step {
    /// Nothing until the next event.
    None,
    Wait,
    Connect {
        qp: Arc<Qp>,
        since: Instant,
    },
    /// Its peer does not answer.
    Fail,
    /// The queue pair has ended.
    Leave,
}

impl Endpoint {
    fn key(&self) -> EndpointKey {
        (self.attributes.own.number, self.timer)
    }

    /// The endpoint and its queue pair, if it accepts a peer that says this now.
    fn admit(&mut self, request: &Request, hello: &Hello) -> Option<(&mut Self, Arc<Qp>)> {
        let between = [request.local, request.remote].map(|it| it.ip().to_canonical());
        if !self.recognises(between, hello, Instant::now()) {
            return None;
        }
        let qp = self.qp.upgrade()?;
        Some((self, qp))
    }

    /// Whether a queue pair that connects between these addresses, the own one first, and says this
    /// is the peer.
    fn recognises(&mut self, [own, peer]: [IpAddr; 2], hello: &Hello, now: Instant) -> bool {
        let is_expected = !self.attributes.connects()
            && matches!(self.stage, Stage::Apart(_))
            && own == self.attributes.own.address
            && self.attributes.is_named(peer, hello)
            && self.refuses_until.is_none_or(|until| until <= now);
        if !is_expected {
            return false;
        }
        let is_peer = self.attributes.is_peer(peer, hello);
        self.refuses_until = (!is_peer).then(|| now + WRONG_PSN_PAUSE);
        is_peer
    }

    /// Whether sends would have waited for too long.
    fn is_overdue(&self) -> bool {
        let patience = self.attributes.patience();
        match self.stage {
            Stage::Connected => false,
            Stage::Ended => patience.is_some(),
            Stage::Apart(since) | Stage::Connecting(since) => {
                patience.is_some_and(|patience| since.elapsed() >= patience)
            }
        }
    }

    fn next_step(&self) -> Step {
        if self.stage == Stage::Connected {
            return Step::None;
        }
        let Some(qp) = self.qp.upgrade() else {
            return Step::Leave;
        };
        match qp.query() {
            Err(_) => Step::Leave,
            Ok(view) if view.status == QpStatus::Error => Step::Leave,
            Ok(view) if view.has_sends && self.is_overdue() => Step::Fail,
            Ok(_) => match self.stage {
                Stage::Apart(since) if self.attributes.connects() => Step::Connect { qp, since },
                _ => Step::Wait,
            },
        }
    }

    fn request(&self) -> ConnectRequest {
        let Attributes { own, peer, .. } = self.attributes;
        ConnectRequest {
            local: at(own.address, 0, self.scope),
            remote: at(peer.address, Block::of(peer.number).port(), self.scope),
            terms: self.attributes.terms(),
            private_data: self.attributes.hello().to_bytes().to_vec(),
            patience: Duration::ZERO,
        }
    }
}

/// A port of an address, which may be a link-local one of the interface `scope`.
fn at(address: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match address {
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            SocketAddrV6::new(v6, port, 0, scope).into()
        }
        _ => SocketAddr::new(address, port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rendezvous::attributes::End;

    const ADDRESSES: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    ];
    /// What the peer of `endpoint` says.
    const HELLO: Hello = Hello {
        from: 3,
        to: 7,
        send_psn: Some(9),
        recv_psn: 5,
    };

    fn endpoint(now: Instant) -> Endpoint {
        let [own, peer] = ADDRESSES;
        let attributes = Attributes {
            own: End {
                address: own,
                number: 7,
            },
            peer: End {
                address: peer,
                number: 3,
            },
            recv_psn: 9,
            sends: None,
            ird: 1,
        };
        Endpoint {
            timer: Timer::new(),
            qp: Weak::new(),
            attributes,
            scope: 0,
            stage: Stage::Apart(now),
            refuses_until: None,
        }
    }

    #[test]
    fn wrong_psn_is_followed_by_a_pause() {
        let now = Instant::now();
        let mut endpoint = endpoint(now);
        let wrong = Hello {
            send_psn: Some(8),
            ..HELLO
        };
        assert!(!endpoint.recognises(ADDRESSES, &wrong, now));
        let soon = now + WRONG_PSN_PAUSE / 2;
        assert!(
            !endpoint.recognises(ADDRESSES, &HELLO, soon),
            "it still refuses"
        );
        assert!(endpoint.recognises(ADDRESSES, &HELLO, now + WRONG_PSN_PAUSE));
    }

    /// Otherwise any host could keep the peer away.
    #[test]
    fn other_numbers_or_another_address_are_followed_by_no_pause() {
        let now = Instant::now();
        let mut endpoint = endpoint(now);
        let [own, peer] = ADDRESSES;
        let others = [
            (
                ADDRESSES,
                Hello {
                    from: 4,
                    send_psn: Some(8),
                    ..HELLO
                },
            ),
            (
                [own, own],
                Hello {
                    send_psn: Some(8),
                    ..HELLO
                },
            ),
            ([peer, peer], HELLO),
        ];
        for (between, hello) in others {
            assert!(!endpoint.recognises(between, &hello, now));
        }
        assert!(endpoint.recognises(ADDRESSES, &HELLO, now));
    }

    #[test]
    fn only_an_endpoint_without_its_peer_accepts_one() {
        let now = Instant::now();
        for stage in [Stage::Connecting(now), Stage::Connected, Stage::Ended] {
            let mut endpoint = Endpoint {
                stage,
                ..endpoint(now)
            };
            assert!(!endpoint.recognises(ADDRESSES, &HELLO, now), "{stage:?}");
        }
    }

    #[test]
    fn sends_wait_as_long_as_the_program_says_and_not_for_a_peer_that_is_gone() {
        let long_ago = Instant::now().checked_sub(Duration::from_secs(20));
        let long_ago = long_ago.expect("the host runs for longer");
        let sends = |patience| Sends {
            psn: 1,
            ord: 1,
            patience,
        };
        let cases = [
            (
                Stage::Apart(Instant::now()),
                Some(Duration::from_secs(10)),
                false,
            ),
            (Stage::Apart(long_ago), Some(Duration::from_secs(10)), true),
            (
                Stage::Connecting(long_ago),
                Some(Duration::from_mins(1)),
                false,
            ),
            (Stage::Apart(long_ago), None, false),
            (Stage::Connected, Some(Duration::ZERO), false),
            (Stage::Ended, Some(Duration::from_mins(1)), true),
            (Stage::Ended, None, false),
        ];
        for (stage, patience, expected) in cases {
            let mut endpoint = Endpoint {
                stage,
                ..endpoint(long_ago)
            };
            endpoint.attributes.sends = Some(sends(patience));
            assert_eq!(endpoint.is_overdue(), expected, "{stage:?}, {patience:?}");
        }
    }
}

//! Rendezvous of queue pairs that programs bring up by hand: a connection without rdma_cm (decision
//! record dropin/0011).
//!
//! Programs exchange addresses and numbers themselves, and name the peer by Modify QP to RTR. The
//! lower one of the two connects to a port of the RNIC, on which the other one is found. The private
//! data of both name the queue pairs. A peer that is not expected yet is refused, and comes again.

mod block;
pub mod hello;
pub(crate) mod party;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustc_hash::FxHashMap;

use crate::backend::connection_event::{ConnectRequest, ConnectionEvent, EventCallback, Request};
use crate::backend::{Backend, BackendRef, Qp, QpStatus};
use crate::entry::{Result, lock};
use crate::logging::say_once;
use block::{Block, BoundPorts};
use hello::Hello;
use party::{Party, Sends};

/// How long the connecting side waits for RTS, which usually follows RTR at once and names a PSN.
const GRACE: Duration = Duration::from_millis(10);
/// How soon a peer that refuses is asked again, at first and after [`SOON`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LATER_PAUSE: Duration = Duration::from_millis(100);
const SOON: Duration = Duration::from_secs(1);
/// How often a queue pair without its peer is checked for sends that wait.
const CHECK_PAUSE: Duration = Duration::from_millis(500);
/// How long a queue pair refuses its peer after a wrong PSN, so that no PSN is found by trying.
const DEAF_TIME: Duration = Duration::from_millis(10);

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
    guests: FxHashMap<u32, Guest>,
    /// Serial number of the next guest.
    next: u64,
}

/// A queue pair, from RTR until it is reset, destroyed, or in Error.
struct Guest {
    /// A number that no other guest has: a call for a former one with its number finds nothing.
    serial: u64,
    qp: Weak<Qp>,
    party: Party,
    /// Index of the interface, for link-local addresses.
    scope: u32,
    stage: Stage,
    /// It refuses its peer until then.
    deaf_until: Option<Instant>,
}

/// Where a guest stands with its peer, and since when it is without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Apart(Instant),
    /// An attempt to connect is in progress.
    Connecting(Instant),
    Connected,
    /// The peer was there, and is gone.
    Ended,
}

/// Number and serial number of a guest.
type GuestKey = (u32, u64);

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
    pub(crate) fn receive(&self, qp: &Arc<Qp>, party: Party, scope: u32) -> Result<()> {
        if party.own == party.peer {
            say_once(format_args!(
                "ibv_modify_qp: a queue pair that is its own peer is not supported"
            ));
            return Err(Errno::EOPNOTSUPP);
        }
        self.listen()?;
        qp.set_by_hand(true)?;
        let mut lists = lock(&self.lists);
        let guest = Guest {
            serial: lists.next,
            qp: Arc::downgrade(qp),
            party,
            scope,
            stage: Stage::Apart(Instant::now()),
            deaf_until: None,
        };
        lists.next += 1;
        let pause = if party.connects() { GRACE } else { CHECK_PAUSE };
        self.schedule(&guest, pause);
        lists.guests.insert(party.own.number, guest);
        Ok(())
    }

    /// A queue pair has come to RTS: it may send.
    pub(crate) fn send(&self, number: u32, sends: Sends) {
        let mut lists = lock(&self.lists);
        let Some(guest) = lists.guests.get_mut(&number) else {
            return;
        };
        guest.party.sends = Some(sends);
        if guest.party.connects() && matches!(guest.stage, Stage::Apart(_)) {
            self.schedule(guest, Duration::ZERO);
        }
    }

    /// Forgets a queue pair that is about to be reset, destroyed, or brought into Error.
    pub(crate) fn forget(&self, qp: &Arc<Qp>) {
        let guest = lock(&self.lists).guests.remove(&qp.number());
        if guest.is_some()
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

    /// Accepts the peer of a guest, and rejects all others.
    fn answer(&self, request: &Request) {
        let mut lists = lock(&self.lists);
        let guest = Hello::parse(&request.private_data)
            .and_then(|hello| Some((lists.guests.get_mut(&hello.to)?, hello)))
            .and_then(|(guest, hello)| guest.admit(request, &hello));
        let Some((guest, qp)) = guest else {
            drop(lists);
            if let Err(errno) = request.peer.reject(b"") {
                log::debug!("{} is gone: {errno}", request.remote);
            }
            return;
        };
        let hello = guest.party.hello().to_bytes();
        let callback = self.callback(guest.key());
        match qp.accept(&request.peer, guest.party.depths(), &hello, callback) {
            Ok(()) => guest.stage = Stage::Connected,
            Err(errno) => log::info!("{} is not accepted: {errno}", request.remote),
        }
    }

    fn callback(&self, key: GuestKey) -> EventCallback {
        let this = Weak::clone(&self.this);
        Arc::new(move |event| {
            if let Some(this) = this.upgrade() {
                this.on_event(key, event);
            }
        })
    }

    /// Handles an event of a guest's connection.
    fn on_event(&self, key: GuestKey, event: ConnectionEvent) {
        let mut lists = lock(&self.lists);
        let Some(guest) = lists.guest(key) else {
            return;
        };
        let pause = match event {
            ConnectionEvent::Connected { private_data, .. } => {
                let address = guest.party.peer.address;
                let answer = Hello::parse(&private_data);
                if !answer.is_some_and(|it| guest.party.is_peer(address, &it)) {
                    log::warn!("{address} is not the peer that it says it is");
                    drop(lists);
                    self.fail(key);
                    return;
                }
                guest.stage = Stage::Connected;
                return;
            }
            ConnectionEvent::NotConnected(failure) => {
                let Stage::Connecting(since) = guest.stage else {
                    return;
                };
                log::debug!("queue pair {} is without its peer: {failure:?}", key.0);
                guest.stage = Stage::Apart(since);
                let is_soon = since.elapsed() < SOON;
                if is_soon { FIRST_PAUSE } else { LATER_PAUSE }
            }
            ConnectionEvent::Disconnected => {
                guest.stage = Stage::Ended;
                CHECK_PAUSE
            }
            ConnectionEvent::Request(_) => return,
        };
        self.schedule(guest, pause);
    }

    /// Checks a guest after this time, instead of at the time that was scheduled before.
    fn schedule(&self, guest: &Guest, pause: Duration) {
        let (key, this) = (guest.key(), Weak::clone(&self.this));
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

    /// Connects a guest that has to, and fails one whose sends have waited for too long.
    fn check(&self, key: GuestKey) {
        let mut lists = lock(&self.lists);
        let Some(guest) = lists.guest(key) else {
            return;
        };
        match guest.next_step() {
            Step::None => {}
            Step::Wait => self.schedule(guest, CHECK_PAUSE),
            Step::Leave => drop(lists.guests.remove(&key.0)),
            Step::Connect { qp, since } => {
                // The outcome is reported by this thread, later.
                match qp.connect(guest.request(), self.callback(key)) {
                    Ok(_) => guest.stage = Stage::Connecting(since),
                    Err(errno) => log::info!("queue pair {} cannot connect: {errno}", key.0),
                }
                self.schedule(guest, CHECK_PAUSE);
            }
            Step::Fail => {
                drop(lists);
                self.fail(key);
            }
        }
    }

    /// Brings a guest into Error, as its peer does not answer.
    fn fail(&self, key: GuestKey) {
        let mut lists = lock(&self.lists);
        let guest = lists
            .guest(key)
            .is_some()
            .then(|| lists.guests.remove(&key.0));
        drop(lists);
        let Some(qp) = guest.flatten().and_then(|it| it.qp.upgrade()) else {
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
    /// The guest, unless it is gone.
    fn guest(&mut self, (number, serial): GuestKey) -> Option<&mut Guest> {
        let guest = self.guests.get_mut(&number)?;
        (guest.serial == serial).then_some(guest)
    }
}

/// What a check of a guest leads to.
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

impl Guest {
    fn key(&self) -> GuestKey {
        (self.party.own.number, self.serial)
    }

    /// The guest and its queue pair, if it accepts a peer that says this now.
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
        let is_expected = !self.party.connects()
            && matches!(self.stage, Stage::Apart(_))
            && own == self.party.own.address
            && self.party.is_named(peer, hello)
            && self.deaf_until.is_none_or(|until| until <= now);
        if !is_expected {
            return false;
        }
        let is_peer = self.party.is_peer(peer, hello);
        self.deaf_until = (!is_peer).then(|| now + DEAF_TIME);
        is_peer
    }

    /// Whether sends would have waited for too long.
    fn is_overdue(&self) -> bool {
        let patience = self.party.patience();
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
                Stage::Apart(since) if self.party.connects() => Step::Connect { qp, since },
                _ => Step::Wait,
            },
        }
    }

    fn request(&self) -> ConnectRequest {
        let Party { own, peer, .. } = self.party;
        ConnectRequest {
            local: at(own.address, 0, self.scope),
            remote: at(peer.address, Block::of(peer.number).port(), self.scope),
            depths: self.party.depths(),
            private_data: self.party.hello().to_bytes().to_vec(),
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
    use crate::rendezvous::party::End;

    const ADDRESSES: [IpAddr; 2] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
    ];
    /// What the peer of `guest` says.
    const HELLO: Hello = Hello {
        from: 3,
        to: 7,
        send_psn: Some(9),
        recv_psn: 5,
    };

    fn guest(now: Instant) -> Guest {
        let [own, peer] = ADDRESSES;
        let party = Party {
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
        Guest {
            serial: 0,
            qp: Weak::new(),
            party,
            scope: 0,
            stage: Stage::Apart(now),
            deaf_until: None,
        }
    }

    #[test]
    fn wrong_psn_is_answered_by_a_while_without_an_ear() {
        let now = Instant::now();
        let mut guest = guest(now);
        let wrong = Hello {
            send_psn: Some(8),
            ..HELLO
        };
        assert!(!guest.recognises(ADDRESSES, &wrong, now));
        let soon = now + DEAF_TIME / 2;
        assert!(
            !guest.recognises(ADDRESSES, &HELLO, soon),
            "it does not listen"
        );
        assert!(guest.recognises(ADDRESSES, &HELLO, now + DEAF_TIME));
    }

    /// Others cannot keep the peer away.
    #[test]
    fn stranger_with_other_numbers_or_another_address_does_not_make_it_deaf() {
        let now = Instant::now();
        let mut guest = guest(now);
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
            assert!(!guest.recognises(between, &hello, now));
        }
        assert!(guest.recognises(ADDRESSES, &HELLO, now));
    }

    #[test]
    fn only_a_guest_without_its_peer_accepts_one() {
        let now = Instant::now();
        for stage in [Stage::Connecting(now), Stage::Connected, Stage::Ended] {
            let mut guest = Guest {
                stage,
                ..guest(now)
            };
            assert!(!guest.recognises(ADDRESSES, &HELLO, now), "{stage:?}");
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
            let mut guest = Guest {
                stage,
                ..guest(long_ago)
            };
            guest.party.sends = Some(sends(patience));
            assert_eq!(guest.is_overdue(), expected, "{stage:?}, {patience:?}");
        }
    }
}

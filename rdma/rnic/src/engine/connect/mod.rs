//! Connections of an engine: their owners, listeners, incoming connections that wait for their
//! Request or its answer, streams, and ports of connections that have ended.
//!
//! [`Connections`] owns all of these. The engine lends it the [`RdmaDevice`] for each call, and
//! acts on its queue pairs itself.
//!
//! Peers must not exhaust the memory or the descriptors of a listener:
//!
//! - A Request holds a place in the listener's backlog until the application takes it, even if its
//!   peer has disconnected. If the backlog is full, the connection that has sent nothing for the
//!   longest time is reset.
//! - A connection without an owner ends within 10 s.
//! - At most 256 ports of ended connections linger. If no descriptor is left for a new port, they
//!   are freed. A repeated FIN may then get the kernel's RST instead of an ACK.

mod deadlines;
mod lingering;
mod listen;
mod listeners;
mod streaming;
mod streams;
mod verbs;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use slab::Slab;
use xwarp_tcp::{ConnId, Instant};

use super::host::Interface;
use crate::model::{ListenKey, LocalPort, MpaConfig};
use crate::qp::RdmaDevice;
use deadlines::ConnDeadlines;
use lingering::Lingering;
use listen::Incoming;
use listeners::Listeners;
use streams::Streams;

pub use listeners::{Clients, IncomingRequest};
pub use streams::StartStream;

pub(super) use deadlines::Last;

/// Owner of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// The queue pair in this slot.
    Qp(usize),
    /// An incoming connection without a queue pair, by its key.
    Incoming(usize),
    /// The application, which has not handed it over to a queue pair.
    Streaming,
}

/// All connections of an engine.
pub(super) struct Connections {
    /// Index of the engine in its RNIC.
    engine: usize,
    mpa: MpaConfig,
    owners: FxHashMap<ConnId, Owner>,
    listeners: Listeners,
    incoming: Slab<Incoming>,
    /// Serial number of the next incoming connection.
    next_incoming: u64,
    streams: Streams,
    deadlines: ConnDeadlines,
    lingering: Lingering,
}

impl Connections {
    /// No connections, for engine number `engine` of `engines`.
    pub(super) fn new(engine: usize, engines: usize, mpa: MpaConfig) -> Self {
        Self {
            engine,
            mpa,
            owners: FxHashMap::default(),
            listeners: Listeners::default(),
            incoming: Slab::new(),
            next_incoming: 0,
            streams: Streams::default(),
            deadlines: ConnDeadlines::default(),
            lingering: Lingering::of_one_of(engines),
        }
    }

    /// Owner of a connection; `None` if it is new or abandoned.
    #[inline]
    pub(super) fn owner(&self, conn: ConnId) -> Option<Owner> {
        self.owners.get(&conn).copied()
    }

    /// Slot of the queue pair that a connection belongs to.
    pub(super) fn qp_of(&self, conn: ConnId) -> Option<usize> {
        match self.owner(conn)? {
            Owner::Qp(slot) => Some(slot),
            Owner::Incoming(_) | Owner::Streaming => None,
        }
    }

    /// Gives a connection to the queue pair in this slot.
    pub(super) fn own(&mut self, conn: ConnId, slot: usize) {
        self.owners.insert(conn, Owner::Qp(slot));
    }

    /// Removes a connection's owner.
    pub(super) fn disown(&mut self, conn: ConnId) {
        self.owners.remove(&conn);
    }

    /// Connections that have an owner.
    pub(super) fn conns(&self) -> Vec<ConnId> {
        self.owners.keys().copied().collect()
    }

    /// Closes a connection that has no owner. Its peer has a limited time to acknowledge the last
    /// bytes and to close its side.
    pub(super) fn abandon(&mut self, conn: ConnId, last: Last, device: &mut RdmaDevice) {
        device.stack.close(conn, device.now);
        self.deadlines.expect_end(device.now, conn, last);
    }

    /// Keeps the port of a connection as long as TCP may still have to send from it.
    pub(super) fn linger(
        &mut self,
        conn: ConnId,
        port: Arc<LocalPort>,
        interface: &Interface,
        now: Instant,
    ) {
        if !interface.has_lost(port.local().ip()) {
            self.lingering.keep(conn, port, now);
        }
    }

    /// Frees the ports of connections that have ended. The kernel answers a repeated FIN to such a
    /// port by a RST.
    pub(super) fn release_ports(&mut self) {
        self.lingering.clear();
    }

    /// The host has lost an address: its listeners stop until the host has it again.
    pub(super) fn withdraw(&mut self, address: IpAddr, device: &mut RdmaDevice) {
        self.lingering.withdraw(address);
        self.listeners.withdraw(address, &mut device.stack);
    }

    /// Listeners that should listen at an address and do not yet, with their ports.
    pub(super) fn missing_listeners(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = (ListenKey, SocketAddr)> {
        self.listeners.missing_at(address)
    }

    /// Ends all listeners, attempts, incoming connections and streams, as the RNIC has failed for
    /// this `reason`.
    pub(super) fn cease(&mut self, reason: &str, device: &mut RdmaDevice) {
        self.listeners.clear(&mut device.stack);
        self.end_stream_searches(reason, device);
        self.reset_all_incoming(device);
        self.reset_all_streams(device);
    }
}

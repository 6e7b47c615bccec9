//! Listeners by address and port, and the sizes of their backlogs.

use std::collections::HashMap;
use std::net::SocketAddr;

use foldhash::quality::RandomState;
use smoltcp::wire::IpEndpoint;

use crate::error::ListenError;
use crate::event::ListenerId;
use crate::handle_map::{Handle, HandleMap};
use crate::wire::flow::endpoint;

/// Connections of a listener with this `backlog`.
#[derive(Debug)]
pub(super) struct Listener {
    local: IpEndpoint,
    backlog: usize,
    /// Half-open connections.
    half_open: usize,
    /// Established connections whose `Incoming` was not polled.
    unpolled: usize,
}

impl Listener {
    /// True if the maximum number of connections is half open.
    pub(super) fn is_flooded(&self) -> bool {
        self.half_open >= self.backlog
    }

    /// True if fewer than `backlogs` backlogs wait to be polled.
    pub(super) fn polls(&self, backlogs: usize) -> bool {
        self.unpolled < backlogs.saturating_mul(self.backlog)
    }
}

/// The listeners of one stack.
#[derive(Debug)]
pub(super) struct Listeners {
    entries: HandleMap<Listener>,
    ports: HashMap<IpEndpoint, Handle, RandomState>,
}

impl Listeners {
    pub(super) fn new() -> Self {
        Self {
            entries: HandleMap::new(),
            ports: HashMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn add(
        &mut self,
        local: SocketAddr,
        backlog: usize,
    ) -> Result<ListenerId, ListenError> {
        let address = endpoint(local).ok_or(ListenError::BadAddress(local))?;
        if self.at(address).is_some() {
            return Err(ListenError::AddressInUse(local));
        }
        let handle = self.entries.insert(Listener {
            local: address,
            backlog,
            half_open: 0,
            unpolled: 0,
        });
        self.ports.insert(address, handle);
        Ok(ListenerId(handle))
    }

    /// Returns false if there was no such listener.
    pub(super) fn remove(&mut self, id: ListenerId) -> bool {
        let listener = self.entries.remove(id.0);
        if let Some(listener) = &listener {
            self.ports.remove(&listener.local);
        }
        listener.is_some()
    }

    /// The listener at an address and port.
    pub(super) fn at(&self, local: IpEndpoint) -> Option<ListenerId> {
        self.ports.get(&local).copied().map(ListenerId)
    }

    pub(super) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.entries.get(id.0)
    }

    /// Records a new half-open connection.
    pub(super) fn opened(&mut self, id: ListenerId) {
        if let Some(listener) = self.entries.get_mut(id.0) {
            listener.half_open += 1;
        }
    }

    /// Records that a half-open connection is established.
    pub(super) fn established(&mut self, id: ListenerId) {
        if let Some(listener) = self.entries.get_mut(id.0) {
            listener.half_open = listener.half_open.saturating_sub(1);
            listener.unpolled += 1;
        }
    }

    /// Records that a connection has left the backlog: it was polled, or has ended. `established`:
    /// it was not half open.
    pub(super) fn left(&mut self, id: ListenerId, established: bool) {
        let Some(listener) = self.entries.get_mut(id.0) else {
            return;
        };
        let count = if established {
            &mut listener.unpolled
        } else {
            &mut listener.half_open
        };
        *count = count.saturating_sub(1);
    }
}

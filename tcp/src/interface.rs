//! What becomes of the interface while there are connections: its MTU, its Ethernet address, the host's addresses on it.

use std::net::IpAddr;

use crate::conn::State;
use crate::event::CloseReason;
use crate::slots::Handle;
use crate::stack::{MTU_LIMITS, Stack};
use crate::time::Instant;

impl Stack {
    /// Says whether the link is up. While it is down, what is sent waits. When it is up again, what was lost is sent again soon: the timeouts
    /// that have passed meanwhile, each twice as long as the one before it, say nothing of the path.
    pub fn set_up(&mut self, up: bool, now: Instant) {
        self.advance(now);
        self.lower.io.set_up(up);
        let was_up = std::mem::replace(&mut self.lower.up, up);
        if was_up || !up {
            return;
        }
        for handle in self.handles(|_| true) {
            if let Some(conn) = self.conns.get_mut(handle) {
                conn.resume(self.now);
            }
            self.touch(handle);
        }
    }

    /// The interface takes IP packets of `mtu` bytes from now on. A smaller number holds for all connections, and what they have in flight is cut
    /// when it is sent again; a larger one, as far as TX frames have room for it, for connections to come.
    pub fn set_mtu(&mut self, mtu: usize) {
        let mtu = mtu.clamp(MTU_LIMITS.0, MTU_LIMITS.1).min(self.largest);
        let narrower = std::mem::replace(&mut self.lower.mtu, mtu) > mtu;
        if !narrower {
            return;
        }
        for handle in self.handles(|_| true) {
            if let Some(conn) = self.conns.get_mut(handle) {
                conn.set_path_mtu(mtu, self.now);
            }
            self.touch(handle);
        }
    }

    /// Frames are sent from this Ethernet address from now on, those of connections that there are, too. Frames for the one before it are taken
    /// all the same.
    pub fn set_mac(&mut self, mac: [u8; 6]) {
        let former = std::mem::replace(&mut self.config.mac, mac);
        if former == mac {
            return;
        }
        self.former_mac = Some(former);
        for handle in self.handles(|_| true) {
            if let Some(conn) = self.conns.get_mut(handle) {
                conn.set_source(mac);
            }
        }
    }

    /// The host has lost `address`: its connections end, and nothing more is sent from it, not even a RST (RFC 1122 §3.2.1.3).
    /// [`Event::Closed`](crate::Event::Closed) follows for each. Listeners there are to be ended by who has begun them.
    pub fn withdraw(&mut self, address: IpAddr) {
        let address = address.into();
        if !self.withdrawn.contains(&address) {
            self.withdrawn.push(address);
        }
        for handle in self.handles(|local| local == address) {
            let Some(conn) = self.conns.get_mut(handle) else {
                continue;
            };
            if conn.state() == State::TimeWait {
                self.retire(handle);
            } else {
                conn.abort(true, &mut self.lower);
                self.end(handle, CloseReason::AddressLost);
            }
        }
    }

    /// The host has an address again, or for the first time.
    pub fn readmit(&mut self, address: IpAddr) {
        let address = address.into();
        self.withdrawn.retain(|lost| *lost != address);
    }

    /// The connections whose local address is `chosen`.
    fn handles(&self, chosen: impl Fn(smoltcp::wire::IpAddress) -> bool) -> Vec<Handle> {
        let conns = self.conns.iter();
        conns
            .filter(|(_, conn)| chosen(conn.flow.local.addr))
            .map(|(handle, _)| handle)
            .collect()
    }
}

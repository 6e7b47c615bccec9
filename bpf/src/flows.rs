//! Steered TCP flows: pairs of local address and local port (decision record bpf/0001).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, MapType};

use crate::layout::{Layout, MAX_FLOWS, MapError};
use crate::ports::Ports;

const KEY_SIZE: u32 = 20;
const VALUE_SIZE: u32 = 4;

pub(crate) const LAYOUT: Layout = Layout {
    name: "xwarp_flows",
    map_type: MapType::Hash,
    key_size: KEY_SIZE,
    value_size: VALUE_SIZE,
    max_entries: MAX_FLOWS,
};

/// The set of (local address, local port) pairs whose TCP segments are ours.
///
/// An IPv4 address and its v4-mapped IPv6 form are the same flow.
#[derive(Debug)]
pub struct Flows {
    /// All of them. A flow is put in here first and taken out last, so all flows of the ports are
    /// here.
    map: MapHandle,
    /// Those of IPv4 by their port.
    ports: Ports,
}

impl Flows {
    pub(crate) fn new(map: MapHandle, ports: Ports) -> Self {
        Self { map, ports }
    }

    /// Makes the segments to (`addr`, `port`) ours, of a process whose first queue is `first`;
    /// nothing changes if they are already. As long as that queue has a socket, segments at queues
    /// without one are dropped instead of passed to the kernel.
    pub fn insert(&self, addr: IpAddr, port: u16, first: u32) -> Result<(), MapError> {
        let queue = u16::try_from(first);
        let queue = queue.map_err(|_| MapError::NoSuchQueue { queue: first })?;
        let known = self.contains(addr, port)?;
        let value = first.to_ne_bytes();
        let inserted = self.map.update(&key(addr, port), &value, MapFlags::ANY);
        inserted.map_err(|error| {
            // The kernel returns E2BIG for this, which libbpf-rs does not distinguish from other
            // errors.
            if self.map.keys().count() >= MAX_FLOWS as usize {
                MapError::Full {
                    flow: SocketAddr::new(addr, port),
                }
            } else {
                LAYOUT.refused(error)
            }
        })?;
        match ipv4(addr) {
            Some(addr) if known => self.ports.change(addr, port, queue),
            Some(addr) => self.ports.insert(addr, port, queue),
            None => Ok(()),
        }
    }

    /// Gives the segments to (`addr`, `port`) back to the kernel; false if they were not ours.
    pub fn remove(&self, addr: IpAddr, port: u16) -> Result<bool, MapError> {
        if ipv4(addr).is_some() && self.contains(addr, port)? {
            self.ports.remove(port)?;
        }
        self.delete(&key(addr, port))
    }

    /// Gives every flow back to the kernel.
    pub fn clear(&self) -> Result<(), MapError> {
        // Collected first: deleting under the iterator would make it start again.
        let keys: Vec<_> = self.map.keys().collect();
        keys.iter().try_for_each(|key| {
            self.ports.clear(port_of(key))?;
            self.delete(key).map(|_| ())
        })
    }

    /// Whether the segments to (`addr`, `port`) are ours.
    pub fn contains(&self, addr: IpAddr, port: u16) -> Result<bool, MapError> {
        let value = self.map.lookup(&key(addr, port), MapFlags::ANY);
        value
            .map(|value| value.is_some())
            .map_err(|error| LAYOUT.refused(error))
    }

    fn delete(&self, key: &[u8]) -> Result<bool, MapError> {
        match self.map.delete(key) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(LAYOUT.refused(error)),
        }
    }
}

/// The address as one of IPv4, if it is or maps one.
fn ipv4(addr: IpAddr) -> Option<Ipv4Addr> {
    match addr.to_canonical() {
        IpAddr::V4(addr) => Some(addr),
        IpAddr::V6(_) => None,
    }
}

/// The port of a key.
fn port_of(key: &[u8]) -> u16 {
    let port = key.get(16..18).and_then(|port| port.try_into().ok());
    port.map_or(0, u16::from_be_bytes)
}

/// `struct flow` of steer.bpf.c: address, port, both as on the wire, and two bytes of zero.
fn key(addr: IpAddr, port: u16) -> [u8; KEY_SIZE as usize] {
    let addr = match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped(),
        IpAddr::V6(addr) => addr,
    };
    let mut key = [0; KEY_SIZE as usize];
    key[..16].copy_from_slice(&addr.octets());
    key[16..18].copy_from_slice(&port.to_be_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_the_address_and_port_of_the_wire() {
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2, // ::ffff:10.0.0.2
            0x12, 0x8c, 0, 0, // 4748, padding
        ];
        assert_eq!(key([10, 0, 0, 2].into(), 4748), expected);
        assert_eq!(key("::ffff:10.0.0.2".parse().unwrap(), 4748), expected);
        assert_eq!(port_of(&expected), 4748);
    }
}

//! Blocks of queue pair numbers (decision record dropin/0011).
//!
//! RNICs that share an address have different blocks, each with a port of its own. So a number leads
//! to the port on which its queue pair is found.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use nix::errno::Errno;

use crate::backend::connection_event::EventCallback;
use crate::backend::{Backend, Port};
use crate::entry::Result;

/// TCP port of the first block. That of each other block is one higher than the one before.
const FIRST_PORT: u16 = 4792;
/// Numbers of a block have their lower 16 bits to themselves.
const BLOCK_BITS: u32 = 16;
/// The first number that is no queue pair's of InfiniBand's management.
const FIRST_NUMBER: u32 = 2;

/// A block of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(u8);

impl Block {
    /// The block of an RNIC that has its addresses to itself.
    pub(super) const FIRST: Self = Self(0);

    /// The block of a number of 24 bits.
    pub(super) fn of(number: u32) -> Self {
        let [_, block, ..] = number.to_be_bytes();
        Self(block)
    }

    pub(super) fn numbers(self) -> Range<u32> {
        let first = u32::from(self.0) << BLOCK_BITS;
        first.max(FIRST_NUMBER)..first + (1 << BLOCK_BITS)
    }

    /// The TCP port on which queue pairs of the block are found.
    pub(super) fn port(self) -> u16 {
        FIRST_PORT + u16::from(self.0)
    }

    /// Binds the block's port of all addresses of an RNIC. EADDRINUSE if another has the block.
    pub(super) fn bind(self, backend: &Backend) -> Result<BoundPorts> {
        let families = [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ];
        let mut ports = Vec::new();
        for any in families {
            match backend.bind(SocketAddr::new(any, self.port()), false) {
                Ok((port, _)) => ports.push(port),
                // There is no address of this family.
                Err(Errno::EADDRNOTAVAIL) => {}
                Err(errno) => return Err(errno),
            }
        }
        if ports.is_empty() {
            return Err(Errno::EADDRNOTAVAIL);
        }
        Ok(BoundPorts(ports))
    }

    /// Binds the port of a block that no other RNIC has.
    pub(super) fn claim(backend: &Backend) -> Result<(Self, BoundPorts)> {
        for block in (0..=u8::MAX).map(Self) {
            match block.bind(backend) {
                Ok(ports) => return Ok((block, ports)),
                Err(Errno::EADDRINUSE) => {}
                Err(errno) => return Err(errno),
            }
        }
        Err(Errno::EADDRINUSE)
    }
}

/// A block's port, bound for each family of addresses.
pub(super) struct BoundPorts(Vec<Arc<Port>>);

impl BoundPorts {
    pub(super) fn listen(&self, callback: &EventCallback) -> Result<()> {
        let mut ports = self.0.iter();
        ports.try_for_each(|port| port.listen(EventCallback::clone(callback)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_leads_to_the_port_of_its_block() {
        for (number, port) in [
            (2, 4792),
            (0xffff, 4792),
            (0x1_0000, 4793),
            (0xff_ffff, 5047),
        ] {
            let block = Block::of(number);
            assert_eq!(block.port(), port, "{number:x}");
            assert!(block.numbers().contains(&number), "{number:x}");
        }
        assert_eq!(Block::FIRST.numbers(), 2..0x1_0000);
        assert_eq!(Block(255).numbers(), 0xff_0000..0x100_0000);
    }
}

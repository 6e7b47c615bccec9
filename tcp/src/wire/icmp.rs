//! ICMP Packet Too Big and Fragmentation Needed messages (RFC 1191 §3, RFC 8201 §3).
//!
//! An attacker can send them as well as a router. The stack believes them only about data in flight
//! (RFC 5927 §4.1), and reads them only after a retransmission. A genuine one has arrived by then,
//! and a forged one about a path that works has no effect (§7.2).

use smoltcp::wire::{IpAddress, IpEndpoint, Ipv4Address, Ipv6Address};
use xwarp_driver::Icmp;

use crate::wire::flow::Flow;
use crate::wire::seq::{Seq, from_raw};

/// Type Destination Unreachable, code Fragmentation Needed.
const FRAGMENTATION_NEEDED: [u8; 2] = [3, 4];
const PACKET_TOO_BIG: [u8; 2] = [2, 0];
/// Length in bytes of an ICMP header, and the protocol number of TCP.
const HEADER: usize = 8;
const TCP: u8 = 6;
/// Mask of the fragment offset in the 16 bits of IPv4's flags and offset.
const OFFSET: usize = 0x1fff;
/// Smallest path MTUs that are believed, by IPv4 and by IPv6. The kernel believes no IPv4 path
/// below 552 bytes (`net.ipv4.route.min_pmtu`). IPv6 has none below 1280 (RFC 8200 §5).
const LEAST: (usize, usize) = (552, 1280);

/// Report that a packet of ours was too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketTooBig {
    pub(crate) flow: Flow,
    /// Sequence number of the segment.
    pub(crate) seq: Seq,
    /// Path MTU in bytes.
    pub(crate) mtu: usize,
}

impl PacketTooBig {
    /// Returns `None` unless the message is complete, concerns a TCP segment larger than the
    /// reported MTU, and reports a possible MTU.
    pub(crate) fn parse(message: &Icmp) -> Option<Self> {
        let (Icmp::V4(bytes) | Icmp::V6(bytes)) = message;
        let (header, packet) = bytes.split_at_checked(HEADER)?;
        let (kind, mtu, least, sent) = match message {
            Icmp::V4(_) => (
                FRAGMENTATION_NEEDED,
                number(header, 6)?,
                LEAST.0,
                ipv4(packet)?,
            ),
            Icmp::V6(_) => (PACKET_TOO_BIG, long(header, 4)?, LEAST.1, ipv6(packet)?),
        };
        let segment = packet.get(sent.header..)?;
        let believable = header.starts_with(&kind) && mtu >= least && mtu < sent.len;
        let port = |at| u16::try_from(number(segment, at)?).ok();
        let flow = Flow {
            local: IpEndpoint::new(sent.source, port(0)?),
            remote: IpEndpoint::new(sent.destination, port(2)?),
        };
        let seq = u32::from_be_bytes(*segment.get(4..)?.first_chunk()?);
        believable.then_some(Self {
            flow,
            seq: from_raw(seq),
            mtu,
        })
    }
}

/// The packet that was too large, as far as the message quotes it.
struct Packet {
    source: IpAddress,
    destination: IpAddress,
    header: usize,
    /// Length of the original packet in bytes.
    len: usize,
}

/// The 16-bit number at offset `at`.
fn number(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?).into())
}

/// The 32-bit number at offset `at`.
fn long(bytes: &[u8], at: usize) -> Option<usize> {
    let number = u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
    usize::try_from(number).ok()
}

fn ipv4(packet: &[u8]) -> Option<Packet> {
    let first = *packet.first()?;
    let address = |at| Some(Ipv4Address::from_octets(*packet.get(at..)?.first_chunk()?).into());
    let is_first_of_tcp =
        first >> 4 == 4 && *packet.get(9)? == TCP && number(packet, 6)? & OFFSET == 0;
    is_first_of_tcp.then_some(())?;
    Some(Packet {
        source: address(12)?,
        destination: address(16)?,
        header: usize::from(first & 15) * 4,
        len: number(packet, 2)?,
    })
}

fn ipv6(packet: &[u8]) -> Option<Packet> {
    const HEADER: usize = 40;
    let address = |at| Some(Ipv6Address::from_octets(*packet.get(at..)?.first_chunk()?).into());
    let is_tcp = packet.first()? >> 4 == 6 && *packet.get(6)? == TCP;
    is_tcp.then_some(())?;
    Some(Packet {
        source: address(8)?,
        destination: address(24)?,
        header: HEADER,
        len: number(packet, 4)? + HEADER,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn v4(mtu: u16, len: u16) -> Vec<u8> {
        let mut message = vec![3, 4, 0, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend([0x45, 0]);
        message.extend(len.to_be_bytes());
        message.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        message.extend([0x1b, 0x58, 0x9c, 0x40, 0xff, 0, 0, 7]);
        message
    }

    fn v6(mtu: u32) -> Vec<u8> {
        let mut message = vec![2, 0, 0, 0];
        message.extend(mtu.to_be_bytes());
        message.extend([0x60, 0, 0, 0, 0x05, 0xb4, 6, 64]); // 1460 bytes of TCP
        message.extend("fd00::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        message.extend("fd00::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        message.extend([0x1b, 0x58, 0x9c, 0x40, 0, 0, 0, 9]);
        message
    }

    fn flow(local: &str, remote: &str) -> Flow {
        let endpoint = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().into();
        Flow {
            local: endpoint(local),
            remote: endpoint(remote),
        }
    }

    #[test]
    fn flow_the_number_and_the_mtu_are_read() {
        let wanted = PacketTooBig {
            flow: flow("10.0.0.1:7000", "10.0.0.2:40000"),
            seq: from_raw(0xff00_0007),
            mtu: 1400,
        };
        assert_eq!(PacketTooBig::parse(&Icmp::V4(v4(1400, 1500))), Some(wanted));
        let narrowest = PacketTooBig { mtu: 552, ..wanted };
        assert_eq!(
            PacketTooBig::parse(&Icmp::V4(v4(552, 1500))),
            Some(narrowest)
        );
        let wanted = PacketTooBig {
            flow: flow("[fd00::1]:7000", "[fd00::2]:40000"),
            seq: from_raw(9),
            mtu: 1280,
        };
        assert_eq!(PacketTooBig::parse(&Icmp::V6(v6(1280))), Some(wanted));
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        for (mtu, len) in [(0, 1500), (551, 1500), (1500, 1500), (9000, 1500)] {
            assert_eq!(
                PacketTooBig::parse(&Icmp::V4(v4(mtu, len))),
                None,
                "{mtu} of {len}"
            );
        }
        for mtu in [0, 1279, 1500, 65536 + 1300] {
            assert_eq!(PacketTooBig::parse(&Icmp::V6(v6(mtu))), None, "{mtu}");
        }
        for (at, byte) in [(0, 11), (1, 3), (8, 0x65), (17, 17), (15, 1)] {
            let mut message = v4(1400, 1500);
            message[at] = byte;
            assert_eq!(PacketTooBig::parse(&Icmp::V4(message)), None, "byte {at}");
        }
        for len in 0..36 {
            assert_eq!(
                PacketTooBig::parse(&Icmp::V4(v4(1400, 1500)[..len].to_vec())),
                None
            );
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes: Vec<u8>, place in 0..56_usize, byte: u8) {
            PacketTooBig::parse(&Icmp::V4(bytes.clone()));
            PacketTooBig::parse(&Icmp::V6(bytes));
            for mut message in [v4(1400, 1500), v6(1280)] {
                let len = message.len();
                message[place % len] = byte;
                PacketTooBig::parse(&Icmp::V4(message.clone()));
                PacketTooBig::parse(&Icmp::V6(message));
            }
        }
    }
}

//! TCP segments in Ethernet frames: what the headers say, and the RST that answers a segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::memory::Head;
use crate::station::{MacAddress, SWITCH};

const ETHERNET: usize = 14;
const IPV6: usize = 40;
const TCP_LEAST: usize = 20;
/// `EtherType` of IPv4, and of IPv6 (RFC 894, RFC 2464).
const IPV4_TYPE: [u8; 2] = [0x08, 0x00];
const IPV6_TYPE: [u8; 2] = [0x86, 0xdd];
/// The protocol number of TCP.
const TCP: u8 = 6;
/// More fragments, and the fragment's offset (RFC 791 §3.1).
const FRAGMENT: u16 = 0x3fff;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Hops that a packet of the switch's own may take.
const HOP_LIMIT: u8 = 64;

/// What the headers of a frame say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
    /// Bytes of payload.
    payload: u32,
}

impl Segment {
    /// Reads the headers. `None` for all that is not one whole TCP segment: another protocol, a
    /// fragment, IPv6 extension headers, lengths that do not fit the frame.
    pub(crate) fn parse(head: &Head) -> Option<Self> {
        let packet = head.bytes().get(ETHERNET..)?;
        let room = head.frame_len().checked_sub(ETHERNET)?;
        let (ips, header, total) = match head.bytes().get(12..ETHERNET)? {
            kind if kind == IPV4_TYPE => ipv4(packet)?,
            kind if kind == IPV6_TYPE => ipv6(packet)?,
            _ => return None,
        };
        let tcp = packet.get(header..)?;
        let offset = usize::from(tcp.get(12)? >> 4) * 4;
        let payload = total.checked_sub(header + offset)?;
        if total > room || offset < TCP_LEAST || tcp.len() < offset {
            return None;
        }
        let [source, destination] = ips;
        Some(Self {
            source: SocketAddr::new(source, u16_at(tcp, 0)?),
            destination: SocketAddr::new(destination, u16_at(tcp, 2)?),
            seq: u32_at(tcp, 4)?,
            ack: u32_at(tcp, 8)?,
            flags: *tcp.get(13)?,
            payload: u32::try_from(payload).ok()?,
        })
    }

    pub(crate) fn is_reset(&self) -> bool {
        self.flags & RST != 0
    }

    /// Whether it is the first of a connection.
    pub(crate) fn begins_a_connection(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// The sequence number behind the segment. SYN and FIN take one each (RFC 9293 §3.4).
    pub(crate) fn end(&self) -> u32 {
        let controls = (self.flags & (SYN | FIN)).count_ones();
        self.seq.wrapping_add(self.payload).wrapping_add(controls)
    }

    /// The acknowledgment number, if it has one.
    pub(crate) fn acknowledges(&self) -> Option<u32> {
        (self.flags & ACK != 0).then_some(self.ack)
    }

    /// The RST that a host sends where no connection has the segment (RFC 9293 §3.10.7.1).
    pub(crate) fn answer(&self) -> Reset {
        let (seq, ack) = match self.acknowledges() {
            Some(ack) => (ack, None),
            None => (0, Some(self.end())),
        };
        Reset {
            from: self.destination,
            to: self.source,
            seq,
            ack,
        }
    }
}

/// A segment with RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reset {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) seq: u32,
    pub(crate) ack: Option<u32>,
}

impl Reset {
    /// Its frame, for the station with an Ethernet address.
    pub(crate) fn frame(&self, station: MacAddress) -> Head {
        let tcp = TcpRepr {
            src_port: self.from.port(),
            dst_port: self.to.port(),
            control: TcpControl::Rst,
            seq_number: number(self.seq),
            ack_number: self.ack.map(number),
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        };
        let (from, to) = (self.from.ip().into(), self.to.ip().into());
        let ip = IpRepr::new(from, to, IpProtocol::Tcp, tcp.buffer_len(), HOP_LIMIT);
        let (header, checksums) = (ip.header_len(), ChecksumCapabilities::default());
        Head::copied(ETHERNET + header + tcp.buffer_len(), |frame| {
            let (ethernet, packet) = frame.split_at_mut(ETHERNET);
            readdress(ethernet, station);
            let kind = if self.from.is_ipv4() {
                IPV4_TYPE
            } else {
                IPV6_TYPE
            };
            ethernet[12..].copy_from_slice(&kind);
            ip.emit(&mut *packet, &checksums);
            let mut segment = TcpPacket::new_unchecked(&mut packet[header..]);
            tcp.emit(&mut segment, &from, &to, &checksums);
        })
    }
}

/// Addresses a frame to a station, from the switch.
pub(crate) fn readdress(frame: &mut [u8], station: MacAddress) {
    if let Some(to) = frame.get_mut(..6) {
        to.copy_from_slice(&station);
    }
    if let Some(from) = frame.get_mut(6..12) {
        from.copy_from_slice(&SWITCH);
    }
}

fn number(value: u32) -> TcpSeqNumber {
    TcpSeqNumber(value.cast_signed())
}

/// Source and destination, bytes of the header, and of the packet.
type Packet = ([IpAddr; 2], usize, usize);

fn ipv4(packet: &[u8]) -> Option<Packet> {
    let first = *packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let address = |at: usize| {
        let bytes: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(bytes)))
    };
    let whole = u16_at(packet, 6)? & FRAGMENT == 0;
    let fits = first >> 4 == 4 && header >= 20 && *packet.get(9)? == TCP;
    let total = usize::from(u16_at(packet, 2)?);
    (whole && fits).then_some(([address(12)?, address(16)?], header, total))
}

fn ipv6(packet: &[u8]) -> Option<Packet> {
    let address = |at: usize| {
        let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(bytes)))
    };
    let fits = packet.first()? >> 4 == 6 && *packet.get(6)? == TCP;
    let total = IPV6 + usize::from(u16_at(packet, 4)?);
    fits.then_some(([address(8)?, address(24)?], IPV6, total))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?.try_into().ok()?;
    Some(u16::from_be_bytes(bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes))
}

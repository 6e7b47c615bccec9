//! Headers of sent segments, written in front of the payload in the frame.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TCP_HEADER_LEN, TcpControl, TcpOption,
    TcpPacket,
};
use xwarp_driver::PartialSum;

use crate::wire::checksum::Sum;
use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;
use crate::wire::seq::Seq;

/// Hop limit that IANA recommends.
pub(super) const HOP_LIMIT: u8 = 64;
/// Codepoint of an ECN-capable transport (RFC 3168 §5).
pub(super) const ECT_0: u8 = 0b10;
/// Offset of the checksum in a TCP header (RFC 9293 §3.1).
pub(crate) const CHECKSUM_AT: usize = 16;
/// Length in bytes of the timestamps option with its padding (RFC 7323 appendix A).
pub(crate) const TIMESTAMP_LEN: usize = 12;
/// First word of this option: NOP, NOP, kind, length.
pub(super) const TIMESTAMP_HEAD: [u8; 4] = [1, 1, 8, 10];

/// Fields of a TCP header that differ from segment to segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) control: TcpControl,
    pub(crate) seq: Seq,
    pub(crate) ack: Option<Seq>,
    pub(crate) window: u16,
    pub(crate) options: OutOptions,
    pub(crate) ece: bool,
    pub(crate) cwr: bool,
    /// The packet is ECN-capable.
    pub(crate) ect: bool,
    /// Sum of the payload, if known.
    pub(crate) payload_sum: Option<PartialSum>,
}

impl Header {
    /// RFC 9293 §3.5.2, group 1: a RST that the sender of `segment` accepts.
    pub(crate) fn reset_for(segment: &Segment) -> Self {
        let (seq, ack) = match segment.ack {
            Some(ack) => (ack, None),
            None => (Seq::default(), Some(segment.seq + segment.len())),
        };
        Self {
            control: TcpControl::Rst,
            seq,
            ack,
            window: 0,
            options: OutOptions::default(),
            ece: false,
            cwr: false,
            ect: false,
            payload_sum: None,
        }
    }
}

/// Who computes the checksum of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checksum {
    /// The stack, with the headers.
    Computed,
    /// The NIC: the field gets the sum of the pseudo-header.
    Left,
    /// No part of the sender: the field gets 0, as the receiver trusts the frame.
    Omitted,
}

/// TCP options to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) shift: Option<u8>,
    pub(crate) sack_permitted: bool,
    pub(crate) timestamp: Option<(u32, u32)>,
    pub(crate) sack: [Option<(u32, u32)>; 3],
}

impl OutOptions {
    /// Length in bytes, with padding: a multiple of 4, at most 40.
    pub(crate) fn len(&self) -> usize {
        let blocks = self.sack.iter().flatten().count();
        let mut len = 0;
        len += if self.mss.is_some() { 4 } else { 0 };
        len += if self.shift.is_some() { 4 } else { 0 };
        len += match (self.sack_permitted, self.timestamp) {
            (_, Some(_)) => TIMESTAMP_LEN,
            (true, None) => 4,
            (false, None) => 0,
        };
        len + if blocks > 0 { 4 + 8 * blocks } else { 0 }
    }

    /// The timestamps, if no other option is present.
    #[inline]
    pub(super) fn timestamp_alone(&self) -> Option<(u32, u32)> {
        let others = self.mss.is_some()
            || self.shift.is_some()
            || self.sack_permitted
            || self.sack.iter().any(Option::is_some);
        self.timestamp.filter(|_| !others)
    }

    /// Writes the options, each group padded to 4 bytes.
    fn emit(&self, at: &mut [u8]) {
        match (self.timestamp, at.as_chunks_mut()) {
            // As in nearly all segments.
            (Some((tsval, tsecr)), ([head, value, echo], [])) if !self.sack_permitted => {
                (*head, *value, *echo) = (TIMESTAMP_HEAD, tsval.to_be_bytes(), tsecr.to_be_bytes());
            }
            _ => self.emit_each(at),
        }
    }

    /// Writes the options in the usual order.
    fn emit_each(&self, mut at: &mut [u8]) {
        let nop = TcpOption::NoOperation;
        if let Some(mss) = self.mss {
            at = TcpOption::MaxSegmentSize(mss).emit(at);
        }
        if self.sack_permitted {
            if self.timestamp.is_none() {
                at = nop.emit(nop.emit(at));
            }
            at = TcpOption::SackPermitted.emit(at);
        }
        if let Some((tsval, tsecr)) = self.timestamp {
            if !self.sack_permitted {
                at = nop.emit(nop.emit(at));
            }
            at = TcpOption::TimeStamp { tsval, tsecr }.emit(at);
        }
        if let Some(shift) = self.shift {
            at = TcpOption::WindowScale(shift).emit(nop.emit(at));
        }
        if self.sack.iter().any(Option::is_some) {
            TcpOption::SackRange(self.sack).emit(nop.emit(nop.emit(at)));
        }
    }
}

/// Writes the IP and TCP headers of `packet`, whose length is that of the slice, and the checksums
/// over all of it.
pub(super) fn emit(packet: &mut [u8], flow: &Flow, header: &Header, checksum: Checksum) {
    let source = flow.local.addr;
    let destination = flow.remote.addr;
    let ip_len = flow.ip_header_len();
    let ip = IpRepr::new(
        source,
        destination,
        IpProtocol::Tcp,
        packet.len() - ip_len,
        HOP_LIMIT,
    );
    ip.emit(&mut *packet, &ChecksumCapabilities::default());
    if header.ect {
        mark_ect(packet, source);
    }
    let (_, tcp) = packet.split_at_mut(ip_len);
    emit_tcp(tcp, flow, header, checksum);
}

fn mark_ect(packet: &mut [u8], source: IpAddress) {
    match source {
        IpAddress::Ipv4(_) => {
            let mut packet = Ipv4Packet::new_unchecked(packet);
            packet.set_ecn(ECT_0);
            packet.fill_checksum();
        }
        IpAddress::Ipv6(_) => Ipv6Packet::new_unchecked(packet).set_traffic_class(ECT_0),
    }
}

fn emit_tcp(bytes: &mut [u8], flow: &Flow, header: &Header, checksum: Checksum) {
    let options_len = header.options.len();
    let mut tcp = TcpPacket::new_unchecked(&mut *bytes);
    tcp.set_src_port(flow.local.port);
    tcp.set_dst_port(flow.remote.port);
    tcp.set_seq_number(header.seq.into());
    tcp.set_ack_number(header.ack.unwrap_or_default().into());
    tcp.clear_flags();
    // At most 60: the options' length is bounded.
    tcp.set_header_len(u8::try_from(TCP_HEADER_LEN + options_len).unwrap_or(u8::MAX));
    match header.control {
        TcpControl::None => {}
        TcpControl::Psh => tcp.set_psh(true),
        TcpControl::Syn => tcp.set_syn(true),
        TcpControl::Fin => tcp.set_fin(true),
        TcpControl::Rst => tcp.set_rst(true),
    }
    tcp.set_ack(header.ack.is_some());
    tcp.set_ece(header.ece);
    tcp.set_cwr(header.cwr);
    tcp.set_window_len(header.window);
    tcp.set_urgent_at(0);
    header.options.emit(tcp.options_mut());
    tcp.set_checksum(0);
    let sum = Sum::pseudo_header(flow.local.addr, flow.remote.addr, bytes.len());
    let checksum = match checksum {
        Checksum::Computed => sum.and(bytes).checksum(),
        Checksum::Left => sum.left(),
        Checksum::Omitted => [0, 0],
    };
    TcpPacket::new_unchecked(bytes).set_checksum(u16::from_be_bytes(checksum));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ethernet::{self, LinkHeader};
    use crate::wire::inbound;
    use crate::wire::seq::from_raw;

    fn written(options: OutOptions) -> Vec<u8> {
        let mut bytes = vec![0xee; options.len()];
        options.emit(&mut bytes);
        bytes
    }

    #[test]
    fn options_of_a_syn_are_padded_as_most_hosts_do() {
        let mut options = OutOptions {
            mss: Some(1460),
            shift: Some(3),
            sack_permitted: true,
            timestamp: Some((0x0102_0304, 5)),
            ..OutOptions::default()
        };
        #[rustfmt::skip]
        assert_eq!(written(options), [
            2, 4, 0x05, 0xb4,
            4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 5,
            1, 3, 3, 3,
        ]);
        options.timestamp = None;
        assert_eq!(written(options), [2, 4, 0x05, 0xb4, 1, 1, 4, 2, 1, 3, 3, 3]);
    }

    #[test]
    fn lone_timestamp_is_laid_out_as_recommended() {
        let options = OutOptions {
            timestamp: Some((0x0102_0304, 5)),
            ..OutOptions::default()
        };
        let expected = [1, 1, 8, 10, 1, 2, 3, 4, 0, 0, 0, 5]; // RFC 7323 appendix A
        assert_eq!(written(options), expected);
        let mut bytes = [0xee; TIMESTAMP_LEN];
        options.emit_each(&mut bytes);
        assert_eq!(bytes, expected, "either way");
    }

    #[test]
    fn three_blocks_and_a_timestamp_fill_the_option_space() {
        let options = OutOptions {
            timestamp: Some((1, 2)),
            sack: [Some((10, 20)), Some((30, 40)), Some((50, 60))],
            ..OutOptions::default()
        };
        let bytes = written(options);
        assert_eq!(bytes.len(), 40);
        assert_eq!(bytes[..4], [1, 1, 8, 10]);
        assert_eq!(bytes[12..24], [1, 1, 5, 26, 0, 0, 0, 10, 0, 0, 0, 20]);
    }

    #[test]
    fn largest_packets_are_written_as_they_are_read() {
        for (local, remote, ethertype) in [
            ("10.0.0.1:1", "10.0.0.2:2", ethernet::IPV4),
            ("[fd00::1]:1", "[fd00::2]:2", ethernet::IPV6),
        ] {
            let endpoint = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().into();
            let flow = Flow {
                local: endpoint(local),
                remote: endpoint(remote),
            };
            let header = Header {
                control: TcpControl::Psh,
                seq: from_raw(4),
                ack: Some(from_raw(5)),
                window: 6,
                options: OutOptions {
                    timestamp: Some((1, 2)),
                    ..OutOptions::default()
                },
                ece: false,
                cwr: false,
                ect: true,
                payload_sum: None,
            };
            let head = flow.ip_header_len() + TCP_HEADER_LEN + header.options.len();
            let link = LinkHeader::new([2; 6], [4; 6], ethertype);
            let mut frame = link.to_vec();
            frame.resize(link.len() + 65_535, 0xa5);
            emit(&mut frame[link.len()..], &flow, &header, Checksum::Computed);
            let segment = inbound::parse(&frame, [2; 6], false).unwrap();
            assert_eq!(segment.payload, link.len() + head..frame.len());
            assert_eq!(segment.options.timestamp, Some((1, 2)));
        }
    }
}

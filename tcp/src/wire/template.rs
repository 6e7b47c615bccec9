//! Header template: the constant part of a connection's ordinary segments, with its checksums
//! (decision record tcp/0017).

use smoltcp::wire::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, IpAddress, IpProtocol, TCP_HEADER_LEN, TcpControl,
};

use xwarp_driver::PartialSum;

use super::checksum::Sum;
use super::ethernet::LinkHeader;
use super::flow::Flow;
use super::outbound::{self, Checksum, ECT_0, HOP_LIMIT, Header, TIMESTAMP_HEAD};
use super::seq::raw;

/// Words of 4 bytes, as they are on the wire.
type Words<const N: usize> = [[u8; 4]; N];

/// The data offset of an ordinary segment, in the upper half of its byte: 8 words, the last three
/// of them timestamps.
const DATA_OFFSET: u8 = 8 << 4;
/// Flags of the TCP header (RFC 9293 §3.1).
const CWR: u8 = 1 << 7;
const ECE: u8 = 1 << 6;
const ACK: u8 = 1 << 4;
const PSH: u8 = 1 << 3;
/// Version and header length in words of an IPv4 header without options (RFC 791 §3.1).
const VERSION_4: u8 = 0x45;
/// Version of an IPv6 header (RFC 8200 §3), in the upper half of its byte.
const VERSION_6: u8 = 6 << 4;
/// Do not fragment (RFC 791 §3.1).
const DF: u8 = 1 << 6;

/// Template of the headers of a connection's segments. A segment with an ACK, timestamps and no
/// other option is written in one piece; smoltcp writes all others.
#[derive(Debug)]
pub(crate) struct HeaderTemplate {
    link: LinkHeader,
    flow: Flow,
    ip: IpTemplate,
    /// Length in bytes of the IP header.
    ip_len: usize,
    /// Segments carry TCP checksums. Otherwise the field is 0.
    is_summed: bool,
    ports: [u8; 4],
    /// Sum of the pseudo-header without the length.
    pseudo_header: Sum,
    /// Sum of the pseudo-header, the ports and the option's head.
    tcp_sum: Sum,
}

#[derive(Debug)]
enum IpTemplate {
    V4(Ipv4Template),
    V6(Ipv6Template),
}

#[derive(Debug)]
struct Ipv4Template {
    source: [u8; 4],
    destination: [u8; 4],
    /// Sum of all fields except length and codepoint.
    sum: Sum,
}

#[derive(Debug)]
struct Ipv6Template {
    source: [u8; 16],
    destination: [u8; 16],
}

/// A kind of checksum, for functions that are compiled for each.
trait Kind {
    const CHECKSUM: Checksum;
}

struct Computed;
struct Left;
struct Omitted;

impl Kind for Computed {
    const CHECKSUM: Checksum = Checksum::Computed;
}

impl Kind for Left {
    const CHECKSUM: Checksum = Checksum::Left;
}

impl Kind for Omitted {
    const CHECKSUM: Checksum = Checksum::Omitted;
}

/// The fields in which ordinary segments differ.
#[derive(Clone, Copy)]
struct VaryingFields {
    seq: [u8; 4],
    ack: [u8; 4],
    /// Data offset, flags, window.
    control: [u8; 4],
    tsval: [u8; 4],
    tsecr: [u8; 4],
    payload_sum: Option<PartialSum>,
}

impl VaryingFields {
    /// The fields of an ordinary segment, or `None` for any other.
    #[inline]
    fn of(header: &Header) -> Option<Self> {
        let psh = match header.control {
            TcpControl::None => 0,
            TcpControl::Psh => PSH,
            TcpControl::Syn | TcpControl::Fin | TcpControl::Rst => return None,
        };
        let (tsval, tsecr) = header.options.timestamp_alone()?;
        let ecn = if header.ece { ECE } else { 0 } | if header.cwr { CWR } else { 0 };
        let [high, low] = header.window.to_be_bytes();
        Some(Self {
            seq: raw(header.seq).to_be_bytes(),
            ack: raw(header.ack?).to_be_bytes(),
            control: [DATA_OFFSET, ACK | psh | ecn, high, low],
            tsval: tsval.to_be_bytes(),
            tsecr: tsecr.to_be_bytes(),
            payload_sum: header.payload_sum,
        })
    }
}

impl HeaderTemplate {
    pub(crate) fn new(link: LinkHeader, flow: Flow) -> Self {
        let [local, remote] = [flow.local, flow.remote].map(|end| end.port.to_be_bytes());
        let ports = [local[0], local[1], remote[0], remote[1]];
        let pseudo_header = Sum::pseudo_header(flow.local.addr, flow.remote.addr, 0);
        Self {
            link,
            ip: IpTemplate::new(&flow),
            ip_len: flow.ip_header_len(),
            is_summed: true,
            flow,
            ports,
            pseudo_header,
            tcp_sum: pseudo_header.and_words(&[ports, TIMESTAMP_HEAD]),
        }
    }

    /// The Ethernet header.
    pub(crate) fn link(&self) -> &LinkHeader {
        &self.link
    }

    /// The connection's 4-tuple.
    pub(crate) fn flow(&self) -> &Flow {
        &self.flow
    }

    /// True if segments carry TCP checksums.
    pub(crate) fn is_summed(&self) -> bool {
        self.is_summed
    }

    /// Sets whether segments carry TCP checksums, as they do at first.
    pub(crate) fn set_summed(&mut self, is_summed: bool) {
        self.is_summed = is_summed;
    }

    /// Sets the source Ethernet address.
    pub(crate) fn set_source(&mut self, mac: [u8; 6]) {
        self.link.set_source(mac);
    }

    /// Sets the destination Ethernet address. Returns false if it was set already, or if frames go
    /// to their own source.
    pub(crate) fn set_destination(&mut self, mac: [u8; 6]) -> bool {
        self.link.set_destination(mac)
    }

    /// True if frames go to their own source.
    pub(crate) fn leads_back(&self) -> bool {
        self.link.leads_back()
    }

    /// Offset of the TCP header in a frame.
    pub(crate) fn tcp_at(&self) -> usize {
        self.link.len() + self.ip_len
    }

    /// Length in bytes of all headers with `options` bytes of TCP options.
    pub(crate) fn header_len(&self, options: usize) -> usize {
        self.tcp_at() + TCP_HEADER_LEN + options
    }

    /// Writes all headers of `frame`, whose length is that of the slice, and the checksums over all
    /// of it, unless segments carry no checksum of TCP.
    #[inline]
    pub(crate) fn emit(&self, frame: &mut [u8], header: &Header) {
        if self.is_summed {
            self.emit_with::<Computed>(frame, header);
        } else {
            self.emit_unsummed(frame, header);
        }
    }

    /// Writes all headers of `frame`, with a checksum of TCP that is 0.
    #[inline(never)]
    fn emit_unsummed(&self, frame: &mut [u8], header: &Header) {
        self.emit_with::<Omitted>(frame, header);
    }

    /// Writes all headers of `frame`, but leaves the checksum of TCP to the NIC.
    #[inline(never)]
    pub(crate) fn emit_left(&self, frame: &mut [u8], header: &Header) {
        self.emit_with::<Left>(frame, header);
    }

    /// One function per kind of checksum, so that the kind is not tested in it.
    #[inline]
    fn emit_with<K: Kind>(&self, frame: &mut [u8], header: &Header) {
        let (link, packet) = frame.split_at_mut(self.link.len());
        link.copy_from_slice(&self.link);
        let written = VaryingFields::of(header)
            .and_then(|varying| self.emit_ordinary::<K>(packet, &varying, header.ect));
        if written.is_none() {
            outbound::emit(packet, &self.flow, header, K::CHECKSUM);
        }
    }

    /// Writes the IP and TCP headers of an ordinary segment. Returns `None` if the segment does not
    /// fit into a packet.
    #[inline]
    fn emit_ordinary<K: Kind>(
        &self,
        packet: &mut [u8],
        varying: &VaryingFields,
        ect: bool,
    ) -> Option<()> {
        let ecn = if ect { ECT_0 } else { 0 };
        let (ip, tcp) = packet.split_at_mut_checked(self.ip_len)?;
        match &self.ip {
            IpTemplate::V4(template) => template.emit(ip, tcp.len(), ecn)?,
            IpTemplate::V6(template) => template.emit(ip, tcp.len(), ecn)?,
        }
        self.emit_tcp::<K>(tcp, varying)
    }

    #[inline]
    fn emit_tcp<K: Kind>(&self, tcp: &mut [u8], varying: &VaryingFields) -> Option<()> {
        let [high, low] = u16::try_from(tcp.len()).ok()?.to_be_bytes();
        let VaryingFields {
            seq,
            ack,
            control,
            tsval,
            tsecr,
            payload_sum,
        } = *varying;
        let (head, payload) = tcp.split_first_chunk_mut::<{ 4 * 8 }>()?;
        let differs = [seq, ack, control, tsval, tsecr, [0, 0, high, low]];
        let [first, second] = self.checksum::<K>(&differs, payload_sum, payload);
        let checksum = [first, second, 0, 0]; // nothing is urgent
        let words: Words<8> = [
            self.ports,
            seq,
            ack,
            control,
            checksum,
            TIMESTAMP_HEAD,
            tsval,
            tsecr,
        ];
        head.copy_from_slice(words.as_flattened());
        Some(())
    }

    /// Value of the checksum field: the checksum, the sum of the pseudo-header, or 0. `differs`: the
    /// words in which segments differ, the length last.
    #[inline]
    fn checksum<K: Kind>(
        &self,
        differs: &Words<6>,
        payload_sum: Option<PartialSum>,
        payload: &[u8],
    ) -> [u8; 2] {
        match K::CHECKSUM {
            Checksum::Computed => {}
            Checksum::Left => {
                let [.., len] = *differs;
                return self.pseudo_header.and_words(&[len]).left();
            }
            Checksum::Omitted => return [0, 0],
        }
        let sum = self.tcp_sum.and_words(differs);
        let checksum = match payload_sum {
            Some(known) => sum.and_sum(known).checksum(),
            None => sum.and(payload).checksum(),
        };
        debug_assert_eq!(checksum, sum.and(payload).checksum());
        checksum
    }
}

impl IpTemplate {
    fn new(flow: &Flow) -> Self {
        let in_ipv6 = |address: IpAddress| match address {
            IpAddress::Ipv4(address) => address.to_ipv6_mapped().octets(),
            IpAddress::Ipv6(address) => address.octets(),
        };
        match (flow.local.addr, flow.remote.addr) {
            (IpAddress::Ipv4(source), IpAddress::Ipv4(destination)) => {
                Self::V4(Ipv4Template::new(source.octets(), destination.octets()))
            }
            (source, destination) => Self::V6(Ipv6Template {
                source: in_ipv6(source),
                destination: in_ipv6(destination),
            }),
        }
    }
}

impl Ipv4Template {
    fn new(source: [u8; 4], destination: [u8; 4]) -> Self {
        let protocol = [HOP_LIMIT, IpProtocol::Tcp.into(), 0, 0];
        let first = [VERSION_4, 0, 0, 0];
        let same = [first, [0, 0, DF, 0], protocol, source, destination];
        Self {
            source,
            destination,
            sum: Sum::default().and_words(&same),
        }
    }

    /// Writes the header in front of `len` bytes. Returns `None` if `ip` is too short or `len` too
    /// large.
    #[inline]
    fn emit(&self, ip: &mut [u8], len: usize, ecn: u8) -> Option<()> {
        let [high, low] = u16::try_from(ip.len() + len).ok()?.to_be_bytes();
        let sum = self.sum.and_words(&[[0, ecn, high, low]]);
        let [first, second] = sum.checksum();
        let words: Words<5> = [
            [VERSION_4, ecn, high, low],
            [0, 0, DF, 0],
            [HOP_LIMIT, IpProtocol::Tcp.into(), first, second],
            self.source,
            self.destination,
        ];
        *ip.first_chunk_mut::<IPV4_HEADER_LEN>()? = *words.as_flattened().first_chunk()?;
        Some(())
    }
}

impl Ipv6Template {
    /// Writes the header in front of `len` bytes. Returns `None` if `ip` is too short or `len` too
    /// large.
    #[inline]
    fn emit(&self, ip: &mut [u8], len: usize, ecn: u8) -> Option<()> {
        let [high, low] = u16::try_from(len).ok()?.to_be_bytes();
        let (head, addresses) = ip
            .first_chunk_mut::<IPV6_HEADER_LEN>()?
            .split_first_chunk_mut::<8>()?;
        // The traffic class lies across two bytes (RFC 8200 §3).
        let words: Words<2> = [
            [VERSION_6, ecn << 4, 0, 0],
            [high, low, IpProtocol::Tcp.into(), HOP_LIMIT],
        ];
        *head = *words.as_flattened().first_chunk::<8>()?;
        addresses.copy_from_slice([self.source, self.destination].as_flattened());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;
    use xwarp_driver::Digest;

    use super::*;
    use crate::wire::ethernet::{IPV4, IPV6};
    use crate::wire::outbound::OutOptions;
    use crate::wire::seq::from_raw;

    fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
        prop_oneof![
            any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
            any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
        ]
    }

    fn flow() -> impl Strategy<Value = Flow> {
        (addresses(), any::<(u16, u16)>()).prop_map(|((local, remote), ports)| Flow {
            local: SocketAddr::new(local, ports.0).into(),
            remote: SocketAddr::new(remote, ports.1).into(),
        })
    }

    fn options() -> impl Strategy<Value = OutOptions> {
        let timestamp = prop::option::weighted(0.9, any::<(u32, u32)>());
        let others = any::<(Option<u16>, Option<u8>, bool, Option<(u32, u32)>)>();
        (timestamp, prop::option::weighted(0.3, others)).prop_map(|(timestamp, others)| {
            let (mss, shift, sack_permitted, block) = others.unwrap_or_default();
            OutOptions {
                mss,
                shift,
                sack_permitted,
                timestamp,
                sack: [block, None, None],
            }
        })
    }

    fn header() -> impl Strategy<Value = Header> {
        let control = prop::sample::select(vec![
            TcpControl::None,
            TcpControl::Psh,
            TcpControl::Psh,
            TcpControl::Syn,
            TcpControl::Fin,
            TcpControl::Rst,
        ]);
        let ack = prop::option::weighted(0.9, any::<u32>());
        (
            control,
            any::<u32>(),
            ack,
            any::<u16>(),
            options(),
            any::<[bool; 3]>(),
        )
            .prop_map(
                |(control, seq, ack, window, options, [ece, cwr, ect])| Header {
                    control,
                    seq: from_raw(seq),
                    ack: ack.map(from_raw),
                    window,
                    options,
                    ece,
                    cwr,
                    ect,
                    payload_sum: None,
                },
            )
    }

    fn payload() -> impl Strategy<Value = Vec<u8>> {
        let lens = prop_oneof![
            Just(0_usize),
            1..5_usize,
            0..300_usize,
            Just(1448),
            Just(9001)
        ];
        // Miri takes minutes to draw long ones.
        let longest = if cfg!(miri) { 70 } else { usize::MAX };
        lens.prop_flat_map(move |len| prop::collection::vec(any::<u8>(), len.min(longest)))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 1024 }))]

        /// The result does not depend on the frame's former bytes.
        #[test]
        fn template_writes_what_smoltcp_writes(
            flow in flow(),
            header in header(),
            payload in payload(),
            before: u8,
            is_sum_known: bool,
            kind in prop::sample::select(&[Checksum::Computed, Checksum::Left, Checksum::Omitted][..]),
        ) {
            let mut digest = Digest::default();
            digest.add(&payload);
            let payload_sum = is_sum_known.then(|| digest.checksum());
            let header = Header { payload_sum, ..header };
            let ethertype = if flow.ip_header_len() == IPV4_HEADER_LEN { IPV4 } else { IPV6 };
            let link = LinkHeader::new([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], ethertype);
            let mut template = HeaderTemplate::new(link.clone(), flow);
            template.set_summed(kind != Checksum::Omitted);
            let mut frame = vec![before; template.header_len(header.options.len())];
            frame.extend(payload);
            let mut expected = frame.clone();
            match kind {
                Checksum::Left => template.emit_left(&mut frame, &header),
                Checksum::Computed | Checksum::Omitted => template.emit(&mut frame, &header),
            }
            expected[..link.len()].copy_from_slice(&link);
            outbound::emit(&mut expected[link.len()..], &flow, &header, kind);
            prop_assert_eq!(frame, expected);
        }

        /// Shows that the test above covers both ways to write.
        #[test]
        fn ordinary_is_what_has_an_ack_and_timestamps_alone(header in header()) {
            let data = matches!(header.control, TcpControl::None | TcpControl::Psh);
            let options = &header.options;
            let alone = options.timestamp.is_some() && options.len() == outbound::TIMESTAMP_LEN;
            let ordinary = data && header.ack.is_some() && alone && !options.sack_permitted;
            prop_assert_eq!(VaryingFields::of(&header).is_some(), ordinary);
        }
    }
}

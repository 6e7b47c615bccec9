//! Segment parser: verifies a received frame once, and extracts its TCP segment.
//!
//! Steered frames bypass the kernel's checks, so the parser makes them all: decision record
//! tcp/0015.

use std::ops::Range;

use smoltcp::wire::{
    IPV4_HEADER_LEN, IpAddress, IpEndpoint, IpProtocol, Ipv4Packet, Ipv6Packet, TcpControl,
    TcpOption, TcpPacket,
};

use crate::wire::checksum::Sum;
use crate::wire::discard::Discard;
use crate::wire::ethernet::{Framed, IPV4, IPV6};
use crate::wire::extensions;
use crate::wire::flow::Flow;
use crate::wire::ip_options;
use crate::wire::seq::{Seq, from_raw};

/// ECN codepoint of a packet that met congestion (RFC 3168 §5).
pub(super) const CONGESTION_EXPERIENCED: u8 = 0b11;
/// Largest shift count; larger ones mean this (RFC 7323 §2.3).
const MAX_SHIFT: u8 = 14;

/// A TCP segment with valid checksums, or of a trusted frame. Its payload stays in the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) flow: Flow,
    pub(crate) control: TcpControl,
    pub(crate) seq: Seq,
    pub(crate) ack: Option<Seq>,
    /// The window field, not scaled.
    pub(crate) window: u16,
    pub(crate) options: Options,
    /// Range of the payload in the frame.
    pub(crate) payload: Range<usize>,
    pub(crate) ecn: Ecn,
}

/// TCP options of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) mss: Option<u16>,
    /// Shift count of the sender's windows.
    pub(crate) shift: Option<u8>,
    pub(crate) sack_permitted: bool,
    /// Left and right edges (RFC 2018 §3); the first three of up to four blocks.
    pub(crate) sack: [Option<(Seq, Seq)>; 3],
    /// `TSval` and `TSecr` (RFC 7323 §3.2).
    pub(crate) timestamp: Option<(u32, u32)>,
}

/// ECN flags of a segment (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ecn {
    /// The packet met congestion.
    pub(crate) ce: bool,
    pub(crate) ece: bool,
    pub(crate) cwr: bool,
}

impl Segment {
    pub(crate) fn is_reset(&self) -> bool {
        self.control == TcpControl::Rst
    }

    /// True for a SYN without ACK: the first segment of a connection.
    pub(crate) fn opens(&self) -> bool {
        self.control == TcpControl::Syn && self.ack.is_none()
    }

    /// True for a SYN-ACK.
    pub(crate) fn answers_syn(&self) -> bool {
        self.has_syn() && self.ack.is_some()
    }

    pub(crate) fn has_fin(&self) -> bool {
        self.control == TcpControl::Fin
    }

    pub(crate) fn has_syn(&self) -> bool {
        self.control == TcpControl::Syn
    }

    /// Length in sequence numbers (SEG.LEN, RFC 9293 §3.3.1).
    pub(crate) fn len(&self) -> usize {
        self.payload.len() + usize::from(self.has_syn() || self.has_fin())
    }
}

/// An IP packet with a consistent header.
struct Packet<'a> {
    source: IpAddress,
    destination: IpAddress,
    /// Length in bytes of the IP header, including extension headers.
    header: usize,
    ce: bool,
    payload: &'a [u8],
}

/// Parses the TCP segment in a frame for `station`. If it is trusted, its TCP checksum is not
/// verified. Whether the addresses are possible is checked later, only for the first segment of a
/// flow.
pub(crate) fn parse(frame: &[u8], station: [u8; 6], is_trusted: bool) -> Result<Segment, Discard> {
    let framed = Framed::parse(frame).ok_or(Discard::NotIp)?;
    admit(&framed, station)?;
    let packet = match framed.ethertype {
        IPV4 => parse_ipv4(framed.payload)?,
        IPV6 => parse_ipv6(framed.payload)?,
        _ => return Err(Discard::NotIp),
    };
    let at = framed.header_len() + packet.header;
    parse_tcp(&packet, at, is_trusted)
}

/// Parses a RST whose checksum its sender left to a NIC that has not computed it. The kernel's RSTs
/// by IPv6 on a veth are such. Returns `None` for any other frame. The checksum field then verifies
/// addresses and length only.
pub(crate) fn parse_unsummed_reset(frame: &[u8], station: [u8; 6]) -> Option<Segment> {
    let framed = Framed::parse(frame)?;
    admit(&framed, station).ok()?;
    let packet = match framed.ethertype {
        IPV4 => parse_ipv4(framed.payload),
        IPV6 => parse_ipv6(framed.payload),
        _ => return None,
    };
    let packet = packet.ok()?;
    let at = framed.header_len() + packet.header;
    let tcp = TcpPacket::new_checked(packet.payload).ok()?;
    let sum = Sum::pseudo_header(packet.source, packet.destination, packet.payload.len());
    let segment = read_tcp(&packet, &tcp, at).ok()?;
    (sum.is_left_as(tcp.checksum()) && segment.is_reset()).then_some(segment)
}

/// Checks that the frame is for this host. The kernel's IP accepts no other frame
/// (`PACKET_OTHERHOST`), and TCP is unicast (RFC 9293 §3.9.2.3).
fn admit(framed: &Framed<'_>, station: [u8; 6]) -> Result<(), Discard> {
    if framed.is_for(station) && !framed.is_tagged() {
        return Ok(());
    }
    admit_seldom(framed, station)
}

/// Checks unusual frames.
#[cold]
fn admit_seldom(framed: &Framed<'_>, station: [u8; 6]) -> Result<(), Discard> {
    if !framed.is_unicast() {
        return Err(Discard::NotUnicast);
    }
    if !framed.is_for(station) {
        return Err(Discard::OtherStation);
    }
    if framed.is_of_a_vlan() {
        return Err(Discard::Vlan);
    }
    Ok(())
}

fn parse_ipv4(bytes: &[u8]) -> Result<Packet<'_>, Discard> {
    let packet = Ipv4Packet::new_checked(bytes).map_err(|_| Discard::BadIp)?;
    if packet.version() != 4 {
        return Err(Discard::BadIp);
    }
    let header = bytes.get(..usize::from(packet.header_len()));
    if !Sum::default().and(header.unwrap_or_default()).is_valid() {
        return Err(Discard::BadChecksum);
    }
    if packet.more_frags() || packet.frag_offset() != 0 {
        return Err(Discard::Fragment); // a fragment is not the whole packet
    }
    if packet.next_header() != IpProtocol::Tcp {
        return Err(Discard::NotTcp);
    }
    if usize::from(packet.header_len()) > IPV4_HEADER_LEN {
        let options = header.and_then(|header| header.get(IPV4_HEADER_LEN..));
        ip_options::check(options.unwrap_or_default())?;
    }
    Ok(Packet {
        source: packet.src_addr().into(),
        destination: packet.dst_addr().into(),
        header: usize::from(packet.header_len()),
        ce: packet.ecn() == CONGESTION_EXPERIENCED,
        payload: packet.payload(),
    })
}

fn parse_ipv6(bytes: &[u8]) -> Result<Packet<'_>, Discard> {
    let packet = Ipv6Packet::new_checked(bytes).map_err(|_| Discard::BadIp)?;
    if packet.version() != 6 {
        return Err(Discard::BadIp);
    }
    let payload = packet.payload();
    let extensions = extensions::skip(packet.next_header().into(), payload)?;
    Ok(Packet {
        source: packet.src_addr().into(),
        destination: packet.dst_addr().into(),
        header: packet.header_len() + extensions,
        ce: packet.traffic_class() & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED,
        payload: payload.get(extensions..).unwrap_or_default(),
    })
}

/// Parses the segment in `packet`, whose TCP header begins at `at` in the frame.
fn parse_tcp(packet: &Packet<'_>, at: usize, is_trusted: bool) -> Result<Segment, Discard> {
    let source = packet.source;
    let destination = packet.destination;
    let tcp = TcpPacket::new_checked(packet.payload).map_err(|_| Discard::BadTcp)?;
    let sum = Sum::pseudo_header(source, destination, packet.payload.len());
    if !is_trusted && !sum.and(packet.payload).is_valid() {
        return Err(Discard::of_checksum(sum.is_left_as(tcp.checksum())));
    }
    read_tcp(packet, &tcp, at)
}

/// Reads the segment in `tcp`, whose checksum is verified or of no use.
fn read_tcp(packet: &Packet<'_>, tcp: &TcpPacket<&[u8]>, at: usize) -> Result<Segment, Discard> {
    let source = packet.source;
    let destination = packet.destination;
    if tcp.src_port() == 0 || tcp.dst_port() == 0 {
        return Err(Discard::BadTcp);
    }
    let begin = at + usize::from(tcp.header_len());
    Ok(Segment {
        flow: Flow {
            local: IpEndpoint::new(destination, tcp.dst_port()),
            remote: IpEndpoint::new(source, tcp.src_port()),
        },
        control: control(tcp)?,
        seq: tcp.seq_number().into(),
        ack: tcp.ack().then(|| tcp.ack_number().into()),
        window: tcp.window_len(),
        options: options(tcp.options()),
        payload: begin..begin + tcp.payload().len(),
        ecn: Ecn {
            ce: packet.ce,
            ece: tcp.ece(),
            cwr: tcp.cwr(),
        },
    })
}

/// At most one of SYN, FIN and RST is valid. URG is ignored.
fn control(tcp: &TcpPacket<&[u8]>) -> Result<TcpControl, Discard> {
    match (tcp.syn(), tcp.fin(), tcp.rst(), tcp.psh()) {
        (false, false, false, false) => Ok(TcpControl::None),
        (false, false, false, true) => Ok(TcpControl::Psh),
        (true, false, false, _) => Ok(TcpControl::Syn),
        (false, true, false, _) => Ok(TcpControl::Fin),
        (false, false, true, _) => Ok(TcpControl::Rst),
        _ => Err(Discard::BadTcp),
    }
}

/// The known options. An option of the wrong length is ignored, and so is everything behind an
/// impossible length (RFC 9293 §3.1, MUST-7).
fn options(mut bytes: &[u8]) -> Options {
    let mut options = Options::default();
    while !bytes.is_empty() {
        let Ok((rest, option)) = TcpOption::parse(bytes) else {
            let Some(rest) = behind_option(bytes) else {
                break;
            };
            bytes = rest;
            continue;
        };
        match option {
            TcpOption::EndOfList => break,
            TcpOption::MaxSegmentSize(mss) => options.mss = Some(mss).filter(|mss| *mss != 0),
            TcpOption::WindowScale(shift) => options.shift = Some(shift.min(MAX_SHIFT)),
            TcpOption::SackPermitted => options.sack_permitted = true,
            TcpOption::SackRange(blocks) => {
                let edges = |(left, right)| (from_raw(left), from_raw(right));
                options.sack = blocks.map(|block| block.map(edges));
            }
            TcpOption::TimeStamp { tsval, tsecr } => options.timestamp = Some((tsval, tsecr)),
            TcpOption::NoOperation | TcpOption::Unknown { .. } => {}
        }
        bytes = rest;
    }
    options
}

/// The bytes behind the first option, or `None` if its length is impossible.
fn behind_option(bytes: &[u8]) -> Option<&[u8]> {
    let len = bytes.get(1).copied().filter(|len| *len >= 2)?;
    bytes.get(usize::from(len)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The receiving station.
    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// A SYN from 10.0.0.2:49152 to 10.0.0.1:80 in a minimal Ethernet frame.
    #[rustfmt::skip]
    const SYN: [u8; 60] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00,
        // 44 bytes, DF, TTL 64, TCP
        0x45, 0x00, 0x00, 0x2c, 0x00, 0x00, 0x40, 0x00, 0x40, 0x06, 0x26, 0xca,
        10, 0, 0, 2, 10, 0, 0, 1,
        0xc0, 0x00, 0x00, 0x50,                         // ports
        0x00, 0x00, 0x03, 0xe8, 0x00, 0x00, 0x00, 0x00, // sequence 1000, no acknowledgment
        0x60, 0x02, 0xfa, 0xf0, 0xc4, 0xfa, 0x00, 0x00, // 6 words, SYN, window 64240
        0x02, 0x04, 0x05, 0xb4,                         // MSS 1460
        0xff, 0xff,                                     // Ethernet padding
    ];

    fn parse(frame: &[u8], station: [u8; 6]) -> Result<Segment, Discard> {
        super::parse(frame, station, false)
    }

    fn changed(change: impl FnOnce(&mut [u8])) -> Result<Segment, Discard> {
        let mut frame = SYN.to_vec();
        change(&mut frame);
        parse(&frame, MAC)
    }

    #[test]
    fn syn_is_understood_and_its_padding_ignored() {
        let segment = parse(&SYN, MAC).unwrap();
        assert_eq!((segment.payload.clone(), segment.len()), (58..58, 1));
        assert_eq!(segment.flow.local.to_string(), "10.0.0.1:80");
        assert_eq!(segment.flow.remote.to_string(), "10.0.0.2:49152");
        assert_eq!(segment.options.mss, Some(1460));
        assert!(segment.opens() && !segment.is_reset());
    }

    #[test]
    fn each_cause_is_told_apart() {
        let cause = |change: fn(&mut [u8])| changed(change).map(|_| ()).unwrap_err();
        assert_eq!(cause(|f| f[12] = 0x09), Discard::NotIp);
        assert_eq!(cause(|f| f[0] = 0x03), Discard::NotUnicast);
        assert_eq!(cause(|f| f[..6].fill(0xff)), Discard::NotUnicast);
        assert_eq!(cause(|f| f[5] ^= 2), Discard::OtherStation);
        assert_eq!(cause(|f| f[0] ^= 2), Discard::OtherStation);
        assert_eq!(cause(|f| f[14] = 0x65), Discard::BadIp);
        assert_eq!(cause(|f| f[17] = 0x2f), Discard::BadIp);
        assert_eq!(cause(|f| f[24] ^= 1), Discard::BadChecksum);
        assert_eq!(cause(|f| f[50] ^= 1), Discard::BadChecksum);
        // 10.0.0.2, 10.0.0.1, protocol 6 and 24 bytes add up to 0x1421.
        assert_eq!(
            cause(|f| (f[50], f[51]) = (0x14, 0x21)),
            Discard::PartialChecksum
        );
        assert_eq!(
            cause(|f| (f[50], f[51]) = (0xeb, 0xde)),
            Discard::BadChecksum
        );
        // More fragments, TTL less 32: the sum stays the same.
        assert_eq!(cause(|f| (f[20], f[22]) = (0x60, 0x20)), Discard::Fragment);
        // UDP instead of TCP, TTL 63 and 245: the sum of the word goes from 0x4006 to 0x4011.
        assert_eq!(cause(|f| (f[23], f[25]) = (0x11, 0xbf)), Discard::NotTcp);
        // A data offset of 4 words.
        assert_eq!(cause(|f| f[46] = 0x40), Discard::BadTcp);
    }

    /// The SYN with `tags` between its Ethernet addresses and its type.
    fn tagged(tags: &[u8]) -> Vec<u8> {
        [&SYN[..12], tags, &SYN[12..]].concat()
    }

    #[test]
    fn frame_of_a_vlan_is_not_ours_and_one_with_a_priority_is() {
        let vlan: [&[u8]; 4] = [
            &[0x81, 0x00, 0x00, 0x05],
            &[0x88, 0xa8, 0x0f, 0xff],
            &[0x81, 0x00, 0x00, 0x05, 0x81, 0x00, 0x00, 0x00],
            &[0x81, 0x00, 0x00, 0x00, 0x81, 0x00, 0x00, 0x05],
        ];
        for tags in vlan {
            let refused = parse(&tagged(tags), MAC).map(|_| ());
            assert_eq!(refused, Err(Discard::Vlan), "{tags:02x?}");
        }
        for tags in [
            &[0x81, 0x00, 0xe0, 0x00][..],
            &[0x88, 0xa8, 0, 0, 0x81, 0, 0, 0],
        ] {
            let segment = parse(&tagged(tags), MAC).unwrap();
            assert_eq!(segment.payload, 58 + tags.len()..58 + tags.len());
        }
    }

    /// The SYN with 8 bytes of options in its IP header.
    fn with_options(options: [u8; 8]) -> Vec<u8> {
        let mut frame = [&SYN[..34], &options, &SYN[34..]].concat();
        (frame[14], frame[17]) = (0x47, 0x34);
        frame[24..26].fill(0);
        let sum = (frame[14..42].chunks(2)).fold(0, |sum, word| {
            sum + u32::from(u16::from_be_bytes([word[0], word[1]]))
        });
        let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    #[test]
    fn ipv4_options_are_stepped_over_if_they_are_sound() {
        let segment = parse(&with_options([1, 1, 1, 1, 148, 4, 0, 0]), MAC).unwrap();
        assert_eq!(segment.options.mss, Some(1460));
        assert_eq!(segment.payload, 66..66);
        let cause = |options| parse(&with_options(options), MAC).map(|_| ()).unwrap_err();
        let route = cause([0x83, 7, 4, 10, 88, 0, 1, 0]);
        assert_eq!(route, Discard::SourceRoute);
        assert_eq!(cause([0xff; 8]), Discard::BadIpOption);
    }

    /// A SYN from `fd88::77` to `fd88::2` behind hop-by-hop options (a router alert) and
    /// destination options (padding).
    #[rustfmt::skip]
    const EXTENDED: [u8; 90] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd,
        0x60, 0, 0, 0, 0x00, 0x24, 0x00, 0x40,              // 36 bytes, hop-by-hop options first
        0xfd, 0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77,
        0xfd, 0x88, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02,
        60, 0, 5, 2, 0, 0, 1, 0,                            // destination options follow
        6, 0, 1, 4, 0, 0, 0, 0,                             // TCP follows
        0x9c, 0x40, 0x1c, 0x06, 0, 0, 0, 1, 0, 0, 0, 0,     // port 40000 to 7174, sequence 1
        0x50, 0x02, 0xff, 0xff, 0xfc, 0x10, 0, 0,           // SYN
    ];

    #[test]
    fn segment_behind_ipv6_extension_headers_is_understood() {
        let segment = parse(&EXTENDED, MAC).unwrap();
        assert_eq!(segment.flow.local.to_string(), "fd88::2:7174");
        assert_eq!(segment.flow.remote.to_string(), "fd88::77:40000");
        assert!(segment.opens() && segment.payload == (90..90));
        let changed = |at: usize, byte| {
            let mut frame = EXTENDED;
            frame[at] = byte;
            parse(&frame, MAC).map(|_| ()).unwrap_err()
        };
        assert_eq!(changed(64, 0xc2), Discard::BadExtension);
        assert_eq!(changed(62, 17), Discard::NotTcp);
        assert_eq!(changed(54, 0), Discard::BadExtension);
        assert_eq!(changed(89, 1), Discard::BadChecksum);
        for len in 0..EXTENDED.len() {
            assert!(parse(&EXTENDED[..len], MAC).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn every_byte_counts() {
        for at in 14..58 {
            for bit in 0..8 {
                let result = changed(|frame| frame[at] ^= 1 << bit);
                assert!(result.is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn truncated_frame_is_refused_at_every_length() {
        for len in 0..58 {
            assert!(parse(&SYN[..len], MAC).is_err(), "{len} bytes");
        }
    }
    /// Options of a SYN, and the result of parsing them.
    #[rustfmt::skip]
    const SYN_OPTIONS: [u8; 20] = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 3, 7];

    fn options_of_syn() -> Options {
        Options {
            mss: Some(1460),
            shift: Some(7),
            sack_permitted: true,
            timestamp: Some((1, 2)),
            ..Options::default()
        }
    }

    #[test]
    fn options_are_understood_up_to_a_length_that_cannot_be() {
        let all = options_of_syn();
        assert_eq!(options(&SYN_OPTIONS), all);
        let and = |more: &[u8]| options(&[&SYN_OPTIONS[..], more].concat());
        let bad: [&[u8]; 8] = [
            &[0x22, 0, 2, 4, 1, 1], // length 0
            &[0x22, 1, 2, 4, 1, 1], // length 1
            &[2, 0, 2, 4, 1, 1],    // a known one of length 0
            &[0x22, 7, 2, 4, 1, 1], // one byte beyond the end
            &[2, 5, 9, 1],          // an MSS that ends beyond
            &[0xff; 20],            // length 255
            &[0x22],                // no length
            &[0, 2, 4, 1, 1],       // behind the end of the list
        ];
        for more in bad {
            assert_eq!(and(more), all, "{more:?}");
        }
        let wrong: [&[u8]; 7] = [
            &[2, 3, 5],                   // MSS
            &[2, 5, 5, 5, 5],             // MSS
            &[3, 2],                      // window scale
            &[4, 3, 0],                   // SACK permitted
            &[8, 9, 0, 0, 0, 0, 0, 0, 0], // timestamps
            &[5, 6, 0, 0, 0, 1],          // half a SACK block
            &[5, 2],                      // no SACK block
        ];
        for wrong in wrong {
            let found = options(&[wrong, &SYN_OPTIONS].concat());
            assert_eq!(found, all, "behind {wrong:?}");
        }
        assert_eq!(options(&[2, 4, 0, 0]), Options::default(), "an MSS of 0");
        let blocks = options(&[1, 1, 5, 10, 0, 0, 0, 5, 0, 0, 0, 9]).sack;
        assert_eq!(blocks, [Some((from_raw(5), from_raw(9))), None, None]);
    }

    proptest::proptest! {
        #[test]
        fn no_options_panic(bytes in proptest::collection::vec(0_u8..=255, 0..=40)) {
            options(&bytes);
        }
    }
}

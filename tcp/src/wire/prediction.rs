//! Header prediction: parses an ordinary segment by comparing its header in place. Nearly all
//! segments have an ACK, timestamps and nothing unusual. The general parser is
//! [`inbound`](super::inbound); see decision record tcp/0017.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use smoltcp::wire::{IPV6_HEADER_LEN, IpAddress, IpEndpoint, IpProtocol, TcpControl};

use super::checksum::Sum;
use super::ethernet::{IPV4, IPV6};
use super::flow::Flow;
use super::inbound::{CONGESTION_EXPERIENCED, Ecn, Options, Segment};
use super::outbound::TIMESTAMP_HEAD;
use super::seq::from_raw;

/// Length in bytes of an untagged Ethernet header.
const LINK: usize = 14;
/// Length in bytes of an ordinary segment's TCP header, whose only option is timestamps.
const TCP: usize = 32;
/// Data offset of such a header, in the upper half of its byte.
const DATA_OFFSET: u8 = 8 << 4;
/// The version of an IPv4 header without options, and its length in words.
const PLAIN_IPV4: u8 = 0x45;
const TCP_PROTOCOL: u8 = 6;
/// Offset in an IPv4 header of flags, fragment offset, TTL and protocol (RFC 791 §3.1).
const FRAGMENT_AT: usize = 6;
/// Of these, More Fragments, the fragment offset and the protocol, and their value in a packet that
/// is no fragment and carries TCP. One comparison tests all of them.
const WHOLE_TCP_MASK: u32 = u32::from_ne_bytes([0x3f, 0xff, 0, 0xff]);
const WHOLE_TCP: u32 = u32::from_ne_bytes([0, 0, 0, TCP_PROTOCOL]);
/// Flags of the TCP header (RFC 9293 §3.1).
const CWR: u8 = 1 << 7;
const ECE: u8 = 1 << 6;
const ACK: u8 = 1 << 4;
const PSH: u8 = 1 << 3;
/// RST, SYN and FIN: a segment with one of these flags is not ordinary.
const CONTROL: u8 = 0b111;

/// Parses the TCP segment in a frame for `station`, if it is an ordinary one with valid checksums.
/// The result equals that of [`inbound::parse`](super::inbound::parse), which parses all other
/// segments. A checksum of 0 is not ordinary: the frame may be trusted, and need not be summed.
#[inline]
pub(crate) fn parse(frame: &[u8], station: [u8; 6]) -> Option<Segment> {
    parse_with::<false>(frame, station)
}

/// Parses the TCP segment in a trusted frame for `station`, if it is an ordinary one, whatever its
/// checksum is.
pub(crate) fn parse_trusted(frame: &[u8], station: [u8; 6]) -> Option<Segment> {
    parse_with::<true>(frame, station)
}

#[inline]
fn parse_with<const TRUSTED: bool>(frame: &[u8], station: [u8; 6]) -> Option<Segment> {
    let (link, packet) = frame.split_first_chunk::<LINK>()?;
    if link.first_chunk() != Some(&station) {
        return None;
    }
    match u16::from_be_bytes(*link.last_chunk()?) {
        IPV4 => parse_ipv4::<TRUSTED>(packet),
        IPV6 => parse_ipv6::<TRUSTED>(packet),
        _ => None,
    }
}

fn parse_ipv4<const TRUSTED: bool>(packet: &[u8]) -> Option<Segment> {
    let (ip, rest) = packet.split_first_chunk()?;
    let words = words::<20, 5>(ip)?;
    let [first, _, _, source, destination] = words;
    let [PLAIN_IPV4, tos, high, low] = *first else {
        return None;
    };
    let whole_tcp = u32::from_ne_bytes(*ip.get(FRAGMENT_AT..)?.first_chunk()?);
    if whole_tcp & WHOLE_TCP_MASK != WHOLE_TCP {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([high, low])).checked_sub(ip.len())?;
    let bytes = rest.get(..len)?;
    if !Sum::default().and_words(words).is_valid() {
        return None;
    }
    let sum = Sum::default().and_words(&[*source, *destination]);
    let addresses = [source, destination].map(|bytes| Ipv4Addr::from(*bytes).into());
    parse_tcp::<TRUSTED>(bytes, LINK + ip.len(), addresses, sum, tos)
}

fn parse_ipv6<const TRUSTED: bool>(packet: &[u8]) -> Option<Segment> {
    let (ip, rest) = packet.split_first_chunk::<IPV6_HEADER_LEN>()?;
    let words = words::<40, 10>(ip)?;
    let [first, second, addresses @ ..] = words;
    let [high, low, TCP_PROTOCOL, _] = *second else {
        return None;
    };
    let bytes = rest.get(..usize::from(u16::from_be_bytes([high, low])))?;
    if first[0] >> 4 != 6 {
        return None;
    }
    let sum = Sum::default().and_words(addresses);
    let (source, destination) = addresses.as_flattened().split_first_chunk::<16>()?;
    let destination = destination.first_chunk::<16>()?;
    let addresses = [source, destination].map(|bytes| Ipv6Addr::from(*bytes).into());
    // The traffic class lies across two bytes (RFC 8200 §3).
    parse_tcp::<TRUSTED>(bytes, LINK + ip.len(), addresses, sum, first[1] >> 4)
}

/// Parses the segment in `bytes`, which begin at `at` in the frame. `sum`: the sum of `addresses`.
/// `ecn`: a byte that ends in the codepoint.
#[inline]
fn parse_tcp<const TRUSTED: bool>(
    bytes: &[u8],
    at: usize,
    addresses: [IpAddress; 2],
    sum: Sum,
    ecn: u8,
) -> Option<Segment> {
    let (header, payload) = bytes.split_first_chunk()?;
    let words = words::<TCP, 8>(header)?;
    let [ports, _, _, control, checksum, kind, _, _] = words;
    let [DATA_OFFSET, flags, ..] = *control else {
        return None;
    };
    let [from, to] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
    if *kind != TIMESTAMP_HEAD || flags & CONTROL != 0 || from == 0 || to == 0 {
        return None;
    }
    let [high, low] = u16::try_from(bytes.len()).ok()?.to_be_bytes();
    let sum = sum.and_words(&[[0, IpProtocol::Tcp.into(), high, low]]);
    let is_acceptable = || {
        let has_checksum = checksum[..2] != [0, 0];
        has_checksum && sum.and_words(words).and(payload).is_valid()
    };
    if !TRUSTED && !is_acceptable() {
        return None;
    }
    let [source, destination] = addresses;
    let flow = Flow {
        local: IpEndpoint::new(destination, to),
        remote: IpEndpoint::new(source, from),
    };
    let place = at + TCP..at + bytes.len();
    Some(segment(flow, words, place, ecn))
}

/// The segment that these header words describe.
#[inline]
fn segment(flow: Flow, header: &[[u8; 4]; 8], payload: Range<usize>, ecn: u8) -> Segment {
    let [_, seq, ack, control, _, _, tsval, tsecr] = header.map(u32::from_be_bytes);
    let [_, flags, window @ ..] = control.to_be_bytes();
    Segment {
        flow,
        control: match flags & PSH {
            0 => TcpControl::None,
            _ => TcpControl::Psh,
        },
        seq: from_raw(seq),
        ack: (flags & ACK != 0).then(|| from_raw(ack)),
        window: u16::from_be_bytes(window),
        options: Options {
            timestamp: Some((tsval, tsecr)),
            ..Options::default()
        },
        payload,
        ecn: Ecn {
            ce: ecn & CONGESTION_EXPERIENCED == CONGESTION_EXPERIENCED,
            ece: flags & ECE != 0,
            cwr: flags & CWR != 0,
        },
    }
}

/// Splits off a header of `N` words of 4 bytes. Returns `None` if `bytes` is too short.
#[inline]
fn words<const BYTES: usize, const N: usize>(header: &[u8; BYTES]) -> Option<&[[u8; 4]; N]> {
    let (words, _) = header.as_chunks();
    words.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::discard::Discard;
    use crate::wire::ethernet::LinkHeader;
    use crate::wire::inbound;
    use crate::wire::outbound::{Header, OutOptions};
    use crate::wire::template::HeaderTemplate;

    const STATION: [u8; 6] = [2, 0, 0, 0, 0, 1];
    /// Length in bytes of Ethernet, IPv6 and TCP headers, in which most changes are made.
    const HEADERS: usize = LINK + IPV6_HEADER_LEN + TCP;

    /// A frame with a segment between these ports, for the station.
    fn frame(v6: bool, header: &Header, payload: &[u8], ports: (u16, u16)) -> Vec<u8> {
        let (ethertype, [from, to]) = if v6 {
            (IPV6, ["fd00::2", "fd00::1"])
        } else {
            (IPV4, ["10.0.0.2", "10.0.0.1"])
        };
        let endpoint = |address: &str, port| SocketAddr::new(address.parse().unwrap(), port).into();
        let flow = Flow {
            local: endpoint(from, ports.0),
            remote: endpoint(to, ports.1),
        };
        let link = LinkHeader::new(STATION, [2, 0, 0, 0, 0, 2], ethertype);
        let template = HeaderTemplate::new(link, flow);
        let mut frame = vec![0; template.header_len(header.options.len())];
        frame.extend(payload);
        template.emit(&mut frame, header);
        frame
    }

    fn ordinary_header() -> Header {
        Header {
            control: TcpControl::Psh,
            seq: from_raw(1000),
            ack: Some(from_raw(7)),
            window: 512,
            options: OutOptions {
                timestamp: Some((3, 4)),
                ..OutOptions::default()
            },
            ece: false,
            cwr: false,
            ect: false,
            payload_sum: None,
        }
    }

    fn header() -> impl Strategy<Value = Header> {
        let control = prop::sample::select(vec![
            TcpControl::None,
            TcpControl::Psh,
            TcpControl::Psh,
            TcpControl::Psh,
            TcpControl::Fin,
            TcpControl::Rst,
        ]);
        let block = prop::option::weighted(0.1, any::<(u32, u32)>());
        let numbers = any::<(u32, u32, u16, u32, u32)>();
        (
            control,
            numbers,
            block,
            any::<[bool; 3]>(),
            prop::bool::weighted(0.9),
        )
            .prop_map(
                |(control, (seq, ack, window, tsval, tsecr), block, [ece, cwr, ect], has_ack)| {
                    Header {
                        control,
                        seq: from_raw(seq),
                        ack: has_ack.then(|| from_raw(ack)),
                        window,
                        options: OutOptions {
                            timestamp: Some((tsval, tsecr)),
                            sack: [block, None, None],
                            ..OutOptions::default()
                        },
                        ece,
                        cwr,
                        ect,
                        payload_sum: None,
                    }
                },
            )
    }

    /// A frame as received, or with bytes of its headers changed or cut off. Its checksums may
    /// still be right.
    fn received() -> impl Strategy<Value = Vec<u8>> {
        let whole = (any::<bool>(), header(), 0..80_usize, 0..9_usize, 0..3_u16);
        let changes = prop::collection::vec((0..HEADERS, any::<u8>()), 0..3);
        let cut = prop_oneof![3 => Just(0_usize), 1 => 1..100_usize];
        (whole, changes, cut, any::<bool>()).prop_map(
            |((v6, header, len, padding, port), changes, cut, mend)| {
                let payload: Vec<u8> = (0..len).map(|at| u8::try_from(at).unwrap()).collect();
                let mut frame = frame(v6, &header, &payload, (port, 4791));
                for (at, value) in changes {
                    if let Some(byte) = frame.get_mut(at) {
                        *byte = value;
                    }
                }
                if mend {
                    repair_checksums(&mut frame, v6);
                }
                frame.resize(frame.len() + padding, 0xee);
                frame.truncate(frame.len() - cut.min(frame.len()));
                frame
            },
        )
    }

    /// Repairs the checksums, as far as the lengths are unchanged.
    fn repair_checksums(frame: &mut [u8], v6: bool) {
        let ip = if v6 { IPV6_HEADER_LEN } else { 20 };
        let (head, tcp) = frame[LINK..].split_at_mut(ip);
        let addresses = if v6 { 8..40 } else { 12..20 };
        let len = u16::try_from(tcp.len()).unwrap().to_be_bytes();
        tcp[16..18].fill(0);
        let sum = Sum::default()
            .and(&head[addresses])
            .and(&[0, 6, len[0], len[1]]);
        let checksum = sum.and(tcp).checksum();
        tcp[16..18].copy_from_slice(&checksum);
        if !v6 {
            head[10..12].fill(0);
            let checksum = Sum::default().and(head).checksum();
            head[10..12].copy_from_slice(&checksum);
        }
    }

    #[test]
    fn ordinary_segments_are_predicted() {
        for v6 in [false, true] {
            for payload in [&[][..], b"bytes"] {
                let frame = frame(v6, &ordinary_header(), payload, (40_000, 4791));
                let segment = parse(&frame, STATION).unwrap();
                assert_eq!(&frame[segment.payload.clone()], payload);
                assert_eq!(segment, inbound::parse(&frame, STATION, false).unwrap());
                assert!(parse(&frame, [4; 6]).is_none());
            }
        }
    }

    /// Replaces the checksum of an ordinary segment.
    fn with_checksum(frame: &mut [u8], v6: bool, checksum: [u8; 2]) {
        let at = LINK + if v6 { IPV6_HEADER_LEN } else { 20 } + 16;
        frame[at..at + 2].copy_from_slice(&checksum);
    }

    #[test]
    fn trusted_segment_needs_no_checksum_and_all_others_do() {
        for (v6, checksum) in [
            (false, [0, 0]),
            (true, [0, 0]),
            (false, [1, 2]),
            (true, [1, 2]),
        ] {
            let mut frame = frame(v6, &ordinary_header(), b"bytes", (40_000, 4791));
            let segment = parse(&frame, STATION).unwrap();
            with_checksum(&mut frame, v6, checksum);
            assert_eq!(parse(&frame, STATION), None);
            let refused = inbound::parse(&frame, STATION, false);
            assert_eq!(refused, Err(Discard::BadChecksum));
            assert_eq!(parse_trusted(&frame, STATION).unwrap(), segment);
            assert_eq!(inbound::parse(&frame, STATION, true).unwrap(), segment);
            assert_eq!(parse_trusted(&frame, [4; 6]), None);
        }
    }

    /// A correct checksum of 0 is left to the parser of all segments.
    #[test]
    fn checksum_that_happens_to_be_zero_is_right() {
        for v6 in [false, true] {
            let at = LINK + if v6 { IPV6_HEADER_LEN } else { 20 } + 16;
            let with_timestamp = |tsval: u16| {
                let mut header = ordinary_header();
                header.options.timestamp = Some((tsval.into(), 4));
                frame(v6, &header, b"bytes", (40_000, 4791))
            };
            let before = with_timestamp(0);
            // The checksum is the complement of the sum: added to the sum, it makes all ones.
            let missing = u16::from_be_bytes([before[at], before[at + 1]]);
            let frame = with_timestamp(missing);
            assert_eq!(frame[at..at + 2], [0, 0]);
            assert_eq!(parse(&frame, STATION), None);
            let segment = inbound::parse(&frame, STATION, false).unwrap();
            assert_eq!(&frame[segment.payload], b"bytes");
        }
    }

    /// Miri takes a second for a few of them.
    const STEP: usize = if cfg!(miri) { 61 } else { 1 };

    #[test]
    fn every_bit_of_an_ordinary_segment_counts() {
        for (v6, repairs) in [(false, false), (false, true), (true, false), (true, true)] {
            let frame = frame(v6, &ordinary_header(), b"bytes", (40_000, 4791));
            for at in (0..frame.len() * 8).step_by(STEP) {
                let mut changed = frame.clone();
                changed[at / 8] ^= 1 << (at % 8);
                // Otherwise the checksum would be refused before the fields that it covers.
                if repairs {
                    repair_checksums(&mut changed, v6);
                }
                let verdict = inbound::parse(&changed, STATION, false);
                let predicted = parse(&changed, STATION);
                assert_eq!(predicted.map_or(verdict.clone(), Ok), verdict, "bit {at}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]

        #[test]
        fn verdict_is_the_one_of_smoltcps_codecs(frame in received()) {
            let verdict = inbound::parse(&frame, STATION, false);
            prop_assert_eq!(parse(&frame, STATION).map_or(verdict.clone(), Ok), verdict);
        }

        #[test]
        fn verdict_on_arbitrary_bytes_is_the_one_of_smoltcps_codecs(
            v6: bool,
            bytes in prop::collection::vec(any::<u8>(), 0..120),
        ) {
            let ethertype = if v6 { IPV6 } else { IPV4 };
            let link = LinkHeader::new(STATION, [2; 6], ethertype);
            let frame = [&link, &bytes[..]].concat();
            let verdict = inbound::parse(&frame, STATION, false);
            prop_assert_eq!(parse(&frame, STATION).map_or(verdict.clone(), Ok), verdict);
        }
    }
}

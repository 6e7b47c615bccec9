//! The XDP program run by the kernel on single frames (`BPF_PROG_TEST_RUN`), with a real `AF_XDP`
//! socket in slot 0. Needs root.

mod frames;
mod kernel;
mod maps;

use frames::*;
use kernel::{Kernel, PASS, REDIRECT};
use xwarp_bpf::{Buffers, Verdict};
use xwarp_test_kit::needs_root;

fn segment() -> Vec<u8> {
    tcp(PORT, PSH_ACK, b"ping")
}

fn v4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(IPV4, &ipv4(protocol, payload))
}

fn v6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(IPV6, &ipv6(next_header, payload))
}

/// A segment of ours behind these IPv6 extension headers.
fn extended(kinds: &[u8]) -> Vec<u8> {
    ethernet(IPV6, &ipv6_with_extensions(kinds, &segment()))
}

/// Where the first extension header of [`extended`] begins.
const EXTENSION: usize = ETHERNET_LEN + 40;

/// A segment of ours behind tags of these kinds, outermost first, with priorities and no VLAN.
fn tagged(kinds: &[u16]) -> Vec<u8> {
    let (mut kind, mut payload) = (IPV4, ipv4(TCP, &segment()));
    for &outer in kinds.iter().rev() {
        payload = tag(kind, &payload);
        kind = outer;
    }
    ethernet(kind, &payload)
}

/// Runs every frame through both programs and checks the action and that exactly the expected
/// counter moved, by one.
#[track_caller]
fn check<const N: usize>(expected: Verdict, cases: &[(&str, Vec<u8>); N]) {
    for kernel in Kernel::both() {
        check_in(&kernel, expected, cases);
    }
}

#[track_caller]
fn check_in(kernel: &Kernel, expected: Verdict, cases: &[(&str, Vec<u8>)]) {
    let action = match expected {
        Verdict::Redirected => REDIRECT,
        _ => PASS,
    };
    for (name, frame) in cases {
        let outcome = kernel.run(frame);
        let start = &frame[..frame.len().min(128)];
        assert_eq!(outcome, (action, expected), "{name}: {start:02x?}");
    }
}

/// The kernel's test run spreads them over pages, of which the program reaches the first.
#[test]
fn frames_of_many_buffers_are_judged_by_their_whole_length() {
    needs_root!();
    let kernel = Kernel::steering(Buffers::Many);
    let jumbo = v4(TCP, &tcp(PORT, PSH_ACK, &[7; 8960]));
    let largest = v6(TCP, &tcp(PORT, PSH_ACK, &vec![7; 65_495 - TCP_LEN]));
    let cut = |frame: &[u8]| frame[..frame.len() - 1].to_vec();
    let cases = [("v4 cut", cut(&jumbo)), ("v6 cut", cut(&largest))];
    check_in(&kernel, Verdict::Truncated, &cases);
    let others = v4(TCP, &tcp(PORT + 1, PSH_ACK, &[7; 8960]));
    check_in(&kernel, Verdict::NotOurFlow, &[("another port", others)]);
    let cases = [("v4 of 9000", jumbo), ("v6 of 65535", largest)];
    check_in(&kernel, Verdict::Redirected, &cases);
}

#[test]
fn literal_syn_is_redirected() {
    needs_root!();
    let syn = vec![
        0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1, 0x08, 0x00, // IPv4
        0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, // IHL 5, 40 bytes, not fragmented, TCP
        10, 0, 0, 1, 10, 0, 0, 2, // from, to
        0x9c, 0x40, 0x12, 0x8c, 0, 0, 0, 1, 0, 0, 0, 0, // port 40000 to 4748
        0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0, // data offset 5, SYN
    ];
    check(Verdict::Redirected, &[("SYN", syn)]);
}

#[test]
fn segments_of_our_flows_are_redirected() {
    needs_root!();
    let syn = tcp_with_options(PORT, SYN, &[2, 4, 0x05, 0xb4], &[]); // MSS 1460
    let short = tcp(PORT, SYN, &[]);
    let long_header = tcp_with_options(PORT, PSH_ACK, &[1; 40], b"x");
    let with_options = |options: &[u8]| ipv4_with_options(TCP, options, &segment());
    let may_be_fragmented = patched(&v4(TCP, &segment()), ETHERNET_LEN + 6, &[0, 0]);
    check(
        Verdict::Redirected,
        &[
            ("v4 data", v4(TCP, &segment())),
            ("v4 SYN", v4(TCP, &syn)),
            ("v4 RST", v4(TCP, &tcp(PORT, RST, &[]))),
            ("v4 FIN", v4(TCP, &tcp(PORT, FIN_ACK, &[]))),
            ("v4 padded", [v4(TCP, &short), vec![0; 6]].concat()),
            ("v4 full size", v4(TCP, &tcp(PORT, PSH_ACK, &[7; 1460]))),
            ("v4 IHL 6", ethernet(IPV4, &with_options(&[1; 4]))),
            ("v4 IHL 15", ethernet(IPV4, &with_options(&[1; 40]))),
            ("v4 data offset 15", v4(TCP, &long_header)),
            ("v4 may be fragmented, is not", may_be_fragmented),
            ("v6 data", v6(TCP, &segment())),
            ("v6 SYN", v6(TCP, &syn)),
            ("v6 RST", v6(TCP, &tcp(PORT, RST, &[]))),
            ("v6 data offset 15", v6(TCP, &long_header)),
        ],
    );
}

#[test]
fn segments_behind_tags_and_extensions_are_redirected() {
    needs_root!();
    let one_of_each = [HOP_BY_HOP, DESTINATION, ROUTING, FRAGMENT, DESTINATION];
    let v6_in_tag = ethernet(VLAN, &tag(IPV6, &ipv6(TCP, &segment())));
    let extended_ip = ipv6_with_extensions(&one_of_each, &segment());
    let extended_in_tags = ethernet(QINQ, &tag(VLAN, &tag(IPV6, &extended_ip)));
    check(
        Verdict::Redirected,
        &[
            ("hop-by-hop options", extended(&[HOP_BY_HOP])),
            ("routing header, arrived", extended(&[ROUTING])),
            ("destination options", extended(&[DESTINATION])),
            ("the only fragment", extended(&[FRAGMENT])),
            (
                "its reserved bits",
                patched(&extended(&[FRAGMENT]), EXTENSION + 3, &[6]),
            ),
            ("one of each", extended(&one_of_each)),
            ("eight extensions", extended(&[DESTINATION; 8])),
            ("priority", tagged(&[VLAN])),
            ("provider's priority", tagged(&[QINQ])),
            ("two priorities", tagged(&[QINQ, VLAN])),
            ("two customers' priorities", tagged(&[VLAN, VLAN])),
            ("v6 with a priority", v6_in_tag),
            ("v6 with extensions and priorities", extended_in_tags),
        ],
    );
}

/// Tags with a VLAN's identifier, whatever is in the frame and where the tag stands.
#[test]
fn frames_of_a_vlan_pass() {
    needs_root!();
    let in_vlan = |frame: Vec<u8>, at: usize, tci: u16| patched(&frame, at, &tci.to_be_bytes());
    let (outer, inner) = (ETHERNET_LEN, ETHERNET_LEN + 4);
    check(
        Verdict::Vlan,
        &[
            ("VLAN 1", in_vlan(tagged(&[VLAN]), outer, 1)),
            ("VLAN 256", in_vlan(tagged(&[VLAN]), outer, 0x0100)),
            (
                "VLAN 4095, priority 7",
                in_vlan(tagged(&[VLAN]), outer, 0xffff),
            ),
            ("provider's VLAN", in_vlan(tagged(&[QINQ]), outer, 5)),
            ("the outer", in_vlan(tagged(&[QINQ, VLAN]), outer, 5)),
            ("the inner", in_vlan(tagged(&[QINQ, VLAN]), inner, 5)),
            (
                "ARP",
                in_vlan(ethernet(VLAN, &tag(ARP, &[0; 28])), outer, 5),
            ),
            (
                "nothing in it",
                in_vlan(ethernet(VLAN, &tag(ARP, &[])), outer, 5),
            ),
        ],
    );
}

#[test]
fn other_flows_pass() {
    needs_root!();
    let v4_frame = v4(TCP, &segment());
    let v6_frame = v6(TCP, &segment());
    let v4_dst = ETHERNET_LEN + 16;
    let v6_dst = ETHERNET_LEN + 24;
    let mapped = [&[0; 10], &[0xff, 0xff][..], &V4].concat();
    let from_ours = [V4, [10, 0, 0, 1]].concat();
    check(
        Verdict::NotOurFlow,
        &[
            ("v4 next port", v4(TCP, &tcp(PORT + 1, SYN, &[]))),
            (
                "v4 bytes of the port swapped",
                v4(TCP, &tcp(PORT.swap_bytes(), SYN, &[])),
            ),
            (
                "v4 other address",
                patched(&v4_frame, v4_dst, &[10, 0, 0, 3]),
            ),
            ("v4 from ours", patched(&v4_frame, v4_dst - 4, &from_ours)),
            ("v6 other port", v6(TCP, &tcp(22, SYN, &[]))),
            ("v6 other address", patched(&v6_frame, v6_dst + 15, &[3])),
            (
                "v6 to our v4 address, mapped",
                patched(&v6_frame, v6_dst, &mapped),
            ),
        ],
    );
    check(
        Verdict::GroupMac,
        &[
            ("broadcast", patched(&v4_frame, 0, &[0xff; 6])),
            ("multicast", patched(&v6_frame, 0, &[0x33, 0x33])),
        ],
    );
}

#[test]
fn other_protocols_pass() {
    needs_root!();
    let datagram = udp(PORT, &[0; 32]);
    check(
        Verdict::NotTcp,
        &[
            ("v4 UDP to our port", v4(UDP, &datagram)),
            ("v6 UDP to our port", v6(UDP, &datagram)),
            ("v4 ICMP", v4(ICMP, &[8, 0, 0, 0, 0, 1, 0, 1])),
            ("v6 ICMP", v6(ICMPV6, &[135, 0, 0, 0, 0, 0, 0, 0])),
            ("v6 in v4", v4(IPV6_IN_IP, &ipv6(TCP, &segment()))),
            ("v4 in v4", v4(IPV4_IN_IP, &ipv4(TCP, &segment()))),
            ("v4 authenticated", v4(AH, &segment())),
            ("v6 encrypted", v6(ESP, &segment())),
            ("v6 nothing follows", v6(NO_NEXT, &segment())),
            ("v6 authenticated", extended(&[AH])),
            (
                "v6 authenticated, with options",
                extended(&[HOP_BY_HOP, AH, DESTINATION]),
            ),
        ],
    );
    check(
        Verdict::NotIp,
        &[
            ("ARP", ethernet(ARP, &[0; 28])),
            ("length instead of a type", ethernet(46, &[0; 46])),
            ("nothing behind Ethernet", ethernet(ARP, &[])),
            ("three tags", tagged(&[QINQ, VLAN, VLAN])),
        ],
    );
}

#[test]
fn fragments_pass() {
    needs_root!();
    let whole = v4(TCP, &segment());
    let v4_fragment = |field: u16| patched(&whole, ETHERNET_LEN + 6, &field.to_be_bytes());
    let v6_fragment = |kinds: &[u8], field: u16| {
        let at = EXTENSION + 16 * (kinds.len() - 1) + 2;
        patched(&extended(kinds), at, &field.to_be_bytes())
    };
    let eighth = [&[DESTINATION; 7][..], &[FRAGMENT]].concat();
    check(
        Verdict::Fragment,
        &[
            ("v4 first", v4_fragment(0x2000)),
            ("v4 middle", v4_fragment(0x20b9)),
            ("v4 last", v4_fragment(0x00b9)),
            ("v4 highest offset", v4_fragment(0x1fff)),
            ("v6 first", v6_fragment(&[FRAGMENT], 0x0001)),
            ("v6 middle", v6_fragment(&[FRAGMENT], 0x0b91)),
            ("v6 last", v6_fragment(&[FRAGMENT], 0x0008)),
            (
                "v6 behind hop-by-hop",
                v6_fragment(&[HOP_BY_HOP, FRAGMENT], 1),
            ),
            ("v6 as the eighth header", v6_fragment(&eighth, 1)),
        ],
    );
}

#[test]
fn headers_that_contradict_themselves_pass() {
    needs_root!();
    let ip = ETHERNET_LEN;
    let v4 = |offset, bytes: &[u8]| patched(&v4(TCP, &segment()), offset, bytes);
    let v6 = |offset, bytes: &[u8]| patched(&v6(TCP, &segment()), offset, bytes);
    let data_offset = ip + 20 + 12;
    let extension = |byte, value| patched(&extended(&[DESTINATION]), ip + 40 + byte, &[value]);
    check(
        Verdict::Malformed,
        &[
            ("v4 version 5", v4(ip, &[0x55])),
            ("v4 version 6", v4(ip, &[0x65])),
            ("v6 version 4", v6(ip, &[0x40])),
            ("IHL 0", v4(ip, &[0x40])),
            ("IHL 4", v4(ip, &[0x44])),
            ("IHL beyond the total length", v4(ip, &[0x4c])),
            ("v4 total length 0", v4(ip + 2, &[0, 0])),
            ("v4 total length without TCP", v4(ip + 2, &[0, 20])),
            ("v4 total length cuts TCP", v4(ip + 2, &[0, 39])),
            ("v6 payload length 0", v6(ip + 4, &[0, 0])),
            ("v6 payload length cuts TCP", v6(ip + 4, &[0, 19])),
            ("data offset 0", v4(data_offset, &[0x00])),
            ("data offset 4", v4(data_offset, &[0x40])),
            ("data offset beyond the segment", v4(data_offset, &[0x70])),
            ("extension beyond the packet", extension(1, 9)),
            ("extension of 2048 bytes", extension(1, 255)),
            ("hop-by-hop twice", extended(&[HOP_BY_HOP, HOP_BY_HOP])),
        ],
    );
}

#[test]
fn lengths_beyond_the_frame_pass() {
    needs_root!();
    let ip = ETHERNET_LEN;
    let v4 = |total_len: u16| patched(&v4(TCP, &segment()), ip + 2, &total_len.to_be_bytes());
    let v6 = |payload_len: u16| patched(&v6(TCP, &segment()), ip + 4, &payload_len.to_be_bytes());
    check(
        Verdict::Truncated,
        &[
            ("v4 by one", v4(20 + 20 + 4 + 1)),
            ("v4 by far", v4(u16::MAX)),
            ("v6 by one", v6(20 + 4 + 1)),
            ("v6 by far", v6(u16::MAX)),
        ],
    );
}

#[test]
fn extensions_that_only_the_kernel_handles_pass() {
    needs_root!();
    let ninth = [&[DESTINATION; 8][..], &[FRAGMENT]].concat();
    let routing = |kind: u8, left: u8| patched(&extended(&[ROUTING]), EXTENSION + 2, &[kind, left]);
    check(
        Verdict::Extensions,
        &[
            ("nine", extended(&[DESTINATION; 9])),
            ("a fragment as the ninth header", extended(&ninth)),
            ("hops left", routing(0, 1)),
            ("hops left of a type to come", routing(253, 255)),
            ("mobile host", routing(2, 0)),
            ("RPL", routing(3, 0)),
            ("segment routing", routing(4, 0)),
        ],
    );
    check(
        Verdict::Redirected,
        &[("of a type to come, arrived", routing(253, 0))],
    );
}

/// The frame ends early and its length fields still describe the whole packet.
#[test]
fn frame_cut_anywhere_passes() {
    needs_root!();
    let behind_tags = tag(
        IPV6,
        &ipv6_with_extensions(&[HOP_BY_HOP, DESTINATION, ROUTING], &segment()),
    );
    let whole = [
        v4(TCP, &segment()),
        ethernet(IPV4, &ipv4_with_options(TCP, &[1; 40], &segment())),
        ethernet(QINQ, &tag(VLAN, &behind_tags)),
    ];
    for kernel in Kernel::both() {
        for frame in &whole {
            let cuts = (ETHERNET_LEN..frame.len()).map(|len| ("cut", frame[..len].to_vec()));
            check_in(&kernel, Verdict::Truncated, &cuts.collect::<Vec<_>>());
            check_in(&kernel, Verdict::Redirected, &[("whole", frame.clone())]);
        }
    }
}

/// The length fields are honest, but the segment ends early.
#[test]
fn segment_is_redirected_from_a_whole_header_on() {
    needs_root!();
    let header_len = TCP_LEN + 8;
    let segment = tcp_with_options(PORT, PSH_ACK, &[1; 8], b"ping");
    for len in 0..=segment.len() {
        let expected = if len < header_len {
            Verdict::Malformed
        } else {
            Verdict::Redirected
        };
        let extended = ipv6_with_extensions(&[DESTINATION], &segment[..len]);
        let v6 = ethernet(IPV6, &extended);
        check(expected, &[("v4", v4(TCP, &segment[..len])), ("v6", v6)]);
    }
}

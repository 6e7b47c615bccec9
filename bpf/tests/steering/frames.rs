//! Frames for the steering tests, built from the inside out. Checksums are left zero: the program
//! does not look at them.

/// The port of ours in all frames, and its addresses.
pub(crate) const PORT: u16 = 4748;
pub(crate) const V4: [u8; 4] = [10, 0, 0, 2];
pub(crate) const V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const VLAN: u16 = 0x8100;
pub(crate) const QINQ: u16 = 0x88a8;

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ICMP: u8 = 1;
pub(crate) const IPV4_IN_IP: u8 = 4;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const IPV6_IN_IP: u8 = 41;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const ESP: u8 = 50;
pub(crate) const AH: u8 = 51;
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NO_NEXT: u8 = 59;
pub(crate) const DESTINATION: u8 = 60;

pub(crate) const ETHERNET_LEN: usize = 14;
pub(crate) const TCP_LEN: usize = 20;

pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH_ACK: u8 = 0x18;
pub(crate) const FIN_ACK: u8 = 0x11;

/// Between two unicast addresses.
pub(crate) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let addresses = [0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
    [&addresses[..], &ethertype.to_be_bytes(), payload].concat()
}

/// What follows the Ethernet type of a tag: priority 7 and no VLAN, then the type of the payload.
pub(crate) fn tag(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&[0xe0, 0x00], &ethertype.to_be_bytes()[..], payload].concat()
}

/// A segment to `port` with data offset 5.
pub(crate) fn tcp(port: u16, flags: u8, data: &[u8]) -> Vec<u8> {
    tcp_with_options(port, flags, &[], data)
}

/// `options` is a multiple of four bytes.
pub(crate) fn tcp_with_options(port: u16, flags: u8, options: &[u8], data: &[u8]) -> Vec<u8> {
    let offset = u8::try_from((TCP_LEN + options.len()) / 4).unwrap() << 4;
    let fixed = [
        0, 0, 0, 1, 0, 0, 0, 2, // sequence and acknowledgment number
        offset, flags, 0xff, 0xff, // window
        0, 0, 0, 0, // checksum, urgent pointer
    ];
    let ports = [40000u16.to_be_bytes(), port.to_be_bytes()].concat();
    [&ports, &fixed[..], options, data].concat()
}

/// The same ports where TCP has them.
pub(crate) fn udp(port: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + data.len()).unwrap();
    let fields = [40000, port, len, 0].map(u16::to_be_bytes).concat();
    [&fields, data].concat()
}

/// To [`V4`].
pub(crate) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4_with_options(protocol, &[], payload)
}

/// `options` is a multiple of four bytes.
pub(crate) fn ipv4_with_options(protocol: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len();
    let version_ihl = 0x40 | u8::try_from(header_len / 4).unwrap();
    let total_len = u16::try_from(header_len + payload.len())
        .unwrap()
        .to_be_bytes();
    let fixed = [
        version_ihl,
        0,
        total_len[0],
        total_len[1], // type of service
        0,
        1,
        0x40,
        0, // identification, don't fragment
        64,
        protocol,
        0,
        0, // hop limit, checksum
        10,
        0,
        0,
        1, // source
    ];
    [&fixed, &V4[..], options, payload].concat()
}

/// To [`V6`].
pub(crate) fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let mut source = V6;
    source[15] = 1;
    let fixed = [0x60, 0, 0, 0, len[0], len[1], next_header, 64];
    [&fixed, &source[..], &V6, payload].concat()
}

/// To [`V6`], with extension headers of these kinds in this order before the segment.
pub(crate) fn ipv6_with_extensions(kinds: &[u8], segment: &[u8]) -> Vec<u8> {
    let mut next_header = TCP;
    let mut payload = segment.to_vec();
    for &kind in kinds.iter().rev() {
        payload = [&extension(kind, next_header)[..], &payload].concat();
        next_header = kind;
    }
    ipv6(next_header, &payload)
}

/// An extension header of 16 bytes, a fragment header of 8.
fn extension(kind: u8, next_header: u8) -> Vec<u8> {
    let length = match kind {
        FRAGMENT => return vec![next_header, 0, 0, 0, 0, 0, 0, 7], // first and last
        AH => 2, // in units of 4 bytes beyond the first two (RFC 4302 §2.2)
        _ => 1,  // in units of 8 bytes beyond the first (RFC 8200 §4)
    };
    let mut header = vec![0; 16];
    header[..2].copy_from_slice(&[next_header, length]);
    header
}

/// `frame` with the bytes at `offset` replaced.
pub(crate) fn patched(frame: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    frame
}

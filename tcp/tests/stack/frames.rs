//! Frames read and written by hand, independently of the stack, except for smoltcp's codec.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    IpAddress, IpProtocol, IpRepr, Ipv4Packet, Ipv6Packet, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber,
};
use xwarp_test_kit::Side;

/// A TCP header's fields and the payload's length.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // as many as the header has
pub(crate) struct Seen {
    pub(crate) syn: bool,
    pub(crate) ack: bool,
    pub(crate) fin: bool,
    pub(crate) rst: bool,
    pub(crate) psh: bool,
    pub(crate) ece: bool,
    pub(crate) cwr: bool,
    /// The codepoint of the IP header (RFC 3168 §5).
    pub(crate) ecn: u8,
    pub(crate) seq: u32,
    pub(crate) ack_number: u32,
    pub(crate) window: u16,
    pub(crate) options: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// Parses an untagged frame.
pub(crate) fn read(frame: &[u8]) -> Seen {
    let packet = &frame[14..];
    let (payload, ecn) = if packet[0] >> 4 == 4 {
        let packet = Ipv4Packet::new_checked(packet).unwrap();
        assert!(packet.verify_checksum(), "the IPv4 checksum is wrong");
        (packet.payload(), packet.ecn())
    } else {
        let packet = Ipv6Packet::new_checked(packet).unwrap();
        (packet.payload(), packet.traffic_class() & 3)
    };
    let tcp = TcpPacket::new_checked(payload).unwrap();
    Seen {
        syn: tcp.syn(),
        ack: tcp.ack(),
        fin: tcp.fin(),
        rst: tcp.rst(),
        psh: tcp.psh(),
        ece: tcp.ece(),
        cwr: tcp.cwr(),
        ecn,
        seq: tcp.seq_number().0.cast_unsigned(),
        ack_number: tcp.ack_number().0.cast_unsigned(),
        window: tcp.window_len(),
        options: tcp.options().to_vec(),
        payload: tcp.payload().to_vec(),
    }
}

/// An empty segment from 10.0.0.1:40000 to 10.0.0.2:4791 with a window of 65535.
pub(crate) fn segment(control: TcpControl, seq: u32, ack: Option<u32>) -> TcpRepr<'static> {
    let number = |n: u32| TcpSeqNumber(n.cast_signed());
    TcpRepr {
        src_port: 40_000,
        dst_port: 4791,
        control,
        seq_number: number(seq),
        ack_number: ack.map(number),
        window_len: 65535,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

/// The Ethernet frame that carries a segment from 10.0.0.1 at host a to 10.0.0.2 at host b.
pub(crate) fn write(tcp: &TcpRepr<'_>) -> Vec<u8> {
    write_between(IpAddress::v4(10, 0, 0, 1), IpAddress::v4(10, 0, 0, 2), tcp)
}

/// The Ethernet frame of a segment between these addresses.
pub(crate) fn write_between(source: IpAddress, target: IpAddress, tcp: &TcpRepr<'_>) -> Vec<u8> {
    let ip = IpRepr::new(source, target, IpProtocol::Tcp, tcp.buffer_len(), 64);
    let sums = ChecksumCapabilities::default();
    let mut packet = vec![0; ip.buffer_len()];
    ip.emit(&mut packet, &sums);
    let (_, payload) = packet.split_at_mut(ip.header_len());
    tcp.emit(
        &mut TcpPacket::new_unchecked(payload),
        &source,
        &target,
        &sums,
    );
    let ethertype = match source {
        IpAddress::Ipv4(_) => [0x08, 0x00],
        IpAddress::Ipv6(_) => [0x86, 0xdd],
    };
    [&Side::B.mac()[..], &Side::A.mac(), &ethertype, &packet].concat()
}

/// Writes the pseudo-header's sum into an untagged frame in place of its TCP checksum, like a
/// sender that leaves the checksum to its NIC.
#[allow(dead_code)] // scripts have no use for it
pub(crate) fn leave_checksum(frame: &mut [u8]) {
    let (addresses, tcp) = if frame[14] >> 4 == 4 {
        (26..34, 34)
    } else {
        (22..54, 54)
    };
    let len = u16::try_from(frame.len() - tcp)
        .expect("it fits")
        .to_be_bytes();
    let words = [&frame[addresses], &[0, 6], &len].concat();
    let words = words
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    frame[tcp + 16..tcp + 18].copy_from_slice(&folded.to_be_bytes()[2..]);
}

//! The answer to a segment of no flow.

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};

use crate::inbound::Segment;
use crate::link::LinkHeader;
use crate::lower::Lower;

/// Hop limit of answers, as IANA recommends it.
const HOP_LIMIT: u8 = 64;

/// Answers a segment of no flow with a RST, unless it is one itself.
pub(crate) fn answer(segment: &Segment<'_>, mac: [u8; 6], lower: &mut Lower) {
    if segment.is_reset() {
        return;
    }
    let tcp = reset_for(&segment.tcp);
    let (source, destination) = (segment.flow.local.addr, segment.flow.remote.addr);
    let ip = IpRepr::new(
        source,
        destination,
        IpProtocol::Tcp,
        tcp.buffer_len(),
        HOP_LIMIT,
    );
    let link = LinkHeader::answer(&segment.framed, mac);
    let sums = ChecksumCapabilities::default();
    let frame = lower.take_frame();
    lower.counters.resets_out += u64::from(frame.is_some());
    lower.send(frame, &link, ip.buffer_len(), |packet| {
        ip.emit(&mut *packet, &sums);
        let (_, payload) = packet.split_at_mut(ip.header_len());
        let mut payload = TcpPacket::new_unchecked(payload);
        tcp.emit(&mut payload, &source, &destination, &sums);
    });
}

/// RFC 9293 §3.5.2, group 1: a RST that the sender must find acceptable.
fn reset_for(tcp: &TcpRepr<'_>) -> TcpRepr<'static> {
    let acknowledged = tcp.seq_number + tcp.segment_len();
    let (seq_number, ack_number) = match tcp.ack_number {
        Some(ack) => (ack, None),
        None => (TcpSeqNumber(0), Some(acknowledged)),
    };
    TcpRepr {
        src_port: tcp.dst_port,
        dst_port: tcp.src_port,
        control: TcpControl::Rst,
        seq_number,
        ack_number,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    }
}

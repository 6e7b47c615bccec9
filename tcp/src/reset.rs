//! The answer to a segment of no flow.

use smoltcp::wire::TcpControl;

use crate::inbound::Segment;
use crate::link::LinkHeader;
use crate::lower::Lower;
use crate::outbound::{Header, OutOptions};
use crate::seq::Seq;

/// Answers a segment of no flow with a RST, unless it is one itself.
pub(crate) fn answer(segment: &Segment, link: &LinkHeader, lower: &mut Lower) {
    if segment.is_reset() {
        return;
    }
    let header = reset_for(segment);
    if lower.send_bare(link, &segment.flow, &header) {
        lower.counters.resets_out += 1;
    } else {
        lower.counters.drop_no_tx_frame += 1;
    }
}

/// RFC 9293 §3.5.2, group 1: a RST that the sender must find acceptable.
pub(crate) fn reset_for(segment: &Segment) -> Header {
    let (seq, ack) = match segment.ack {
        Some(ack) => (ack, None),
        None => (Seq::default(), Some(segment.seq + segment.len())),
    };
    Header {
        control: TcpControl::Rst,
        seq,
        ack,
        window: 0,
        options: OutOptions::default(),
        ece: false,
        cwr: false,
        ect: false,
    }
}

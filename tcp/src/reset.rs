//! The answer to a segment of no flow, and how many of these anybody can provoke.

use std::time::Duration;

use smoltcp::wire::TcpControl;

use crate::inbound::Segment;
use crate::link::LinkHeader;
use crate::lower::Lower;
use crate::outbound::{Header, OutOptions};
use crate::seq::Seq;
use crate::time::Instant;

/// RSTs that can be provoked at once after a silence: one for each connection that an RNIC can have had before it was restarted, as their
/// peers may send again at the same time.
const BURST: u32 = 16_384;
/// The time in which one more may be sent: 1000 a second.
const PERIOD: Duration = Duration::from_millis(1);

/// A limit for RSTs to segments of no flow: one for the whole stack, as there is no connection that it could belong to. Who exhausts it
/// can find out whether a flow exists, which takes nothing from it, but none of its numbers.
#[derive(Debug)]
pub(crate) struct ResetLimit {
    left: u32,
    /// Up to when what is left was made good.
    since: Instant,
}

impl ResetLimit {
    pub(crate) fn new() -> Self {
        Self {
            left: BURST,
            since: Instant::ORIGIN,
        }
    }

    /// True if one more may be sent; it is counted.
    fn allow(&mut self, now: Instant) -> bool {
        let periods = (now - self.since).as_nanos() / PERIOD.as_nanos();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(periods).min(BURST);
        self.since = self.since + PERIOD * periods;
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        allowed
    }
}

/// Answers a segment of no flow with a RST, unless it is one itself or too many have been sent.
pub(crate) fn answer(
    segment: &Segment,
    link: &LinkHeader,
    lower: &mut Lower,
    limit: &mut ResetLimit,
    now: Instant,
) {
    if segment.is_reset() {
        return;
    }
    if !limit.allow(now) {
        lower.counters.resets_withheld += 1;
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

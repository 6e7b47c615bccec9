//! RST limit: answers to segments of no flow, and how many of them anybody can provoke.

use std::time::Duration;

use crate::device::Device;
use crate::time::Instant;
use crate::wire::ethernet::LinkHeader;
use crate::wire::inbound::Segment;
use crate::wire::outbound::Header;
use crate::wire::template::HeaderTemplate;

/// RSTs that can be provoked at once after a silence. There is one for each connection that an RNIC can have had before a restart. Their
/// peers may all send again at the same time.
const BURST: u32 = 16_384;
/// The time in which one more may be sent: 1000 a second.
const PERIOD: Duration = Duration::from_millis(1);

/// A limit for RSTs to segments of no flow: one for the whole stack, as there is no connection that it could belong to. Who exhausts it
/// can find out whether a flow exists, which takes nothing from it, but none of its numbers.
#[derive(Debug)]
pub(super) struct ResetLimit {
    left: u32,
    /// Up to when what is left was made good.
    since: Instant,
}

impl ResetLimit {
    pub(super) fn new() -> Self {
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

    /// Answers a segment of no flow with a RST, unless it is one itself or too many have been sent.
    pub(super) fn answer(
        &mut self,
        segment: &Segment,
        link: &LinkHeader,
        device: &mut Device,
        now: Instant,
    ) {
        if segment.is_reset() {
            return;
        }
        if !self.allow(now) {
            device.counters_mut().resets_withheld += 1;
            return;
        }
        let header = Header::reset_for(segment);
        let template = HeaderTemplate::new(link.clone(), segment.flow);
        if device.send_bare(&template, &header) {
            device.counters_mut().resets_out += 1;
        } else {
            device.counters_mut().drop_no_tx_frame += 1;
        }
    }
}

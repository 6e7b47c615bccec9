//! RST limit: how many answers to segments of no flow an attacker can provoke.
//!
//! One token bucket per stack holds 16,384 RSTs and gains 1000 a second.
//! `StackCounters::resets_withheld` counts the RSTs that were not sent. No limit would let an
//! attacker have a RST sent for each forged segment; no RST at all would leave the honest peers of
//! a restarted RNIC waiting. Half-open connections are under the limit of challenge ACKs. SYN
//! cookies have no limit: an honest SYN looks like a forged one, and each costs one segment for
//! one.

use std::time::Duration;

use crate::device::Device;
use crate::time::Instant;
use crate::wire::ethernet::LinkHeader;
use crate::wire::inbound::Segment;
use crate::wire::outbound::Header;
use crate::wire::template::HeaderTemplate;

/// RSTs that can be provoked at once: as many as an RNIC can have had connections before a restart,
/// whose peers may all retransmit at the same time.
const BURST: u32 = 16_384;
/// Time to gain one more RST: 1000 a second.
const PERIOD: Duration = Duration::from_millis(1);

/// Limit of RSTs to segments of no flow: one for the whole stack, as they belong to no connection.
/// An attacker who exhausts it can find out whether a flow exists, but none of its numbers.
#[derive(Debug)]
pub(super) struct ResetLimit {
    left: u32,
    /// Time up to which gained RSTs are counted.
    since: Instant,
}

impl ResetLimit {
    pub(super) fn new() -> Self {
        Self {
            left: BURST,
            since: Instant::ORIGIN,
        }
    }

    /// Returns true if one more RST may be sent, and counts it.
    fn allow(&mut self, now: Instant) -> bool {
        let periods = (now - self.since).as_nanos() / PERIOD.as_nanos();
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        self.left = self.left.saturating_add(periods).min(BURST);
        self.since = self.since + PERIOD * periods;
        let allowed = self.left > 0;
        self.left -= u32::from(allowed);
        allowed
    }

    /// Answers a segment of no flow with a RST, unless it is a RST itself or the limit is reached.
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

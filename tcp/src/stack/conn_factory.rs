//! Connection factory: new connections with their initial numbers, and SYN cookies for SYNs that
//! find the backlog full.

use super::isn::Numbers;
use super::keys::Keys;
use super::syn_cookie::{Opened, Peer, SynCookies};
use crate::config::StackConfig;
use crate::conn::{Conn, Secrets};
use crate::device::{Device, Hop};
use crate::time::Instant;
use crate::wire::ethernet::LinkHeader;
use crate::wire::flow::Flow;
use crate::wire::inbound::Segment;
use crate::wire::seq::{from_raw, raw};

/// Makes connections, which the caller enters into its table.
#[derive(Debug)]
pub(super) struct ConnFactory {
    config: StackConfig,
    numbers: Numbers,
    cookies: SynCookies,
    /// Smallest MSS that any route has had this side offer.
    least_mss: usize,
}

impl ConnFactory {
    pub(super) fn new(config: StackConfig, keys: Keys) -> Self {
        Self {
            config,
            numbers: Numbers::new(keys.isns, keys.stamps),
            cookies: SynCookies::new(keys.cookies),
            least_mss: usize::MAX,
        }
    }

    /// Records the MSS that a route has had this side offer. A SYN cookie waits for no route, and
    /// offers the smallest one so far.
    pub(super) fn note_mss(&mut self, mss: usize) {
        self.least_mss = self.least_mss.min(mss);
    }

    pub(super) fn config(&self) -> &StackConfig {
        &self.config
    }

    /// A closed connection for `flow`.
    pub(super) fn open(&self, flow: Flow, hop: Hop, now: Instant) -> Conn {
        let secrets = self.numbers.secrets(&flow, now);
        Conn::new(flow, hop, &self.config, secrets, now)
    }

    /// A closed connection for `flow` with a given initial sequence number.
    fn open_at(&self, iss: u32, flow: Flow, hop: Hop, now: Instant) -> Conn {
        let secrets = Secrets {
            iss: from_raw(iss),
            ..self.numbers.secrets(&flow, now)
        };
        Conn::new(flow, hop, &self.config, secrets, now)
    }

    /// Answers a SYN with a cookie, without keeping state (RFC 4987 §3.6).
    pub(super) fn reply_with_cookie(
        &mut self,
        syn: &Segment,
        link: LinkHeader,
        device: &mut Device,
        now: Instant,
    ) {
        let opened = Opened::of(&syn.options, syn.flow.local.addr.into());
        let peer = self.peer(syn, raw(syn.seq));
        let iss = self.cookies.make(&peer, opened, now);
        let mut conn = self.open_at(iss, syn.flow, device.hop(link), now);
        conn.open_passive(syn, now);
        conn.lower_mss(self.least_mss);
        if conn.answer_without_memory(device, now) {
            device.counters_mut().cookies_out += 1;
        } else {
            device.counters_mut().drop_no_tx_frame += 1;
        }
    }

    /// Checks the cookie that this segment acknowledges. Returns what its SYN offered.
    pub(super) fn check_cookie(&self, segment: &Segment, now: Instant) -> Option<Opened> {
        let ack = segment
            .ack
            .filter(|_| !segment.has_syn() && !segment.is_reset())?;
        let peer = self.peer(segment, raw(segment.seq - 1));
        self.cookies.check(&peer, raw(ack - 1), now)
    }

    /// The connection of a cookie, from the segment that returned it.
    pub(super) fn open_by_cookie(
        &self,
        opened: Opened,
        segment: &Segment,
        hop: Hop,
        now: Instant,
    ) -> Conn {
        let iss = raw(segment.ack.unwrap_or_default() - 1);
        let mut conn = self.open_at(iss, segment.flow, hop, now);
        let options = opened.options(segment.options.timestamp);
        conn.open_by_cookie(&options, segment, now);
        conn
    }

    fn peer(&self, segment: &Segment, isn: u32) -> Peer {
        Peer {
            flow: segment.flow,
            isn,
            timestamps: self.config.timestamps && segment.options.timestamp.is_some(),
        }
    }
}

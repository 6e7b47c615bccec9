//! Route: a connection's addresses, its Ethernet header, the path's MTU, and the segment size that follows (EMSS, RFC 1122 §4.2.2.6).

use super::options::{MIN_MSS, Negotiated};
use crate::wire::ethernet::LinkHeader;
use crate::wire::flow::Flow;
use crate::wire::template::HeaderTemplate;

/// Where a connection's segments go, and how large they may be.
#[derive(Debug)]
pub(super) struct Route {
    headers: HeaderTemplate,
    /// Bytes of the largest IP packet on the way.
    mtu: usize,
    /// Bytes of payload that the peer takes in a segment without options.
    peer_mss: usize,
    /// Bytes of options in every segment.
    option_len: usize,
    /// Bytes per segment. It is asked for several times per segment, and seldom changes.
    emss: usize,
    /// Bytes of headers in front of the payload.
    head: usize,
}

impl Route {
    pub(super) fn new(flow: Flow, link: LinkHeader, mtu: usize) -> Self {
        let mut route = Self {
            headers: HeaderTemplate::new(link, flow),
            mtu,
            peer_mss: 0,
            option_len: 0,
            emss: 0,
            head: 0,
        };
        route.agree(&Negotiated::none());
        route
    }

    /// The connection's 4-tuple.
    pub(super) fn flow(&self) -> &Flow {
        self.headers.flow()
    }

    /// The headers of what is sent.
    pub(super) fn headers(&self) -> &HeaderTemplate {
        &self.headers
    }

    /// Frames come from this Ethernet address from now on.
    pub(super) fn set_source(&mut self, mac: [u8; 6]) {
        self.headers.set_source(mac);
    }

    /// Frames go to this Ethernet address from now on. False if they did already, or go to their own source.
    pub(super) fn set_destination(&mut self, mac: [u8; 6]) -> bool {
        self.headers.set_destination(mac)
    }

    /// Bytes of the largest IP packet that the path takes, as far as is known.
    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Bytes of payload per segment: what the path's MTU and the peer's MSS allow beside the
    /// options. An MSS below 48 bytes is not believed in, and options take 12 of them.
    pub(super) fn emss(&self) -> usize {
        self.emss
    }

    /// Bytes of headers in front of the payload of a segment with data.
    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// Takes what the SYNs agreed upon of segment size and options.
    pub(super) fn agree(&mut self, negotiated: &Negotiated) {
        self.peer_mss = negotiated.peer_mss;
        self.option_len = negotiated.option_len();
        self.settle();
    }

    /// The path takes IP packets of at most `mtu` bytes from now on. True if segments have become smaller.
    pub(super) fn narrow(&mut self, mtu: usize) -> bool {
        let before = self.emss;
        self.mtu = self.mtu.min(mtu);
        self.settle();
        self.emss < before
    }

    fn settle(&mut self) {
        let flow = self.headers.flow();
        let most = flow.payload_of(self.mtu).max(MIN_MSS).min(self.peer_mss);
        self.emss = most.saturating_sub(self.option_len).max(1);
        self.head = self.headers.header_len(self.option_len);
    }
}

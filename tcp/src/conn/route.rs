//! Route: a connection's addresses, its Ethernet header, the path's MTU, and the segment size that
//! follows (EMSS, RFC 1122 §4.2.2.6).

use super::options::{MIN_MSS, Negotiated};
use crate::device::Hop;
use crate::wire::flow::Flow;
use crate::wire::template::HeaderTemplate;

/// Route and size of a connection's segments.
#[derive(Debug)]
pub(super) struct Route {
    headers: HeaderTemplate,
    /// Path MTU in bytes.
    mtu: usize,
    /// Largest payload in bytes that the peer accepts in a segment without options.
    peer_mss: usize,
    /// Length in bytes of the options in every segment.
    option_len: usize,
    /// Payload bytes per segment. Kept because it is read several times per segment, and seldom
    /// changes.
    emss: usize,
    /// Length in bytes of the headers before the payload.
    head: usize,
}

impl Route {
    pub(super) fn new(flow: Flow, hop: Hop) -> Self {
        let Hop {
            link,
            mtu,
            is_summed,
        } = hop;
        let mut headers = HeaderTemplate::new(link, flow);
        headers.set_summed(is_summed);
        let mut route = Self {
            headers,
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

    /// Template of the headers.
    pub(super) fn headers(&self) -> &HeaderTemplate {
        &self.headers
    }

    /// Sets the source Ethernet address.
    pub(super) fn set_source(&mut self, mac: [u8; 6]) {
        self.headers.set_source(mac);
    }

    /// Sets the destination Ethernet address. Returns false if it was set already, or if frames go
    /// to their own source.
    pub(super) fn set_destination(&mut self, mac: [u8; 6]) -> bool {
        self.headers.set_destination(mac)
    }

    /// Sets whether segments carry TCP checksums.
    pub(super) fn set_summed(&mut self, is_summed: bool) {
        self.headers.set_summed(is_summed);
    }

    /// Known path MTU in bytes.
    pub(super) fn mtu(&self) -> usize {
        self.mtu
    }

    /// Payload bytes per segment, by the path's MTU, the peer's MSS and the options. An MSS below
    /// 48 bytes is not believed, and options take 12 of them.
    pub(super) fn emss(&self) -> usize {
        self.emss
    }

    /// Length in bytes of the headers before the payload of a segment with data.
    pub(super) fn head(&self) -> usize {
        self.head
    }

    /// Applies segment size and options that the SYNs agreed on.
    pub(super) fn agree(&mut self, negotiated: &Negotiated) {
        self.peer_mss = negotiated.peer_mss;
        self.option_len = negotiated.option_len();
        self.settle();
    }

    /// Lowers the path MTU to at most `mtu` bytes. Returns true if segments have become smaller.
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

//! Local addresses: the interface's Ethernet address, the host's networks, and IP addresses that
//! the host has lost.

use std::net::IpAddr;

use smoltcp::wire::IpAddress;
use xwarp_driver::net::Network;

use crate::wire::discard::Discard;
use crate::wire::ethernet::{Framed, LinkHeader};
use crate::wire::flow::{Flow, is_hosts};
use crate::wire::inbound::{self, Segment};
use crate::wire::prediction;

/// Addresses of a stack.
#[derive(Debug)]
pub(super) struct Addresses {
    mac: [u8; 6],
    /// The interface's previous Ethernet address.
    former_mac: Option<[u8; 6]>,
    /// IP addresses that the host has lost. Nothing is sent from them.
    withdrawn: Vec<IpAddress>,
    /// The host's networks on the interface.
    networks: Vec<Network>,
}

impl Addresses {
    pub(super) fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            former_mac: None,
            withdrawn: Vec::new(),
            networks: Vec::new(),
        }
    }

    pub(super) fn set_networks(&mut self, networks: Vec<Network>) {
        self.networks = networks;
    }

    pub(super) fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sets the Ethernet address. Returns false if it was set already.
    pub(super) fn set_mac(&mut self, mac: [u8; 6]) -> bool {
        let former = std::mem::replace(&mut self.mac, mac);
        if former == mac {
            return false;
        }
        self.former_mac = Some(former);
        true
    }

    /// Ethernet header of frames to a peer or a router.
    pub(super) fn link_to(&self, next_hop: [u8; 6], ethertype: u16) -> LinkHeader {
        LinkHeader::new(next_hop, self.mac, ethertype)
    }

    /// Ethernet header of an answer to a frame.
    pub(super) fn answer_link(&self, frame: &[u8]) -> Option<LinkHeader> {
        let framed = Framed::parse(frame)?;
        Some(LinkHeader::answer(&framed, self.mac))
    }

    /// Parses an ordinary segment for the interface's address. [`parse`](Self::parse) handles all
    /// other frames.
    #[inline]
    pub(super) fn predict(&self, frame: &[u8]) -> Option<Segment> {
        prediction::parse(frame, self.mac)
    }

    /// Parses an ordinary segment for the interface's address in a frame that is trusted.
    pub(super) fn predict_trusted(&self, frame: &[u8]) -> Option<Segment> {
        prediction::parse_trusted(frame, self.mac)
    }

    /// Parses a segment for the interface's address, or for the previous one, which peers use until
    /// they resolve the address again.
    pub(super) fn parse(&self, frame: &[u8], is_trusted: bool) -> Result<Segment, Discard> {
        let parse = |station| inbound::parse(frame, station, is_trusted);
        match (parse(self.mac), self.former_mac) {
            (Err(Discard::OtherStation), Some(former)) => parse(former),
            (parsed, _) => parsed,
        }
    }

    /// Parses a RST for the interface whose checksum was left to a NIC.
    pub(super) fn parse_unsummed_reset(&self, frame: &[u8]) -> Option<Segment> {
        inbound::parse_unsummed_reset(frame, self.mac)
    }

    /// Checks that a flow between these addresses is possible. Segments of other flows get no
    /// answer, not even a RST (RFC 1122 §3.2.1.3, §4.2.3.10). The stack checks this once, before it
    /// makes a connection for the flow. `looped`: this host has sent the segment itself, so that
    /// the addresses may be its own.
    pub(super) fn check(&self, flow: &Flow, looped: bool) -> Result<(), Discard> {
        let local: IpAddr = flow.local.addr.into();
        let remote: IpAddr = flow.remote.addr.into();
        let is_possible = |address| is_hosts(address) || looped && address.is_loopback();
        if !is_possible(local) {
            return Err(Discard::NotUnicast);
        }
        let ours = remote == local || self.networks.iter().any(|it| it.excludes(remote));
        if ours && !looped || !is_possible(remote) {
            return Err(Discard::BadSource);
        }
        Ok(())
    }

    /// Records that the host has lost an address.
    pub(super) fn withdraw(&mut self, address: IpAddr) {
        let address = address.into();
        if !self.withdrawn.contains(&address) {
            self.withdrawn.push(address);
        }
    }

    /// Records that the host has an address again.
    pub(super) fn readmit(&mut self, address: IpAddr) {
        let address = address.into();
        self.withdrawn.retain(|lost| *lost != address);
    }

    /// True if the host has lost this address.
    pub(super) fn is_withdrawn(&self, address: IpAddress) -> bool {
        self.withdrawn.contains(&address)
    }
}

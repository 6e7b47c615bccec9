//! Checksum by the NIC: a connection leaves it to the NIC once its peer has shown that the NIC computes it.
//!
//! A host does not see what its NIC puts on the wire, and there are drivers that take the request and do nothing. So a probe leaves behind
//! ordinary data: the byte before SND.UNA, which the peer has, in a segment whose checksum is left to the NIC. A peer that finds the checksum
//! right reports this byte as a duplicate (RFC 2883). Else it drops the probe, and nothing is lost or late.
//!
//! Whatever is sent again is summed here. A loss puts the NIC in doubt, so that the peer is asked anew. A timeout ends the matter.

use smoltcp::wire::TcpControl;
use xwarp_driver::{SentFrame, TxFrame};

use super::Conn;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::outbound::Header;
use crate::wire::seq::Seq;

/// What a connection knows of the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NicChecksum {
    /// Nothing.
    #[default]
    Unknown,
    /// A probe with this sequence number was sent.
    Asked(Seq),
    /// It computes checksums that this peer takes.
    Proven,
    /// It did, and something was lost since.
    Doubted,
    /// There was a retransmission timeout, after which no answer counts.
    GivenUp,
}

impl NicChecksum {
    /// Something was lost.
    pub(super) fn doubt(&mut self) {
        if *self == Self::Proven {
            *self = Self::Doubted;
        }
    }
}

impl Conn {
    /// Sends new data whose sum is not known, where the NIC offers to compute checksums. It does so if that is proven, else the peer is asked.
    #[inline(never)]
    pub(super) fn send_where_offered(
        &mut self,
        frame: TxFrame,
        header: &Header,
        device: &mut Device,
        now: Instant,
    ) -> SentFrame {
        if self.nic_checksum == NicChecksum::Proven {
            return device.send_left(frame, self.route.headers(), header);
        }
        let sent = device.send_data(frame, self.route.headers(), header);
        self.prove_nic_checksum(device, now);
        sent
    }

    /// Sends a probe if the peer is to be asked, and would not take it for something else.
    fn prove_nic_checksum(&mut self, device: &mut Device, now: Instant) {
        let doubted = self.nic_checksum == NicChecksum::Doubted;
        if !doubted && self.nic_checksum != NicChecksum::Unknown || !self.may_prove_checksum() {
            return;
        }
        let seq = self.send.una() - 1;
        let header = self.header(TcpControl::None, seq, now);
        if device.send_filler(self.route.headers(), &header) {
            self.nic_checksum = NicChecksum::Asked(seq);
            device.counters_mut().checksum_probes_out += 1;
            device.counters_mut().checksums_doubted += u64::from(doubted);
        }
    }

    /// True if the peer can report the byte of a probe. One that sent a SYN cookie, and has not got our first
    /// ACK, knows of no connection and would answer by a RST. What comes back to this host meets no NIC.
    fn may_prove_checksum(&self) -> bool {
        let known = self.negotiation.is_passive() || self.send.una() != self.send.iss() + 1;
        let agreed = self.negotiation.agreed();
        known && agreed.sack && self.is_steady() && !self.route.headers().leads_back()
    }

    /// True for a report of the probe's byte alone. Nothing else that was sent begins and ends there.
    pub(super) fn is_checksum_proof(&mut self, block: (Seq, Seq), device: &mut Device) -> bool {
        let is_proof = match self.nic_checksum {
            NicChecksum::Asked(seq) => block == (seq, seq + 1),
            _ => false,
        };
        if is_proof {
            self.nic_checksum = NicChecksum::Proven;
            device.counters_mut().checksums_proven += 1;
        }
        is_proof
    }

    /// A retransmission timeout ends the use of the NIC, and the wait for the peer's answer.
    pub(super) fn give_up_nic_checksum(&mut self, device: &mut Device) {
        let used = NicChecksum::Unknown != self.nic_checksum;
        if used && self.nic_checksum != NicChecksum::GivenUp {
            self.nic_checksum = NicChecksum::GivenUp;
            device.counters_mut().checksums_given_up += 1;
        }
    }
}

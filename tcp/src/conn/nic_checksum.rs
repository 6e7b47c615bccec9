//! Checksums by the NIC: a connection leaves them to the NIC once the peer has shown that the NIC
//! computes them.
//!
//! A host does not see the frames that its NIC sends, and some drivers accept the request without
//! acting on it. So a probe follows ordinary data: the byte before SND.UNA, which the peer has, in
//! a segment whose checksum is left to the NIC. A peer that finds the checksum right reports this
//! byte as a duplicate (RFC 2883). Otherwise the peer drops the probe, and nothing is lost or late.
//!
//! Retransmissions are always summed in software. After a loss the NIC is in doubt, and the peer is
//! probed again. A timeout ends the use of the NIC.

use smoltcp::wire::TcpControl;
use xwarp_driver::{SentFrame, TxFrame};

use super::Conn;
use crate::device::Device;
use crate::time::Instant;
use crate::wire::outbound::Header;
use crate::wire::seq::Seq;

/// Knowledge of a connection about the NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NicChecksum {
    /// None so far.
    #[default]
    Unknown,
    /// A probe with this sequence number was sent.
    Asked(Seq),
    /// The NIC computes checksums that this peer accepts.
    Proven,
    /// It did, but a segment was lost since.
    Doubted,
    /// The retransmission timer expired; no answer counts after that.
    GivenUp,
}

impl NicChecksum {
    /// Puts the NIC in doubt after a loss.
    pub(super) fn doubt(&mut self) {
        if *self == Self::Proven {
            *self = Self::Doubted;
        }
    }
}

impl Conn {
    /// Sends new data whose sum is not known, where the NIC offers checksums. The NIC computes the
    /// checksum once it has proved to; until then the peer is probed.
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

    /// Sends a probe if the peer must be asked, and cannot mistake it for something else.
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

    /// True if the peer can report the byte of a probe. A peer that sent a SYN cookie and has not
    /// received our first ACK knows no connection, and would answer with a RST. Frames to the own
    /// host, or without checksums, pass no NIC.
    fn may_prove_checksum(&self) -> bool {
        let known = self.negotiation.is_passive() || self.send.una() != self.send.iss() + 1;
        let agreed = self.negotiation.agreed();
        let headers = self.route.headers();
        let passes_nic = headers.is_summed() && !headers.leads_back();
        known && agreed.sack && self.is_steady() && passes_nic
    }

    /// True for a report of exactly the probe's byte. No other sent data begins and ends there.
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

    /// Ends the use of the NIC, and the wait for the peer's answer, after a retransmission timeout.
    pub(super) fn give_up_nic_checksum(&mut self, device: &mut Device) {
        let used = NicChecksum::Unknown != self.nic_checksum;
        if used && self.nic_checksum != NicChecksum::GivenUp {
            self.nic_checksum = NicChecksum::GivenUp;
            device.counters_mut().checksums_given_up += 1;
        }
    }
}

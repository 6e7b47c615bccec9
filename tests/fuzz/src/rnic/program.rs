//! An input, read from the front, and the scene that it sets.

use xwarp::QpConfig;
use xwarp::cm::{PeerToPeer, Rtr, RtrTypes};

/// The bytes of an input that are not read yet.
pub(super) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// The next one; `None` at the end.
    pub(super) fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next one, 0 at the end.
    pub(super) fn byte(&mut self) -> u8 {
        self.next().unwrap_or(0)
    }

    /// The next two as a number.
    pub(super) fn pair(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// The next `n`, or as many as there are.
    pub(super) fn take(&mut self, n: u8) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(self.0.len().min(usize::from(n)));
        self.0 = rest;
        taken
    }

    /// The first two bytes.
    pub(super) fn scene(&mut self) -> Scene {
        let (flags, offers) = (self.byte(), self.byte());
        let bit = |n| crate::bit(flags, n);
        Scene {
            rnic_connects: bit(0),
            crc: !bit(1),
            markers: bit(2),
            ipv6: bit(3),
            small_cq: bit(4),
            answer: match (bit(5), bit(6)) {
                (false, false) => Answer::Accept,
                (_, true) => Answer::Reject,
                (true, false) => Answer::Nothing,
            },
            silent_end: bit(7),
            qp: qp_config(offers),
        }
    }
}

/// What the application says to a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Accept,
    Reject,
    Nothing,
}

/// What does not change during a run.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the input")]
pub(super) struct Scene {
    pub(super) rnic_connects: bool,
    /// How the peer frames its FPDUs, whatever was agreed upon.
    pub(super) crc: bool,
    pub(super) markers: bool,
    pub(super) ipv6: bool,
    /// The hostile connections' completions may not all find room.
    pub(super) small_cq: bool,
    pub(super) answer: Answer,
    /// The peer leaves without a FIN or RST.
    pub(super) silent_end: bool,
    pub(super) qp: QpConfig,
}

/// What the RNIC's queue pairs are made with.
fn qp_config(offers: u8) -> QpConfig {
    let depth = |n: u8| [32, 1, 0, 4][usize::from(n & 3)];
    QpConfig::default()
        .send_depth(32)
        .recv_depth(32)
        .ird(depth(offers))
        .ord(depth(offers >> 2))
        .rfc7306(!crate::bit(offers, 4))
        .peer_to_peer(peer_to_peer(offers >> 5))
}

fn peer_to_peer(choice: u8) -> Option<PeerToPeer> {
    let (rtr, required) = match choice {
        0 => return None,
        1 => (RtrTypes::only(Rtr::Send), true),
        2 => (RtrTypes::only(Rtr::Write), true),
        3 => (RtrTypes::only(Rtr::Read), true),
        4 => (RtrTypes::ALL, true),
        5 => (RtrTypes::only(Rtr::Send), false),
        6 => (RtrTypes::only(Rtr::Read), false),
        _ => (RtrTypes::ALL, false),
    };
    Some(PeerToPeer { rtr, required })
}

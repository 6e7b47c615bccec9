//! Option negotiation: what our SYN offers, and what both SYNs agree on (RFC 9293 §3.7.1, RFC 7323,
//! RFC 2018, RFC 3168).

use std::net::IpAddr;

use crate::config::StackConfig;
use crate::congestion::Marks;
use crate::wire::inbound::Options;
use crate::wire::outbound::{OutOptions, TIMESTAMP_LEN};

/// The peer's MSS if its SYN has no such option (RFC 9293 §3.7.1), for IPv4 and IPv6.
const DEFAULT_MSS: (usize, usize) = (536, 1220);
/// Smallest MSS that is accepted: with a smaller one, segments would be mostly headers.
pub(super) const MIN_MSS: usize = 48;
/// The largest shift count (RFC 7323 §2.3).
const MAX_SHIFT: u8 = 14;

/// Options that our SYN offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    pub(crate) mss: usize,
    pub(crate) shift: u8,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Options that hold for the connection.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools)] // one per option
pub(crate) struct Negotiated {
    pub(crate) peer_mss: usize,
    /// Shift count of the peer's windows.
    pub(crate) peer_shift: u8,
    /// Shift count of our windows.
    pub(crate) own_shift: u8,
    /// Windows are scaled, in both directions or in none (RFC 7323 §2.2).
    pub(crate) scaled: bool,
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) ecn: bool,
}

/// Our offer, and the result once the peer's SYN is known.
#[derive(Debug)]
pub(super) struct Negotiation {
    offered: Offered,
    agreed: Negotiated,
    passive: bool,
}

impl Negotiation {
    /// Limits the MSS that our SYN offers to `mss` bytes.
    pub(super) fn lower_mss(&mut self, mss: usize) {
        self.offered.mss = self.offered.mss.min(mss.max(MIN_MSS));
    }

    /// State before the peer's SYN is known.
    pub(super) fn new(offered: Offered) -> Self {
        Self {
            offered,
            agreed: Negotiated::none(),
            passive: false,
        }
    }

    pub(super) fn offered(&self) -> &Offered {
        &self.offered
    }

    pub(super) fn agreed(&self) -> &Negotiated {
        &self.agreed
    }

    /// True if the peer's SYN came first.
    pub(super) fn is_passive(&self) -> bool {
        self.passive
    }

    /// Records that the peer's SYN came first.
    pub(super) fn answer(&mut self) {
        self.passive = true;
    }

    /// Applies the options of the peer's SYN. `ecn`: the peer agrees to ECN.
    pub(super) fn accept(&mut self, theirs: &Options, local: IpAddr, ecn: bool) {
        self.agreed = self.offered.accept(theirs, local, ecn);
    }

    /// Gives up ECN, although both sides had agreed to it.
    pub(super) fn forgo_ecn(&mut self) {
        self.agreed.ecn = false;
    }

    #[cfg(test)]
    pub(super) fn set_peer_shift(&mut self, shift: u8) {
        self.agreed.peer_shift = shift;
    }
}

impl Offered {
    /// Options that `config` offers for segments of `mss` bytes and a receive buffer of `buffer`
    /// bytes. `marks`: what they mean to congestion control.
    pub(crate) fn new(config: &StackConfig, mss: usize, buffer: usize, marks: Marks) -> Self {
        let fits = |shift: &u8| buffer <= usize::from(u16::MAX) << shift;
        Self {
            mss,
            shift: (0..MAX_SHIFT).find(fits).unwrap_or(MAX_SHIFT),
            timestamps: config.timestamps,
            ecn: match marks {
                Marks::Ignored => false,
                Marks::Classic => config.ecn,
                Marks::Counted => true,
            },
        }
    }

    /// TCP options of a SYN.
    pub(crate) fn options(&self, timestamp: Option<(u32, u32)>) -> OutOptions {
        OutOptions {
            mss: Some(u16::try_from(self.mss).unwrap_or(u16::MAX)),
            shift: Some(self.shift),
            sack_permitted: true,
            timestamp: timestamp.filter(|_| self.timestamps),
            ..OutOptions::default()
        }
    }

    /// Options that hold once the peer's SYN is known. `ecn`: the peer agrees to ECN.
    pub(crate) fn accept(&self, theirs: &Options, local: IpAddr, ecn: bool) -> Negotiated {
        let default = match local {
            IpAddr::V4(_) => DEFAULT_MSS.0,
            IpAddr::V6(_) => DEFAULT_MSS.1,
        };
        let mss = theirs.mss.map_or(default, usize::from);
        Negotiated {
            peer_mss: mss.max(MIN_MSS),
            peer_shift: theirs.shift.unwrap_or(0),
            own_shift: theirs.shift.map_or(0, |_| self.shift),
            scaled: theirs.shift.is_some(),
            sack: theirs.sack_permitted,
            timestamps: self.timestamps && theirs.timestamp.is_some(),
            ecn: self.ecn && ecn,
        }
    }
}

impl Negotiated {
    /// State before the peer's SYN is known.
    pub(crate) fn none() -> Self {
        Self {
            peer_mss: DEFAULT_MSS.0,
            peer_shift: 0,
            own_shift: 0,
            scaled: false,
            sack: false,
            timestamps: false,
            ecn: false,
        }
    }

    /// Length in bytes of the options in every segment.
    pub(crate) fn option_len(&self) -> usize {
        if self.timestamps { TIMESTAMP_LEN } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(buffer: usize) -> Offered {
        Offered::new(&StackConfig::default(), 1460, buffer, Marks::Ignored)
    }

    #[test]
    fn shift_is_the_least_that_holds_the_buffer() {
        assert_eq!(offered(65535).shift, 0);
        assert_eq!(offered(65536).shift, 1);
        assert_eq!(offered(256 * 1024).shift, 3);
        assert_eq!(offered(1 << 30).shift, 14);
    }

    #[test]
    fn without_options_nothing_is_agreed_upon() {
        let negotiated =
            offered(1 << 20).accept(&Options::default(), IpAddr::from([10, 0, 0, 1]), true);
        assert_eq!((negotiated.peer_mss, negotiated.own_shift), (536, 0));
        assert!(
            !negotiated.sack && !negotiated.timestamps && !negotiated.scaled && !negotiated.ecn
        );
        let v6 = offered(1).accept(&Options::default(), "fd00::1".parse().unwrap(), false);
        assert_eq!(v6.peer_mss, 1220);
    }
}

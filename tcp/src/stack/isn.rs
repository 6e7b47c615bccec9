//! Initial sequence numbers, which cannot be guessed from those of other connections (RFC 6528).

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;

use crate::conn::Secrets;
use crate::time::Instant;
use crate::wire::flow::Flow;
use crate::wire::seq::from_raw;

/// Nanoseconds per step of the clock behind the numbers (RFC 6528 §3).
const TICK: u128 = 4_000;

/// Source of the initial sequence numbers of one stack.
///
/// A flow's numbers advance with the clock, so that a new incarnation of a connection begins past
/// the old one's (RFC 9293 §3.4.1). Without the secret, the numbers of one flow reveal nothing
/// about another's.
pub(super) struct IsnSource {
    secret: [u8; 16],
}

impl IsnSource {
    /// `secret` is random, and never disclosed.
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// The initial sequence number of a connection that begins `now`.
    pub(super) fn isn(&self, flow: &Flow, now: Instant) -> u32 {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        flow.hash(&mut hasher);
        let clock = now.since_origin().as_nanos() / TICK;
        low_half(clock + u128::from(hasher.finish()))
    }
}

impl std::fmt::Debug for IsnSource {
    /// Does not print the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IsnSource").finish_non_exhaustive()
    }
}

/// Source of the secret numbers of new connections.
#[derive(Debug)]
pub(super) struct Numbers {
    isns: IsnSource,
    stamps: IsnSource,
}

impl Numbers {
    /// Two secrets that have no other use.
    pub(super) fn new(isns: [u8; 16], stamps: [u8; 16]) -> Self {
        Self {
            isns: IsnSource::new(isns),
            stamps: IsnSource::new(stamps),
        }
    }

    /// The sequence number advances with the clock, so that successors on a flow begin above it.
    /// Timestamps begin at a hash of the flow.
    pub(super) fn secrets(&self, flow: &Flow, now: Instant) -> Secrets {
        Secrets {
            iss: from_raw(self.isns.isn(flow, now)),
            stamp_offset: self.stamps.isn(flow, Instant::ORIGIN),
        }
    }
}

fn low_half(n: u128) -> u32 {
    u32::try_from(n & u128::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn flow(remote_port: u16) -> Flow {
        let endpoint = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().into();
        Flow {
            local: endpoint("10.0.0.1:7000"),
            remote: endpoint(&format!("10.0.0.2:{remote_port}")),
        }
    }

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    #[test]
    fn numbers_of_one_flow_move_on_every_four_microseconds() {
        let source = IsnSource::new([7; 16]);
        let first = source.isn(&flow(1), at(0));
        assert_eq!(source.isn(&flow(1), at(3)), first);
        assert_eq!(source.isn(&flow(1), at(4)), first.wrapping_add(1));
        // 2^32 ticks: 4.77 hours
        assert_eq!(source.isn(&flow(1), at(4 << 32)), first);
        source.isn(&flow(1), Instant::ORIGIN + Duration::MAX);
    }

    #[test]
    fn each_part_of_the_flow_and_the_secret_give_other_numbers() {
        let source = IsnSource::new([7; 16]);
        let of = |flow| source.isn(&flow, at(0));
        let base = flow(1);
        let turned = Flow {
            local: base.remote,
            remote: base.local,
        };
        let mut seen = vec![
            of(base),
            of(turned),
            of(flow(2)),
            IsnSource::new([8; 16]).isn(&base, at(0)),
        ];
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 4);
    }

    /// 2^16 numbers of neighbouring ports are evenly distributed: each sixteenth of the space has
    /// about a sixteenth of them.
    #[test]
    #[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
    fn neighbouring_ports_have_numbers_all_over_the_space() {
        let source = IsnSource::new([7; 16]);
        let mut counts = [0_usize; 16];
        for port in 0..=u16::MAX {
            counts[source.isn(&flow(port), at(0)) as usize >> 28] += 1;
        }
        // the standard deviation is 62
        assert!(counts.iter().all(|n| n.abs_diff(4096) < 350), "{counts:?}");
    }

    #[test]
    fn secret_is_not_written_out() {
        let text = format!("{:?}", IsnSource::new([213; 16]));
        assert!(!text.contains("213"), "{text}");
    }
}

//! RSS steering: predicts by the NIC's hash which queue receives a connection's frames, as long as
//! the predictions hold.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xwarp_driver::NicInfo;
use xwarp_driver::net::{self, Rss};
use xwarp_tcp::StrayAnswers;

/// Answers that may arrive at another engine than predicted, besides one in `TOLERATED_PART` ports.
const TOLERATED: u64 = 4;
const TOLERATED_PART: u64 = 16;

/// The NIC's hash. It is trusted until answers come to other engines than it predicts: some drivers
/// report a table that the NIC does not use.
pub(crate) struct RssSteering {
    /// Counts answers that arrived at another engine than the one that connects.
    strays: StrayAnswers,
    trust: Mutex<RssTrust>,
}

/// Whether the hash that the driver reports can be trusted.
#[derive(Default)]
struct RssTrust {
    rss: Option<Rss>,
    /// Number of ports chosen by the hash.
    chosen: u64,
    /// Number of stray answers before the hash was reported.
    strays_before: u64,
    lost: bool,
}

impl RssSteering {
    pub(crate) fn new(strays: StrayAnswers) -> Self {
        Self {
            strays,
            trust: Mutex::default(),
        }
    }

    fn trust(&self) -> MutexGuard<'_, RssTrust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hash to choose ports by. `None` if it is unknown, is not trusted or makes no difference.
    pub(crate) fn hash(&self, info: &NicInfo) -> Option<Rss> {
        if info.engines == 1 && !info.queues.is_part() {
            return None;
        }
        let reported = net::rss(info.index).unwrap_or_else(|error| {
            log::debug!(
                "the driver of {} does not report its RSS hash: {error}",
                info.name
            );
            None
        });
        self.trust()
            .judge(reported, self.strays.count(), &info.name)
    }
}

impl RssTrust {
    /// The hash that the driver `reported`, if it can be trusted. `strays` is the number of answers
    /// that arrived at other engines so far.
    fn judge(&mut self, reported: Option<Rss>, strays: u64, interface: &str) -> Option<Rss> {
        if reported != self.rss {
            *self = Self {
                rss: reported,
                strays_before: strays,
                ..Self::default()
            };
        }
        let stray = strays - self.strays_before;
        if !self.lost && stray > TOLERATED + self.chosen / TOLERATED_PART {
            self.lost = true;
            if self.rss.is_some() {
                log::warn!(
                    "{interface} does not spread connections as `ethtool -x {interface}` shows, so connections try several ports, and engines may hand frames to each other: try `ethtool -X {interface} default`"
                );
            }
        }
        if self.lost {
            return None;
        }
        self.chosen += 1;
        self.rss.clone()
    }
}

/// The engine that receives segments from `remote` to `local`.
pub(crate) fn engine_of(
    rss: &Rss,
    info: &NicInfo,
    remote: SocketAddr,
    local: SocketAddr,
) -> Option<usize> {
    info.engine_of(rss.queue_of(remote, local)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(table: Vec<u32>) -> Rss {
        Rss {
            table,
            ..Rss::default()
        }
    }

    #[test]
    fn hash_is_believed_until_answers_go_astray_and_again_when_it_changes() {
        let mut trust = RssTrust::default();
        let mut judge =
            |table: &[u32], strays| trust.judge(Some(reported(table.to_vec())), strays, "eth0");
        for chosen in 0..160 {
            assert!(judge(&[0, 1], 7 + chosen / TOLERATED_PART).is_some());
        }
        assert!(judge(&[0, 1], 7 + 15).is_none(), "too many");
        assert!(judge(&[0, 1], 7 + 15).is_none(), "for good");
        assert!(judge(&[1, 0], 7 + 15).is_some(), "it is another one");
        assert!(judge(&[1, 0], 7 + 15 + 4).is_some());
        assert!(judge(&[1, 0], 7 + 15 + 5).is_none());
    }

    #[test]
    fn hash_that_is_not_told_is_none() {
        let mut trust = RssTrust::default();
        for strays in 0..100 {
            assert_eq!(trust.judge(None, strays, "eth0"), None);
        }
        assert!(trust.judge(Some(reported(vec![0])), 100, "eth0").is_some());
    }
}

//! Options of opening an RNIC: progress, wait mode, TCP and MPA (verbs draft §9.2.1.1).

use std::time::Duration;

use xwarp_driver::NicConfig;
use xwarp_rnic::model::{MAX_QPS, MpaConfig, PblMode};
use xwarp_tcp::{CongestionControl, MAX_ACK_DELAY, MAX_RTO, StackConfig};

use crate::error::ConfigError;
use crate::runtime::config::{Attach, Progress, WaitMode};

/// Default backlog per listener: enough for a burst, such as when all clients reconnect at once.
const BACKLOG: usize = 1024;

/// How an RNIC is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RnicConfig {
    /// What connects the RNIC to the network.
    pub attach: Attach,
    /// Options of the network interface.
    pub nic: NicConfig,
    /// Which threads run the engine.
    pub progress: Progress,
    /// How the engine waits when it has no work.
    pub wait_mode: WaitMode,
    /// Idle time before a keep-alive probe is sent. `None`, the default (RFC 9293 §3.8.4), sends
    /// none: the death of a peer then goes unnoticed unless data is outstanding.
    pub keepalive: Option<Duration>,
    /// Lower bound of the retransmission timeout beyond the round trip (RFC 6298 §2.4). 5 ms by
    /// default. Raise it if peers may wait longer for a processor; a lower value shortens the delay
    /// after a loss.
    pub min_rto: Duration,
    /// Longest delay of the TCP acknowledgment of a message, so that the application's answer can
    /// carry the acknowledgment, if earlier answers were sent within that time (RFC 9293 §3.8.6.3).
    /// 200 µs by default, 499 ms at most; zero acknowledges at once.
    pub ack_delay: Duration,
    /// Time without an acknowledgment of bytes or of a keep-alive probe after which the connection
    /// ends (RFC 9293 §3.8.3). 100 s by default, the minimum that RFC 1122 §4.2.3.5 recommends.
    pub user_timeout: Duration,
    /// Congestion control algorithm. DCTCP is for networks that mark with ECN, BBR for paths with
    /// random loss.
    pub congestion: CongestionControl,
    /// Whether CUBIC and `NewReno` negotiate ECN (RFC 3168), for networks that mark. False by
    /// default; DCTCP always negotiates it, BBR never.
    pub ecn: bool,
    /// Options of MPA start-up.
    pub mpa: MpaConfig,
    /// Connections that each listener keeps for the application to accept. When the backlog is
    /// full, a new connection replaces the one that was silent longest. The same number of
    /// connections may be in TCP's handshake. 1024 by default.
    pub backlog: usize,
    /// Kind of physical buffer lists: pages or blocks (verbs draft §9.2.1.1).
    pub pbl_mode: PblMode,
    /// Asynchronous events that may wait to be polled (RFC 5042 §2.2.7). Peers can cause some of
    /// them. [`EventsLost`](crate::event::AsyncEventKind::EventsLost) reports that further ones
    /// were lost. By default one for each possible queue pair.
    pub max_events: usize,
}

xwarp_driver::setters!(RnicConfig {
    /// Sets what connects the RNIC to the network.
    attach: Attach,
    /// Sets the configuration of the interface.
    nic: NicConfig,
    /// Sets which threads run the engine.
    progress: Progress,
    /// Sets what the engine does without work.
    wait_mode: WaitMode,
    /// Sets the idle time before a keep-alive probe is sent. `None` sends none.
    keepalive: Option<Duration>,
    /// Sets the lower bound of the retransmission timeout beyond the round trip.
    min_rto: Duration,
    /// Sets the longest delay of a message's acknowledgment.
    ack_delay: Duration,
    /// Sets the time after which an unanswered connection ends.
    user_timeout: Duration,
    /// Sets the congestion control.
    congestion: CongestionControl,
    /// Sets whether CUBIC and `NewReno` negotiate ECN (RFC 3168).
    ecn: bool,
    /// Sets the options of MPA start-up.
    mpa: MpaConfig,
    /// Sets how many connections each listener keeps for the application to accept.
    backlog: usize,
    /// Sets whether physical buffer lists consist of pages or of blocks.
    pbl_mode: PblMode,
    /// Sets how many asynchronous events may wait to be polled.
    max_events: usize,
});

impl RnicConfig {
    /// Refuses options that are out of range or exclude each other.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.ack_delay > MAX_ACK_DELAY {
            return Err(ConfigError::AckDelay(self.ack_delay));
        }
        if self.min_rto > MAX_RTO {
            return Err(ConfigError::MinRto(self.min_rto));
        }
        if self.ecn && self.congestion == CongestionControl::Bbr {
            return Err(ConfigError::EcnWithBbr);
        }
        let zero = [
            (self.user_timeout.is_zero(), "user_timeout"),
            (self.keepalive == Some(Duration::ZERO), "keepalive"),
            (self.backlog == 0, "backlog"),
        ];
        let named = zero.into_iter().find_map(|(is, name)| is.then_some(name));
        named.map_or(Ok(()), |name| Err(ConfigError::Zero(name)))
    }
}

impl Default for RnicConfig {
    fn default() -> Self {
        Self {
            attach: Attach::default(),
            nic: NicConfig::default(),
            progress: Progress::Thread,
            wait_mode: WaitMode::Adaptive(Duration::from_micros(50)),
            keepalive: None,
            min_rto: StackConfig::default().min_rto,
            ack_delay: StackConfig::default().ack_delay,
            user_timeout: StackConfig::default().user_timeout,
            congestion: StackConfig::default().congestion,
            ecn: StackConfig::default().ecn,
            mpa: MpaConfig::default(),
            backlog: BACKLOG,
            pbl_mode: PblMode::Page,
            max_events: MAX_QPS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_cannot_be_had_are_refused_by_name() {
        let config = RnicConfig::default;
        let (second, bbr) = (Duration::from_secs(1), CongestionControl::Bbr);
        for (config, wanted) in [
            (config().ack_delay(MAX_ACK_DELAY).min_rto(MAX_RTO), Ok(())),
            (config().ecn(true), Ok(())),
            (config().congestion(bbr), Ok(())),
            (
                config().ack_delay(second),
                Err(ConfigError::AckDelay(second)),
            ),
            (
                config().min_rto(61 * second),
                Err(ConfigError::MinRto(61 * second)),
            ),
            (
                config().congestion(bbr).ecn(true),
                Err(ConfigError::EcnWithBbr),
            ),
            (
                config().user_timeout(Duration::ZERO),
                Err(ConfigError::Zero("user_timeout")),
            ),
            (
                config().keepalive(Some(Duration::ZERO)),
                Err(ConfigError::Zero("keepalive")),
            ),
            (config().backlog(0), Err(ConfigError::Zero("backlog"))),
        ] {
            assert_eq!(config.check(), wanted, "{config:?}");
        }
    }
}

//! Configuration of a stack, and the path of a connection.

use std::net::SocketAddr;
use std::time::Duration;

use crate::congestion::CongestionControl;

/// Bytes of a receive window, by default.
const BUFFER: usize = 256 << 10;
/// Packets that it has room for at least. 16 of 65,535 bytes are also what a window scale of 4 can announce.
const BUFFER_PACKETS: usize = 16;
/// A receive buffer that holds a few segments, and what windows can announce.
const BUFFER_LIMITS: (usize, usize) = (1 << 10, 1 << 30);

/// What a [`Stack`](crate::Stack) is told at its start.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Ethernet address that frames are sent from.
    pub mac: [u8; 6],
    /// Bytes of the largest IP packet, sent or announced by the MSS option.
    pub mtu: usize,
    /// Bytes of a connection's receive window, and a quarter of what it can have unacknowledged. `None`, the default: 256 KiB, or 16
    /// packets of the MTU if that is more. So there is always something to acknowledge and to repair by.
    pub buffer: Option<usize>,
    /// Connections at once, those in TIME-WAIT included.
    pub max_connections: usize,
    /// What the keys of initial sequence numbers, timestamps and SYN cookies are derived from, for simulations: who knows it can guess
    /// them. `None`, the default: each has 128 random bits of its own.
    pub seed: Option<u64>,
    /// How long a handshake may take that we begin, unless whoever connects says otherwise
    /// ([`Stack::connect_within`](crate::Stack::connect_within)).
    pub connect_timeout: Duration,
    /// How long bytes or a FIN may stay unacknowledged, or a closed connection wait for the peer's FIN (RFC 9293 §3.8.3).
    /// 100 s by default, the least that RFC 1122 §4.2.3.5 recommends.
    pub user_timeout: Duration,
    /// After how long a silence the peer is asked whether it still lives, and how often; `None`, the default, never (RFC 9293
    /// §3.8.4). A host whose program has died answers with a RST.
    pub keepalive: Option<Duration>,
    /// How much may be in flight.
    pub congestion: CongestionControl,
    /// CUBIC and `NewReno` negotiate ECN and take marks as losses (RFC 3168, RFC 9438 §4.6): for networks that mark, as some devices
    /// on old paths drop what asks for it. False by default. DCTCP always negotiates it, BBR never.
    pub ecn: bool,
    /// The least time to a retransmission beyond the round trip (RFC 6298 §2.4 has 1 s). 5 ms by default: for peers on one link,
    /// which do not hold ACKs back.
    pub min_rto: Duration,
    /// How long the acknowledgment of one segment may wait for an answer to ride on, where the last ones were answered as soon. That of two
    /// never waits (RFC 9293 §3.8.6.3). 200 µs by default, 499 ms at most; what exceeds a peer's [`min_rto`](Self::min_rto) looks like a
    /// loss to it. Zero acknowledges everything at the end of the turn that brought it.
    pub ack_delay: Duration,
    /// Timestamps are offered and accepted (RFC 7323): 12 bytes per segment, for protection against wrapped sequence numbers
    /// and against needless recoveries.
    pub timestamps: bool,
}

impl Default for StackConfig {
    fn default() -> Self {
        Self {
            mac: [2, 0, 0, 0, 0, 0],
            mtu: 1500,
            buffer: None,
            max_connections: 1024,
            seed: None,
            connect_timeout: Duration::from_secs(5),
            user_timeout: Duration::from_secs(100),
            keepalive: None,
            congestion: CongestionControl::default(),
            ecn: false,
            min_rto: Duration::from_millis(5),
            ack_delay: Duration::from_micros(200),
            timestamps: true,
        }
    }
}

impl StackConfig {
    /// Bytes of a receive window where packets have `mtu` bytes at most.
    pub(crate) fn buffer_at(&self, mtu: usize) -> usize {
        let buffer = self.buffer.unwrap_or(BUFFER.max(BUFFER_PACKETS * mtu));
        buffer.clamp(BUFFER_LIMITS.0, BUFFER_LIMITS.1)
    }
}

/// The way to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Ethernet address of the peer, or of the router towards it.
    pub next_hop: [u8; 6],
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

/// Metrics of the host's route to a peer. None, the default: those of the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    /// Bytes of the largest IP packet. The interface's MTU holds, too.
    pub mtu: Option<usize>,
    /// Bytes of payload that a segment of the peer is to have at most, without options (`advmss`).
    pub advmss: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_holds_sixteen_packets_unless_said_otherwise() {
        let mut config = StackConfig::default();
        assert_eq!(config.buffer_at(1500), 256 << 10);
        assert_eq!(config.buffer_at(9000), 256 << 10, "29 packets");
        assert_eq!(config.buffer_at(65_535), 16 * 65_535);
        config.buffer = Some(20_000);
        assert_eq!(config.buffer_at(65_535), 20_000);
        config.buffer = Some(usize::MAX);
        assert_eq!(config.buffer_at(1500), 1 << 30);
    }
}

//! Configuration of a stack, and the path of a connection.

use std::net::SocketAddr;
use std::time::Duration;

use crate::congestion::CongestionControl;

/// Bytes of a receive window, by default.
const BUFFER: usize = 256 << 10;
/// Packets that a receive window holds at least. 16 packets of 65,535 bytes are also the most that
/// a window scale of 4 can announce.
const BUFFER_PACKETS: usize = 16;
/// Bounds of [`StackConfig::buffer`]: a few segments, and the largest window that can be announced.
const BUFFER_LIMITS: (usize, usize) = (1 << 10, 1 << 30);

/// Configuration of a [`Stack`](crate::Stack).
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// Source Ethernet address of sent frames.
    pub mac: [u8; 6],
    /// Size in bytes of the largest IP packet, for sending and for the MSS option, unless the queue
    /// has another one towards a next hop.
    pub mtu: usize,
    /// Size in bytes of a connection's receive window. A connection may have four times as much
    /// unacknowledged, in at most 256 segments. `None`, the default: 256 KiB, or 16 packets of the
    /// MTU if that is more.
    ///
    /// Four segments in flight, which is what 256 KiB hold at an MTU of 65,535, are too few to
    /// detect a loss by the segments that follow it.
    pub buffer: Option<usize>,
    /// Maximum number of connections at once, including those in TIME-WAIT.
    pub max_connections: usize,
    /// Seed of the keys of initial sequence numbers, timestamps and SYN cookies, for simulations:
    /// an attacker who knows the seed can guess them. `None`, the default: each key is 128 random
    /// bits.
    pub seed: Option<u64>,
    /// Time limit for a handshake that this side starts, unless the caller sets another
    /// ([`Stack::connect_within`](crate::Stack::connect_within)).
    pub connect_timeout: Duration,
    /// Time for which data or a FIN may stay unacknowledged, or a closed connection wait for the
    /// peer's FIN (RFC 9293 §3.8.3). 100 s by default, the minimum that RFC 1122 §4.2.3.5
    /// recommends.
    pub user_timeout: Duration,
    /// Idle time before a keep-alive probe, and the interval between probes (RFC 9293 §3.8.4).
    /// `None`, the default, sends none. A host whose program has died answers a probe with a RST.
    pub keepalive: Option<Duration>,
    /// Congestion control algorithm.
    pub congestion: CongestionControl,
    /// CUBIC and `NewReno` negotiate ECN and treat marks as losses (RFC 3168, RFC 9438 §4.6). False
    /// by default, as some old paths drop SYNs that ask for ECN. DCTCP always negotiates ECN, BBR
    /// never.
    pub ecn: bool,
    /// Minimum of the retransmission timeout beyond the round trip (RFC 6298 §2.4 has 1 s). 5 ms by
    /// default: for peers on one link, which do not hold ACKs back.
    pub min_rto: Duration,
    /// How long the ACK of one segment may be delayed to ride on the application's answer, if
    /// recent data was answered that fast. The ACK of two segments is never delayed (RFC 9293
    /// §3.8.6.3). 200 µs by default, 499 ms at most; a delay beyond the peer's
    /// [`min_rto`](Self::min_rto) looks like a loss to the peer. Zero acknowledges everything at
    /// the end of the turn that received it.
    pub ack_delay: Duration,
    /// Offers and accepts timestamps (RFC 7323). They cost 12 bytes per segment, and protect
    /// against wrapped sequence numbers and needless recoveries.
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
    /// Size in bytes of a receive window on a path whose packets have at most `mtu` bytes.
    pub(crate) fn buffer_at(&self, mtu: usize) -> usize {
        let buffer = self.buffer.unwrap_or(BUFFER.max(BUFFER_PACKETS * mtu));
        buffer.clamp(BUFFER_LIMITS.0, BUFFER_LIMITS.1)
    }
}

/// Addresses of a connection, and its route to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Local address and port.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
    /// Ethernet address of the peer, or of the router towards it.
    pub next_hop: [u8; 6],
    /// Metrics of the route.
    pub metrics: RouteMetrics,
}

/// Metrics of the host's route to a peer. The default has none: the MTU towards the next hop
/// applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    /// Size in bytes of the largest IP packet. The MTU towards the next hop is a second bound.
    pub mtu: Option<usize>,
    /// MSS to announce to the peer (`advmss`), in bytes of payload without options.
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

//! The TCP engine, which listens, and is given single frames.

use std::net::IpAddr;

use xwarp_driver::net::Network;
use xwarp_tcp::{Instant, StackConfig, StackCounters};
use xwarp_test_kit::Endpoint;

use crate::frames::{MAC, OURS_V4, OURS_V6, PORT};

/// Frames of the interface in memory.
const FRAMES: usize = 64;
/// Frames after which an engine is replaced, so that its listeners have room.
const LIFE: usize = 256;

/// What the engine does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is a TCP segment; what becomes of it is TCP's.
    Taken,
    /// By the counter's name.
    Drop(&'static str),
}

/// A counter, by its name.
type Cause = (&'static str, fn(&StackCounters) -> u64);

/// The counters of what happens before TCP.
const CAUSES: [Cause; 15] = [
    ("drop_not_ip", |it| it.drop_not_ip),
    ("drop_not_unicast", |it| it.drop_not_unicast),
    ("drop_other_station", |it| it.drop_other_station),
    ("drop_vlan", |it| it.drop_vlan),
    ("drop_bad_source", |it| it.drop_bad_source),
    ("drop_source_route", |it| it.drop_source_route),
    ("drop_bad_ip_option", |it| it.drop_bad_ip_option),
    ("drop_bad_extension", |it| it.drop_bad_extension),
    ("drop_bad_ip", |it| it.drop_bad_ip),
    ("drop_fragment", |it| it.drop_fragment),
    ("drop_bad_checksum", |it| it.drop_bad_checksum),
    ("drop_partial_checksum", |it| it.drop_partial_checksum),
    ("drop_super_packet", |it| it.drop_super_packet),
    ("drop_not_tcp", |it| it.drop_not_tcp),
    ("drop_bad_tcp", |it| it.drop_bad_tcp),
];

pub(crate) struct Engine {
    tcp: Endpoint,
    judged: usize,
}

impl Engine {
    pub(crate) fn new() -> Self {
        let config = StackConfig {
            mac: MAC,
            ..StackConfig::default()
        };
        let mut tcp = Endpoint::new(FRAMES, config);
        let ours = [(IpAddr::from(OURS_V4), 24), (IpAddr::from(OURS_V6), 64)];
        tcp.stack.set_networks(
            ours.map(|(address, prefix)| Network { address, prefix })
                .to_vec(),
        );
        for (address, _) in ours {
            let listening = tcp.stack.listen((address, PORT).into(), 16);
            listening.expect("the only ones");
        }
        Self { tcp, judged: 0 }
    }

    pub(crate) fn judge(&mut self, frame: &[u8]) -> Outcome {
        if self.judged == LIFE {
            *self = Self::new();
        }
        self.judged += 1;
        let before = self.tcp.stack.counters();
        self.tcp.wire.deliver(frame.to_vec());
        self.tcp.step(Instant::ORIGIN);
        drop((self.tcp.sent(), self.tcp.events()));
        let after = self.tcp.stack.counters();
        let moved = |(name, count): &Cause| {
            let times = count(&after) - count(&before);
            assert!(times <= 1, "{name} moves by {times}: {frame:02x?}");
            (times == 1).then_some(*name)
        };
        let causes: Vec<_> = CAUSES.iter().filter_map(moved).collect();
        match (&causes[..], after.segments_in - before.segments_in) {
            ([], 1) => Outcome::Taken,
            // Whether a peer can have such an address is asked of segments only.
            ([cause], 0) | ([cause @ ("drop_bad_source" | "drop_not_unicast")], 1) => {
                Outcome::Drop(cause)
            }
            other => panic!("one cause, or none: {other:?}: {frame:02x?}"),
        }
    }
}

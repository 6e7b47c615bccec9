//! Ports of a bridge at which segments are impaired, and the delay line beside them, in the network
//! namespace of the calling thread.
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use nix::net::if_::if_nametoindex;

use crate::impair::host::ip;
use crate::impair::{DelayLine, Fates, Impairment, Rule};

/// The delay line's interface that is a port of the bridge, and its far one.
const DELAY_LINE: [&str; 2] = ["delay0", "delay1"];
/// The largest packet of a delay line, in bytes.
const MTU: usize = 9000;

/// Makes the interfaces of a delay line, and joins them to a bridge.
pub fn add_delay_line(bridge: &str) {
    let [begin, end] = DELAY_LINE;
    ip(&format!("link add {begin} type veth peer name {end}"));
    for interface in DELAY_LINE {
        ip(&format!("link set {interface} addrgenmode none"));
        ip(&format!("link set {interface} mtu {MTU} up"));
    }
    ip(&format!("link set {begin} master {bridge}"));
    // Only what the program sends there shall go to the delay line.
    let flags = "learning off flood off mcast_flood off bcast_flood off";
    ip(&format!("link set {begin} type bridge_slave {flags}"));
}

/// Removes them.
pub fn remove_delay_line() {
    ip(&format!("link del {}", DELAY_LINE[0]));
}

fn index_of(device: &str) -> u32 {
    if_nametoindex(device).expect("an interface")
}

/// Programs on ports of a bridge that has a delay line. Must be dropped in the namespace that it
/// was made in.
pub struct ImpairedPorts {
    ports: Vec<Impairment>,
    delay_line: DelayLine,
}

impl ImpairedPorts {
    /// Impairs what comes in at each port by its rule. The delay line goes by the first.
    pub fn attach(ports: &[(&str, Rule)]) -> Self {
        let [begin, end] = DELAY_LINE;
        let (_, first) = ports.first().expect("a port");
        let delay_line = DelayLine::start(end, first).expect("root");
        let attach = |(port, rule): &(&str, Rule)| {
            Impairment::attach(rule, index_of(port), index_of(begin)).expect("root")
        };
        Self {
            ports: ports.iter().map(attach).collect(),
            delay_line,
        }
    }

    /// What became of the segments so far, at each port.
    pub fn fates(&self) -> Vec<Fates> {
        let fates = self.ports.iter().map(Impairment::fates);
        fates.map(|fates| fates.expect("counters")).collect()
    }

    /// Begins anew at all ports with another rule, which must divert as the first one did.
    pub fn set_rule(&self, rule: &Rule) {
        for port in &self.ports {
            port.set_rule(rule).expect("root");
        }
    }

    /// Ends the impairment; the delay line must not have failed.
    pub fn finish(self) {
        let Self { ports, delay_line } = self;
        drop(ports);
        delay_line.finish().expect("no error of the delay line");
    }
}

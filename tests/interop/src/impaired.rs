//! A lab whose bridge loses, repeats and reorders segments.

use nix::net::if_::if_nametoindex;
use xwarp_impair::{DelayLine, Fates, Impairment, Rule};
use xwarp_system_tests::Host;

/// The delay line's end at the bridge, and its far end.
const DELAY_LINE: [&str; 2] = ["delay0", "delay1"];

/// Programs on ports of the bridge, as long as the value lives.
pub struct Impaired<'a> {
    switch: &'a Host,
    ports: Vec<Impairment>,
    delay_line: Option<DelayLine>,
}

impl<'a> Impaired<'a> {
    /// What comes in at these ports is impaired, each by random numbers of its own.
    pub(crate) fn new(switch: &'a Host, ports: [&str; 2], rule: &Rule) -> Self {
        let [begin, end] = DELAY_LINE;
        switch.ip(&format!("link add {begin} type veth peer name {end}"));
        for interface in DELAY_LINE {
            switch.ip(&format!("link set {interface} addrgenmode none"));
            switch.ip(&format!("link set {interface} mtu 9000 up"));
        }
        switch.ip(&format!("link set {begin} master br0"));
        // Only what the programs send there shall go to the delay line.
        for flag in ["learning", "flood", "mcast_flood", "bcast_flood"] {
            switch.ip(&format!("link set {begin} type bridge_slave {flag} off"));
        }
        let attach = |port: &str, rule: &Rule| {
            let index = |name: &str| if_nametoindex(name).expect("our own interface");
            Impairment::attach(rule, index(port), index(begin)).expect("root may")
        };
        let (impaired, delay_line) = switch.run(|| {
            let impaired: Vec<Impairment> = (ports.iter().zip(0..))
                .map(|(port, which)| {
                    attach(
                        port,
                        &Rule {
                            seed: other(rule, which),
                            ..*rule
                        },
                    )
                })
                .collect();
            (impaired, DelayLine::start(end, rule).expect("root may"))
        });
        Self {
            switch,
            ports: impaired,
            delay_line: Some(delay_line),
        }
    }

    /// What became of the segments of xwarp and of the guest.
    pub fn fates(&self) -> Vec<Fates> {
        let fates = self.ports.iter().map(Impairment::fates);
        fates.map(|fates| fates.expect("our own map")).collect()
    }
}

/// Another seed for each port.
fn other(rule: &Rule, which: u64) -> xwarp_netsim::Seed {
    let xwarp_netsim::Seed(seed) = rule.seed;
    xwarp_netsim::Seed(seed.wrapping_mul(2).wrapping_add(which))
}

impl Drop for Impaired<'_> {
    fn drop(&mut self) {
        let (ports, delay_line) = (std::mem::take(&mut self.ports), self.delay_line.take());
        // Interfaces are known by their numbers in there.
        self.switch.run(|| drop((ports, delay_line)));
        self.switch.ip(&format!("link del {}", DELAY_LINE[0]));
    }
}

//! A lab whose bridge loses, repeats and reorders segments.

use xwarp_system_tests::Host;
use xwarp_system_tests::impair::{Fates, ImpairedPorts, Rule, add_delay_line, remove_delay_line};
use xwarp_test_kit::netsim::Seed;

/// Impaired ports of the bridge, as long as the value lives.
pub struct Impaired<'a> {
    switch: &'a Host,
    ports: Option<ImpairedPorts>,
}

impl<'a> Impaired<'a> {
    /// What comes in at these ports is impaired, each by random numbers of its own.
    pub(crate) fn new(switch: &'a Host, ports: [&str; 2], rule: &Rule) -> Self {
        let [first, second] = ports;
        let rules = [(first, with_seed(rule, 0)), (second, with_seed(rule, 1))];
        let ports = switch.run(|| {
            add_delay_line("br0");
            ImpairedPorts::attach(&rules)
        });
        Self {
            switch,
            ports: Some(ports),
        }
    }

    /// What became of the segments of xwarp and of the guest.
    pub fn fates(&self) -> Vec<Fates> {
        self.ports.as_ref().expect("at work").fates()
    }
}

/// The rule with another seed for each port.
fn with_seed(rule: &Rule, which: u64) -> Rule {
    let Seed(seed) = rule.seed;
    let seed = Seed(seed.wrapping_mul(2).wrapping_add(which));
    Rule { seed, ..*rule }
}

impl Drop for Impaired<'_> {
    fn drop(&mut self) {
        let ports = self.ports.take();
        // Interfaces are known by their numbers in there.
        self.switch.run(|| {
            drop(ports);
            remove_delay_line();
        });
    }
}

//! The TCP engine on `AF_XDP`, against the Linux kernel's TCP and against itself. Long streams and
//! many short connections go in both directions. The network may lose or mark segments of either
//! side. And the queues below it. Needs root.
#![forbid(unsafe_code)]

mod engine;
mod large;
mod marks;
mod narrow;
mod queues;
mod short;
mod stall;
mod streams;
mod tail;
mod tx_checksum;
mod waited;

use xwarp_driver::attach::XdpMode;
use xwarp_system_tests::impair::{Bridged, Impaired, Rule, Side};
use xwarp_system_tests::{Exclusive, LOCK};
use xwarp_test_kit::netsim::Seed;

/// What is lost, of whose segments.
#[derive(Clone, Copy, Debug)]
struct Loss {
    of: Side,
    part: f64,
}

/// A perfect network, and networks that lose segments of either side.
const LOSSES: [Option<Loss>; 3] = [
    None,
    Some(Loss {
        of: Side::A,
        part: 0.02,
    }),
    Some(Loss {
        of: Side::B,
        part: 0.02,
    }),
];

const MODES: [XdpMode; 2] = [XdpMode::Native, XdpMode::Generic];

/// Impairs the network, if that is wanted.
fn impair(hosts: &Bridged, loss: Option<Loss>) -> Option<Impaired<'_>> {
    let loss = loss?;
    let rule = Rule {
        loss: loss.part,
        ..Rule::new(Seed(11))
    };
    Some(hosts.impair(loss.of, rule))
}

/// Runs a test in each mode on each of the networks.
fn in_each_mode(test: impl Fn(&Bridged, XdpMode, Option<Loss>)) {
    for mode in MODES {
        for loss in LOSSES {
            let _alone = Exclusive::wait_for(LOCK);
            let hosts = Bridged::new();
            let impaired = impair(&hosts, loss);
            test(&hosts, mode, loss);
            check_impaired(impaired);
        }
    }
}

/// Something was lost, if it was meant to be.
fn check_impaired(impaired: Option<Impaired<'_>>) {
    if let Some(impaired) = impaired {
        let fates = impaired.fates();
        assert!(fates.lost > 0, "nothing was lost: {fates:?}");
    }
}

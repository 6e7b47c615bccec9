//! Loses segments that come in at an interface, for as long as standard input is open.

use std::io::Read;

use anyhow::Context;
use nix::net::if_::if_nametoindex;
use xwarp_system_tests::impair::{Impairment, Rule};
use xwarp_test_kit::netsim::Seed;

use crate::Impair;

pub(crate) fn run(impair: &Impair) -> anyhow::Result<()> {
    let rule = Rule {
        loss: impair.loss,
        ..Rule::new(Seed(impair.seed))
    };
    let interface = if_nametoindex(impair.dev.as_str())
        .with_context(|| format!("there is no interface {}", impair.dev))?;
    // This rule diverts nothing to a delay line.
    let impairment = Impairment::attach(&rule, interface, interface)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let fates = impairment.fates()?;
    println!("{} {}", fates.passed, fates.lost);
    Ok(())
}

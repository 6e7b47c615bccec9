//! Floods a server for as long as standard input is open.

use std::io::Read;

use xwarp_system_tests::impair::{Flood, Hostile};
use xwarp_test_kit::netsim::Seed;

use crate::frame::parse_mac;

pub(crate) fn run(flood: &crate::Flood) -> anyhow::Result<()> {
    let hostile = Hostile {
        target: flood.target,
        mac: parse_mac(&flood.mac)?,
        syns: flood.syns,
        acks: flood.acks,
        seed: Seed(flood.seed),
    };
    let sender = Flood::start(&flood.dev, hostile)?;
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let sent = sender.finish()?;
    println!("{} {}", sent.syns, sent.acks);
    Ok(())
}

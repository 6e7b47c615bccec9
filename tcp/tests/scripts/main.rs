//! Wire-exact scripts in the manner of packetdrill: what the peer sends, and what must be answered,
//! and when.
//!
//! A script is a list of lines, which [`runner`] describes. The peer's sequence numbers count from
//! its SYN, ours from ours, and our timestamps from our first.

mod classic_ecn;
mod close;
mod delay;
mod ecn;
#[path = "../stack/frames.rs"]
mod frames;
mod handshake;
mod path;
mod reset;
mod retransmit;
mod route;
mod runner;
mod sack;
mod segment;
mod timestamps;
mod window;

pub(crate) use runner::{run, try_run};

/// A connection that the peer has opened, with SACK, a window scale of 0 and a round trip of 10 ms.
pub(crate) const ESTABLISHED: &str = "
listen
< S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
+10ms < . 1:1(0) ack 1 win 65535
event Incoming
";

/// A connection that the peer has opened, with timestamps and SACK, a window scale of 0 and a round
/// trip of 10 ms.
pub(crate) const TIMESTAMPS: &str = "
listen
< S 0:0(0) win 65535 <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 0 ecr 100,nop,wscale 3>
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,TS val 110 ecr 0>
event Incoming
";

/// A connection that the peer has opened without options except the MSS.
pub(crate) const PLAIN: &str = "
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
+10ms < . 1:1(0) ack 1 win 65535
event Incoming
";

/// Runs a script after a beginning.
pub(crate) fn run_after(beginning: &str, script: &str) {
    run(&format!("{beginning}{script}"));
}

/// Row of a table of scripts: its name, and the lines after the table's beginning.
pub(crate) type Row = (&'static str, &'static str);

/// Runs the script of each row after `beginning`.
///
/// # Panics
/// If scripts fail: names their rows.
pub(crate) fn run_table(beginning: &str, rows: &[Row]) {
    let failures: Vec<String> = rows
        .iter()
        .filter_map(|(name, script)| {
            let problem = try_run(&format!("{beginning}{script}")).err()?;
            Some(format!("{name}: {problem}"))
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

//! Memory of a connected queue pair that does nothing, with queues of one entry.

use crate::hosts::Hosts;

/// Queue pairs before and after.
const FEW: usize = 1000;
const MANY: usize = 10_000;

/// KiB of this process that are in memory (proc(5)).
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    number
        .and_then(|number| number.parse().ok())
        .expect("VmRSS in kB")
}

/// Prints how many bytes each further one takes, of both ends of its connection the mean.
pub(crate) fn measure() {
    let mut hosts = Hosts::new();
    hosts.grow(FEW);
    let before = resident();
    hosts.grow(MANY);
    let grown = resident() - before;
    println!("{}", 1024 * grown / (2 * (MANY - FEW)));
}

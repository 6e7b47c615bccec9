//! Resources that this process holds.

use std::fs;

/// Its resident memory in KiB.
pub(crate) fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("a process has a status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number
        .and_then(|number| number.parse().ok())
        .expect("a number")
}

/// Its open file descriptors.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

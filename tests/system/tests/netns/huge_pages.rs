//! Huge pages beneath frames and regions.

use std::fs;
use std::io::Write;

use xwarp_system_tests::{DEV, Hosts, Running};
use xwarp_test_kit::needs_root;

const SETTING: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// Huge pages for two RNICs, and some for other processes on the host that open one now.
const SET_ASIDE: u64 = 120;
/// Kilobytes of the frames that an RNIC registers; its regions are as large as a test needs.
const FRAMES: u64 = 16 << 10;

fn number(file: &str) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Huge pages that are set aside as long as it lives.
struct SetAside {
    before: u64,
}

impl SetAside {
    /// `None` if the host has none to set aside, which is said.
    fn begin() -> Option<Self> {
        let before = number(SETTING);
        if let Some(before) = before
            && fs::write(SETTING, (before + SET_ASIDE).to_string()).is_ok()
        {
            let pages = Self { before };
            if number(FREE) >= Some(SET_ASIDE) {
                return Some(pages);
            }
        }
        let why = "this host has no huge pages to set aside";
        // If standard error is closed, only this notice is lost.
        let _ = writeln!(std::io::stderr(), "skipped: a test of huge pages: {why}");
        None
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let put_back = fs::write(SETTING, self.before.to_string());
        assert!(put_back.is_ok() || std::thread::panicking(), "{put_back:?}");
    }
}

/// Kilobytes of a process in huge pages that were set aside.
fn in_huge_pages(process: &Running) -> u64 {
    let smaps = fs::read_to_string(format!("/proc/{}/smaps_rollup", process.id())).expect("smaps");
    let line = smaps
        .lines()
        .find_map(|line| line.strip_prefix("Private_Hugetlb:"));
    let size = line.and_then(|size| size.trim().strip_suffix(" kB"));
    size.expect("a size").trim().parse().expect("a number")
}

const TEST: &str = "write-bw --verify --iterations 50";

/// Moves data between two hosts, and says how much of the server's memory was in huge pages.
fn run(hosts: &Hosts) -> u64 {
    let mut server = hosts.b.start(&format!("perf {TEST} --dev {DEV}"));
    server.line("waiting for a client at ");
    let huge = in_huge_pages(&server);
    let client = hosts.a.xwarp(&format!("perf {TEST} 10.77.0.2"));
    assert!(client.succeeded().stdout.contains("every byte as sent"));
    server.finish().succeeded();
    huge
}

#[test]
fn packet_memory_is_in_huge_pages_where_some_are_set_aside() {
    needs_root!();
    let hosts = Hosts::new();
    let Some(pages) = SetAside::begin() else {
        return;
    };
    let huge = run(&hosts);
    assert!(huge >= FRAMES, "{huge} kB");
    let free_before = pages.before;
    drop(pages);
    if free_before == 0 {
        assert_eq!(run(&hosts), 0, "none are left, and small ones do");
    }
}

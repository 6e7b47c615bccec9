//! Whatever ends a test, nothing stays.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use xwarp_interop_tests::{Guest, Image, Lab};
use xwarp_system_tests::{Running, eventually};

/// User-Mode Linux processes that run the image's kernel. Each guest has several.
fn guests() -> usize {
    let Some(image) = Image::find() else { return 0 };
    let all = fs::read_dir("/proc").expect("processes");
    let programs = all.filter_map(|one| fs::read_link(one.ok()?.path().join("exe")).ok());
    programs.filter(|program| program == image.kernel()).count()
}

#[test]
fn a_guest_ends_when_its_test_is_killed_and_the_next_lab_removes_the_rest() {
    if Image::find().is_none() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_guest"));
    command.arg("echo booted; sleep 60");
    let mut victim = Running::start(command);
    victim.line("booted");
    assert!(guests() > 0);
    victim.signal(Signal::SIGKILL);
    victim.finish().killed_by(Signal::SIGKILL);
    eventually("the guest ends", || guests() == 0);
    assert!(Path::new("/run/netns/xwiop-net").exists());
    drop(Lab::new());
    for name in ["xwiop-net", "xwiop-a"] {
        assert!(!Path::new("/run/netns").join(name).exists(), "{name}");
    }
}

#[test]
fn commands_end_with_their_jobs_and_guests_with_their_values() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    drop(guest.start("sleep 1000"));
    let sleepers = guest.run("ps -eo args | grep -c '^[s]leep 1000'");
    assert_eq!(sleepers.output, "0", "{sleepers}");
    drop(guest);
    eventually("the guest ends", || guests() == 0);
}

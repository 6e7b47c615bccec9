//! End of a test: nothing runs on, whatever ended it.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xwarp_guest_tests::siw::{Guest, Image, Lab};
use xwarp_system_tests::{Running, TIMEOUT, eventually};

/// Whether a process was started with this word on its command line.
fn runs(word: &str) -> bool {
    let mut all = fs::read_dir("/proc").expect("processes");
    all.any(|process| {
        let line = process.and_then(|process| fs::read(process.path().join("cmdline")));
        line.is_ok_and(|line| {
            line.split(|byte| *byte == 0)
                .any(|one| one == word.as_bytes())
        })
    })
}

#[test]
fn guest_ends_when_its_test_is_killed_and_does_not_hinder_the_next() {
    let Some(image) = Image::find() else { return };
    let mut command = Command::new(env!("CARGO_BIN_EXE_guest"));
    command.arg("echo booted GUEST_SHARE=$GUEST_SHARE; sleep 60");
    let mut child = Running::start(command);
    let line = child.line("booted");
    let (_, word) = line.split_once(' ').expect("two words");
    assert!(runs(word), "{word}");
    child.signal(Signal::SIGKILL);
    child.finish().killed_by(Signal::SIGKILL);
    eventually("the guest ends", || !runs(word));
    let lab = Lab::new();
    let next = Guest::boot(&lab, &image, 1).run("true");
    assert_eq!(next.status(), 0, "{next}");
}

#[test]
fn commands_end_with_their_jobs_and_guests_with_their_values() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    drop(guest.start("sleep 1000"));
    let sleepers = guest.run("ps -eo args | grep -c '^[s]leep 1000'");
    assert_eq!(sleepers.output, "0", "{sleepers}");
    let word = format!("GUEST_SHARE={}", guest.share().display());
    assert!(runs(&word), "{word}");
    drop(guest);
    eventually("the guest ends", || !runs(&word));
}

#[test]
fn job_that_takes_longer_comes_back_and_can_be_told_to_end() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guest = Guest::boot(&lab, &image, 1);
    let job = guest.start("read word; echo heard $word");
    let began = Instant::now();
    let Err(mut job) = job.try_finish_within(Duration::from_millis(200)) else {
        panic!("it ended before it was told to");
    };
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    job.tell("end");
    let ended = job.finish().succeeded();
    assert_eq!(ended.output, "heard end", "{ended}");
}

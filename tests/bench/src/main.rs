//! Work of the protocol core, of TCP and of a whole RNIC whose instructions `tools/bench` counts.
//!
//! Each case is a function of its own, so that callgrind names it. `build_1440_plain` handles
//! [`FPDUS`] FPDUs of 1440 bytes of payload without markers, `receive_1448` as many segments.
//! `request_write_1` has the requester's part of as many Writes. All is prepared, and done once,
//! before: what is counted is the steady state. With `--bursts` only messages that are posted 64 at
//! a time are handled, with `--calls` only single calls are made.
#![forbid(unsafe_code)]

mod bursts;
mod calls;
mod cases;
mod hosts;
mod idle;
mod messages;
mod native;
mod payload;
mod program;
mod region;
mod segments;
mod switch;

use std::hint::black_box;

use cases::{CASES, FPDUS};
use crc_fast::{CrcAlgorithm, get_calculator_target};
use native::Native;
use program::Program;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("--idle") {
        return idle::measure();
    }
    if std::env::args().nth(1).as_deref() == Some("--bursts") {
        return bursts::count();
    }
    if std::env::args().nth(1).as_deref() == Some("--calls") {
        return count_calls();
    }
    if std::env::args().nth(1).as_deref() == Some("--payload") {
        return payload::measure();
    }
    count();
}

fn count_calls() {
    calls::count::<Native>();
    calls::count::<Program>();
}

fn count() {
    for case in CASES {
        // Whatever is done once per process, such as asking what the CPU can do, happens here.
        black_box(xwarp_iwarp::crc::crc32c(&[0; 9000]));
        (case.run)(&mut case.prepare());
        println!("{}", case.name);
    }
    segments::count();
    for name in segments::NAMES {
        println!("{name}");
    }
    switch::count();
    for name in switch::NAMES {
        println!("{name}");
    }
    messages::count();
    for name in messages::names() {
        println!("{name}");
    }
    bursts::count();
    for name in bursts::names() {
        println!("{name}");
    }
    count_calls();
    for name in calls::names::<Native>().chain(calls::names::<Program>()) {
        println!("{name}");
    }
    println!("fpdus {FPDUS}");
    println!("bursts {}", bursts::MESSAGES);
    println!("crc {}", get_calculator_target(CrcAlgorithm::Crc32Iscsi));
}

//! Links with other MTUs than Ethernet's, and with different ones at either end.

use ::xwarp::config::XdpMode;
use xwarp_guest_tests::siw::{Guest, Lab, Mtus};
use xwarp_system_tests::{Capture, check_nothing_dropped};

use crate::operations::write_each_way;
use crate::pair::with_guest_on;
use crate::reads::{read_from_siw, read_from_xwarp};
use crate::xwarp::Setup;
use crate::{PORT, Pair, Role};

/// The largest that veth takes in native mode with a program for frames of one buffer. Then the
/// largest whose frames fit one of xwarp's buffers, and one that needs three.
const NATIVE: u32 = 3506;
const GENERIC: u32 = 3818;
const JUMBO: u32 = 9000;
/// Bytes of an IPv4 and a TCP header, and of timestamps.
const HEADERS: u32 = 40;
/// FPDUs are that much longer than their ULPDU, and siw's a multiple of 8.
const FRAMING: u32 = 6;
const ROUNDING: u32 = 8 + 12;

/// Messages of every kind each way; no FPDU is larger than fits a segment of the smaller MTU, and
/// the largest fill one.
fn exchange_all(lab: &Lab, guest: &Guest<'_>, smaller: u32, setup: &Setup) {
    let recorder = lab.record(1);
    for role in Role::BOTH {
        let mut pair = Pair::connect(lab, guest, role, setup);
        for len in [1, 10_000, 100_000] {
            pair.exchange(role, len);
            write_each_way(&mut pair, len);
            read_from_siw(&mut pair, len, 1);
            read_from_xwarp(&mut pair, len, 1);
        }
        check_nothing_dropped(&pair.xwarp.rnic);
    }
    let capture = Capture::dissect_port(&recorder.finish(), PORT);
    let lengths = capture.count("iwarp_mpa.ulpdulength");
    let lengths = lengths.keys().filter_map(|length| length.parse().ok());
    let largest: u32 = lengths.max().expect("FPDUs");
    let room = smaller - HEADERS - FRAMING;
    assert!(
        (room - ROUNDING..=room).contains(&largest),
        "a ULPDU of {largest} bytes, MTU {smaller}"
    );
}

fn setup() -> Setup {
    Setup::with_bytes(256 << 10)
}

/// xwarp's MTU in this mode, and siw's.
fn in_mode(mode: XdpMode, xwarp: u32, guests: u32) {
    with_guest_on(Mtus { xwarp, guests }, |lab, guest| {
        let setup = Setup {
            mode: Some(mode),
            ..setup()
        };
        exchange_all(lab, guest, xwarp.min(guests), &setup);
    });
}

fn native(xwarp: u32, guests: u32) {
    in_mode(XdpMode::Native, xwarp, guests);
}

#[test]
fn largest_mtu_of_native_mode_is_used() {
    native(NATIVE, NATIVE);
}

#[test]
fn smaller_of_two_mtus_is_used() {
    for (xwarp, guests) in [(NATIVE, JUMBO), (1500, 576)] {
        native(xwarp, guests);
    }
}

#[test]
#[ignore = "only in the set of all"]
fn smaller_of_many_mtus_is_used() {
    for xwarp in [1280, 1500, NATIVE, JUMBO] {
        for guests in [576, 1280, 1500, NATIVE, JUMBO] {
            native(xwarp, guests);
        }
    }
}

#[test]
fn frames_of_one_buffer_in_generic_mode() {
    in_mode(XdpMode::Generic, GENERIC, JUMBO);
}

#[test]
fn frames_of_several_buffers() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        in_mode(mode, JUMBO, JUMBO);
    }
}

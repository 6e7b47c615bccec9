//! Names of numbers, and rates: functions that need no device.

use std::ffi::{CStr, c_char, c_int};

use crate::abi::numbers::IBV_FORK_UNNEEDED;

/// The name of a number, or the name of unknown numbers.
fn word(words: &[&'static CStr], number: c_int, otherwise: &'static CStr) -> *const c_char {
    let index = usize::try_from(number).ok();
    let word = index.and_then(|index| words.get(index));
    word.unwrap_or(&otherwise).as_ptr()
}

/// `ibv_node_type_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const WORDS: [&CStr; 8] = [
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    word(&WORDS, kind, c"unknown")
}

/// `ibv_port_state_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const WORDS: [&CStr; 6] = [
        c"no state change (NOP)",
        c"down",
        c"init",
        c"armed",
        c"active",
        c"active defer",
    ];
    word(&WORDS, state, c"unknown")
}

/// `ibv_event_type_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    const WORDS: [&CStr; 20] = [
        c"CQ error",
        c"local work queue catastrophic error",
        c"invalid request local work queue error",
        c"local access violation work queue error",
        c"communication established",
        c"send queue drained",
        c"path migrated",
        c"path migration request error",
        c"local catastrophic error",
        c"port active",
        c"port error",
        c"LID change",
        c"P_Key change",
        c"SM change",
        c"SRQ catastrophic error",
        c"SRQ limit reached",
        c"last WQE reached",
        c"client reregistration",
        c"GID table change",
        c"WQ fatal",
    ];
    word(&WORDS, event, c"unknown")
}

/// `ibv_wc_status_str(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    const WORDS: [&CStr; 24] = [
        c"success",
        c"local length error",
        c"local QP operation error",
        c"local EE context operation error",
        c"local protection error",
        c"Work Request Flushed Error",
        c"memory management operation error",
        c"bad response error",
        c"local access error",
        c"remote invalid request error",
        c"remote access error",
        c"remote operation error",
        c"transport retry counter exceeded",
        c"RNR retry counter exceeded",
        c"local RDD violation error",
        c"remote invalid RD request",
        c"aborted error",
        c"invalid EE context number",
        c"invalid EE context state",
        c"fatal error",
        c"response timeout error",
        c"general error",
        c"TM error",
        c"TM software rendezvous",
    ];
    word(&WORDS, status, c"unknown")
}

/// A rate: its number, multiples of 2.5 Gb/s, and Mb/s.
struct Rate(c_int, c_int, c_int);

/// InfiniBand's rates. 0 is the highest that there is.
const RATES: [Rate; 23] = [
    Rate(2, 1, 2500),
    Rate(5, 2, 5000),
    Rate(3, 4, 10_000),
    Rate(11, 6, 14_062),
    Rate(6, 8, 20_000),
    Rate(15, 10, 25_781),
    Rate(19, 11, 28_125),
    Rate(4, 12, 30_000),
    Rate(7, 16, 40_000),
    Rate(20, 20, 50_000),
    Rate(12, 23, 56_250),
    Rate(8, 24, 60_000),
    Rate(9, 32, 80_000),
    Rate(16, 40, 103_125),
    Rate(13, 45, 112_500),
    Rate(10, 48, 120_000),
    Rate(14, 68, 168_750),
    Rate(17, 80, 206_250),
    Rate(18, 120, 309_375),
    Rate(21, 160, 425_000),
    Rate(22, 240, 637_500),
    Rate(23, 320, 850_000),
    Rate(24, 480, 1_275_000),
];
/// Number of the highest rate.
const RATE_MAX: c_int = 0;

fn rate(is_wanted: impl Fn(&Rate) -> bool) -> Option<&'static Rate> {
    RATES.iter().find(|rate| is_wanted(rate))
}

/// `ibv_rate_to_mult(3)`: -1 if it is no rate.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(number: c_int) -> c_int {
    rate(|rate| rate.0 == number).map_or(-1, |rate| rate.1)
}

/// `mult_to_ibv_rate(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    rate(|rate| rate.1 == multiple).map_or(RATE_MAX, |rate| rate.0)
}

/// `ibv_rate_to_mbps(3)`: -1 if it is no rate.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(number: c_int) -> c_int {
    rate(|rate| rate.0 == number).map_or(-1, |rate| rate.2)
}

/// `mbps_to_ibv_rate(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    rate(|rate| rate.2 == mbps).map_or(RATE_MAX, |rate| rate.0)
}

/// `ibv_fork_init(3)`: nothing is pinned, so a child's copy of memory does no harm.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> u32 {
    IBV_FORK_UNNEEDED
}

/// Does nothing: see [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_start: *mut std::ffi::c_void, _size: usize) -> c_int {
    0
}

/// Does nothing: see [`ibv_fork_init`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_start: *mut std::ffi::c_void, _size: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_go_there_and_back() {
        for Rate(number, multiple, mbps) in RATES {
            assert_eq!(mult_to_ibv_rate(ibv_rate_to_mult(number)), number);
            assert_eq!(mbps_to_ibv_rate(ibv_rate_to_mbps(number)), number);
            assert_eq!(
                (ibv_rate_to_mult(number), ibv_rate_to_mbps(number)),
                (multiple, mbps)
            );
        }
        assert_eq!([ibv_rate_to_mult(99), ibv_rate_to_mbps(1)], [-1, -1]);
        assert_eq!([mult_to_ibv_rate(99), mbps_to_ibv_rate(1)], [RATE_MAX; 2]);
    }

    #[test]
    fn unknown_number_has_a_word() {
        for word in [
            ibv_wc_status_str(-1),
            ibv_event_type_str(20),
            ibv_port_state_str(99),
        ] {
            // SAFETY: it is a text of C, which lives as long as the program.
            assert_eq!(unsafe { CStr::from_ptr(word) }, c"unknown");
        }
    }
}

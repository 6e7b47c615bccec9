//! CUBIC's window curve, and the window that Reno would have (RFC 9438 §4.2 to §4.4).

use std::time::Duration;

use super::window::{MAX_WINDOW, Window};
use crate::time::Instant;

/// α of the Reno-friendly window, 3 (1 - β) / (1 + β) (§4.3).
const ALPHA: (u128, u128) = (9, 17);
/// Microseconds whose cube does not overflow; more than an hour, when any window has long reached
/// its limit.
const MAX_TIME: u128 = 1 << 32;
/// A second cubed in microseconds cubed, over C = 0.4 (§5.1).
const SECOND_CUBED_OVER_C: u128 = 2_500_000_000_000_000_000;
/// Parts of a byte in which the Reno-friendly window is counted. Each ACK of a segment adds
/// hundreds of them to the largest window, so rounding loses little.
const PARTS: u128 = 1 << 20;

/// Curve of one stage of congestion avoidance (§4.1.2).
#[derive(Clone, Debug)]
pub(super) struct Epoch {
    pub(super) start: Instant,
    /// Microseconds from `start` until the curve reaches `w_max`.
    pub(super) k: u64,
    pub(super) w_max: usize,
    /// Reno's window in `PARTS` of a byte (§4.3).
    w_est: u128,
    /// The window before the last reduction.
    cwnd_prior: usize,
    /// Credit towards the next byte of growth, in bytes times bytes.
    credit: u128,
}

/// Microseconds until the curve has risen by `rise` bytes to its plateau (§4.2, equation 2).
fn k(rise: usize, mss: usize) -> u64 {
    cube_root((rise as u128) * SECOND_CUBED_OVER_C / (mss as u128).max(1))
}

/// Integer cube root of `n`, for `n` below 2^126.
fn cube_root(n: u128) -> u64 {
    (0..42).rev().fold(0_u64, |root, bit| {
        let next = u128::from(root | 1 << bit);
        if next * next * next <= n {
            root | 1 << bit
        } else {
            root
        }
    })
}

impl Epoch {
    /// A curve from the current window towards `w_max`, or one that starts at its plateau if no
    /// loss has set `w_max` (§4.8, §4.10).
    pub(super) fn new(now: Instant, window: &Window, w_max: usize, cwnd_prior: usize) -> Self {
        let cwnd = window.cwnd;
        let w_max = w_max.max(cwnd);
        Self {
            start: now,
            k: k(w_max - cwnd, window.mss),
            w_max,
            w_est: (cwnd as u128) * PARTS,
            cwnd_prior: cwnd_prior.max(cwnd),
            credit: 0,
        }
    }

    /// Window in bytes at `time` (§4.2, equation 1).
    pub(super) fn curve(&self, time: Duration, mss: usize) -> usize {
        let k = u128::from(self.k);
        let distance = time.as_micros().abs_diff(k).min(MAX_TIME);
        let rise = distance.pow(3) * (mss as u128) / SECOND_CUBED_OVER_C;
        let rise = usize::try_from(rise).unwrap_or(usize::MAX);
        if time.as_micros() < k {
            self.w_max.saturating_sub(rise)
        } else {
            self.w_max.saturating_add(rise).min(MAX_WINDOW)
        }
    }

    /// Grows the Reno-friendly window by an ACK of `bytes` (§4.3, equation 4), and returns it.
    pub(super) fn friendly(&mut self, bytes: usize, window: &Window) -> usize {
        let alpha = if self.w_est >= (self.cwnd_prior as u128) * PARTS {
            (1, 1)
        } else {
            ALPHA
        };
        let grown = (bytes as u128).min(MAX_WINDOW as u128) * (window.mss as u128) * PARTS;
        self.w_est += grown * alpha.0 / alpha.1 / (window.cwnd as u128).max(1);
        self.w_est = self.w_est.min((MAX_WINDOW as u128) * PARTS);
        usize::try_from(self.w_est / PARTS).unwrap_or(MAX_WINDOW)
    }

    /// Bytes by which the window grows towards `target` for an ACK of `bytes` (§4.4).
    pub(super) fn towards(&mut self, target: usize, bytes: usize, cwnd: usize) -> usize {
        let cwnd_wide = (cwnd as u128).max(1);
        let bytes = (bytes as u128).min(MAX_WINDOW as u128);
        self.credit += (target.saturating_sub(cwnd) as u128) * bytes;
        let grown = self.credit / cwnd_wide;
        self.credit %= cwnd_wide;
        let room = target.saturating_sub(cwnd);
        usize::try_from(grown).map_or(room, |grown| grown.min(room))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_whole() {
        for root in [0, 1, 2, 3, 1000, 4_217_163, (1 << 42) - 1] {
            let cube = u128::from(root).pow(3);
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(u64::from(root == 0)));
            assert_eq!(cube_root(cube.saturating_sub(1)), root.saturating_sub(1));
        }
    }
}

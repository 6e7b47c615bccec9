//! Rule of an impairment: rates of loss, duplication and marking, and the delay.

use std::time::Duration;

use xwarp_test_kit::netsim::Seed;

/// 2^32, the number of values that a `u32` has.
const U32_VALUES: f64 = 4_294_967_296.0;

/// What happens to the TCP segments that come in at an interface. Probabilities are from 0 to 1,
/// together at most 1.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What all randomness comes from.
    pub seed: Seed,
    /// That a segment is lost.
    pub loss: f64,
    /// That it arrives twice.
    pub duplicate: f64,
    /// That it arrives late.
    pub reorder: f64,
    /// That it is marked on its way, if its sender understands ECN (RFC 3168 §5).
    pub mark: f64,
    /// How late.
    pub delay: Duration,
    /// The segment of this number is lost in any case, counted from 1 when the rule begins; 0: none
    /// is.
    pub lost_number: u32,
}

impl Rule {
    /// A perfect link.
    pub fn new(seed: Seed) -> Self {
        Self {
            seed,
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            mark: 0.0,
            delay: Duration::from_millis(1),
            lost_number: 0,
        }
    }

    /// The part of all segments that is diverted to the delay line.
    fn diverted(&self) -> f64 {
        self.duplicate + self.reorder
    }

    /// That a segment on the delay line is one to be repeated.
    pub(crate) fn duplicate_of_diverted(&self) -> f64 {
        match self.diverted() {
            0.0 => 0.0,
            diverted => self.duplicate / diverted,
        }
    }

    /// The rule as impair.bpf.c has it.
    pub(crate) fn to_map_value(self) -> [u8; 24] {
        let Seed(seed) = self.seed;
        // Any state but 0 will do; neighbouring seeds shall not begin alike.
        let state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut value = [0; 24];
        value[..8].copy_from_slice(&state.to_ne_bytes());
        value[8..12].copy_from_slice(&threshold(self.loss).to_ne_bytes());
        value[12..16].copy_from_slice(&threshold(self.loss + self.diverted()).to_ne_bytes());
        let marked = self.loss + self.diverted() + self.mark;
        value[20..].copy_from_slice(&threshold(marked).to_ne_bytes());
        value[16..20].copy_from_slice(&self.lost_number.to_ne_bytes());
        value
    }
}

/// The number that this part of all draws is below.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the range of u32, which `as` saturates at"
)]
fn threshold(probability: f64) -> u32 {
    (probability.clamp(0.0, 1.0) * U32_VALUES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_become_parts_of_all_draws() {
        assert_eq!(threshold(0.0), 0);
        assert_eq!(threshold(0.5), 1 << 31);
        assert_eq!(threshold(1.0), u32::MAX);
    }

    #[test]
    fn delay_line_without_traffic_repeats_nothing() {
        let rule = Rule::new(Seed(1));
        assert!(rule.duplicate_of_diverted().abs() < f64::EPSILON);
        let half = Rule {
            duplicate: 0.01,
            reorder: 0.01,
            ..rule
        };
        assert!((half.duplicate_of_diverted() - 0.5).abs() < f64::EPSILON);
    }
}

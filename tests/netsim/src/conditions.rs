//! What a direction of a link does to frames.

use std::time::Duration;

/// What happens to the frames of one direction. The default is a perfect link without delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conditions {
    /// From the end of a frame's transmission to its arrival.
    pub one_way_delay: Duration,
    /// Bits per second; `None`: transmission takes no time.
    pub rate: Option<u64>,
    /// Frames that may wait for transmission where there is a rate; further ones are dropped.
    pub queue: usize,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame is held back, so that later ones overtake it.
    pub reorder: f64,
    /// The longest time that such a frame is held back.
    pub reorder_delay: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is damaged.
    pub corrupt: f64,
    /// Bits that are flipped in a damaged frame, all beyond its Ethernet header, which the Ethernet FCS protects alone.
    pub corrupt_bits: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            one_way_delay: Duration::ZERO,
            rate: None,
            queue: 1000,
            loss: 0.0,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(5),
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_bits: 1,
        }
    }
}

impl Conditions {
    /// How long a frame of `octets` occupies the link.
    pub(crate) fn transmission_time(&self, octets: usize) -> Duration {
        const NANOS: u64 = 1_000_000_000;
        let bits = octets as u64 * 8;
        match self.rate {
            Some(rate) => Duration::from_nanos((bits * NANOS).div_ceil(rate.max(1))),
            None => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bits_per_second() {
        let at = |rate| Conditions {
            rate,
            ..Conditions::default()
        };
        assert_eq!(
            at(Some(8_000)).transmission_time(1_000),
            Duration::from_secs(1)
        );
        assert_eq!(
            at(Some(10_000_000_000)).transmission_time(1_250),
            Duration::from_micros(1)
        );
        assert_eq!(at(None).transmission_time(1_000), Duration::ZERO);
    }
}

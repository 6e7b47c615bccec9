//! Conditions of one direction of a link: delay, rate, loss and more.

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
    /// Frames waiting for transmission from which on a further one is marked, if its IPv4 header
    /// says that it may be (RFC 3168 §5); `None`: none is.
    pub mark: Option<usize>,
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that a frame begins a burst of losses.
    pub burst: f64,
    /// How long a burst lasts: what is sent meanwhile is lost.
    pub burst_time: Duration,
    /// How often the link goes down, and for how long each time, at the end of the period: what is
    /// sent meanwhile is lost.
    pub flap: Option<(Duration, Duration)>,
    /// Probability that a frame is held back, so that later ones overtake it.
    pub reorder: f64,
    /// The longest time that such a frame is held back.
    pub reorder_delay: Duration,
    /// Probability that a frame arrives twice.
    pub duplicate: f64,
    /// Probability that a frame is damaged.
    pub corrupt: f64,
    /// Bits that are flipped in a damaged frame, all beyond its Ethernet header, which the Ethernet
    /// FCS protects alone.
    pub corrupt_bits: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            one_way_delay: Duration::ZERO,
            rate: None,
            queue: 1000,
            mark: None,
            loss: 0.0,
            burst: 0.0,
            burst_time: Duration::from_millis(1),
            flap: None,
            reorder: 0.0,
            reorder_delay: Duration::from_millis(5),
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_bits: 1,
        }
    }
}

impl Conditions {
    /// True if the link is down.
    pub(crate) fn is_down(&self, now: Duration) -> bool {
        self.flap.is_some_and(|(period, down)| {
            let into = now.as_nanos() % period.as_nanos().max(1);
            into + down.as_nanos() >= period.as_nanos()
        })
    }

    /// How long a frame of `bytes` occupies the link.
    pub(crate) fn transmission_time(&self, bytes: usize) -> Duration {
        const NANOS: u64 = 1_000_000_000;
        let bits = bytes as u64 * 8;
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
    fn link_goes_down_at_the_end_of_each_period() {
        let millis = Duration::from_millis;
        let conditions = Conditions {
            flap: Some((millis(100), millis(10))),
            ..Conditions::default()
        };
        let down = [0, 89, 90, 99, 100, 189, 190].map(|at| conditions.is_down(millis(at)));
        assert_eq!(down, [false, false, true, true, false, false, true]);
        assert!(!Conditions::default().is_down(millis(99)));
    }

    #[test]
    fn rate_is_bits_per_second() {
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

//! Conditions of the simulated link, and the drops that they lead to.

use std::time::Duration;

use xwarp_test_kit::netsim::{Link, Seed};

use super::Sim;

impl Sim {
    /// The same with this delay in either direction.
    #[must_use]
    pub fn one_way_delay(mut self, delay: Duration) -> Self {
        self.link
            .change(|conditions| conditions.one_way_delay = delay);
        self
    }

    /// The same with this rate in either direction, in bits per second.
    #[must_use]
    pub fn rate(mut self, bits_per_second: u64) -> Self {
        self.link
            .change(|conditions| conditions.rate = Some(bits_per_second));
        self
    }

    /// Two RNICs half a millisecond apart, where 5 % of the frames are lost, 10 % come late and
    /// 10 % twice.
    pub fn on_a_bad_link(seed: Seed) -> Self {
        Self::new(seed)
            .one_way_delay(Duration::from_micros(500))
            .loss(0.05)
            .reorder(0.1)
            .duplicate(0.1)
    }

    /// The same with this probability of loss.
    #[must_use]
    pub fn loss(mut self, probability: f64) -> Self {
        self.link.change(|conditions| conditions.loss = probability);
        self
    }

    /// The same with this probability that a frame is held back. One that comes after the
    /// repetition of one in front of it looks old by its timestamp (RFC 7323 §5.3).
    #[must_use]
    pub fn reorder(mut self, probability: f64) -> Self {
        self.link
            .change(|conditions| conditions.reorder = probability);
        self.expecting(&["drop_old_timestamp"])
    }

    /// The same with this probability that a frame arrives twice.
    #[must_use]
    pub fn duplicate(mut self, probability: f64) -> Self {
        self.link
            .change(|conditions| conditions.duplicate = probability);
        self
    }

    /// The same with this probability that `bits` bits of a frame are flipped. Drops for broken
    /// headers are expected then.
    #[must_use]
    pub fn corrupt(mut self, probability: f64, bits: u32) -> Self {
        self.link.change(|conditions| {
            conditions.corrupt = probability;
            conditions.corrupt_bits = bits;
        });
        self.expecting(&[
            "drop_bad_checksum",
            "drop_bad_ip",
            "drop_bad_tcp",
            "drop_partial_checksum",
            "drop_fragment",
            "drop_not_ip",
            "drop_not_tcp",
        ])
    }

    /// The same, with drops of these names expected.
    #[must_use]
    pub fn expecting(mut self, drops: &[&'static str]) -> Self {
        self.expected_drops.extend(drops);
        self
    }

    /// The link.
    pub fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    /// Loses every frame from now on.
    pub fn cut_link(&mut self) {
        self.link.change(|conditions| conditions.loss = 1.0);
    }
}

//! Pace of messages: how fast they follow each other.

use std::time::Duration;

/// The time that one message takes on average.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct Pace {
    seconds: f64,
}

impl Pace {
    /// That of `messages` in `time`.
    pub(crate) fn of(messages: u32, time: Duration) -> Self {
        Self {
            seconds: time.as_secs_f64() / f64::from(messages),
        }
    }

    /// The one in the middle.
    pub(crate) fn median(mut paces: Vec<Self>) -> Self {
        paces.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
        paces[paces.len() / 2]
    }

    pub(crate) fn gigabits_per_second(self, bytes: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most some megabytes")]
        let bits = (bytes * 8) as f64;
        bits / self.seconds / 1e9
    }

    pub(crate) fn microseconds(self) -> f64 {
        self.seconds * 1e6
    }
}

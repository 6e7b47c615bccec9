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

    pub(crate) fn gigabits_per_second(self, bytes: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "at most some megabytes")]
        let bits = (bytes * 8) as f64;
        bits / self.seconds / 1e9
    }

    pub(crate) fn microseconds(self) -> f64 {
        self.seconds * 1e6
    }
}

/// Those of several runs.
#[derive(Default)]
pub(crate) struct Paces(Vec<Pace>);

impl Paces {
    pub(crate) fn push(&mut self, pace: Pace) {
        self.0.push(pace);
        self.0
            .sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    }

    /// The one in the middle.
    pub(crate) fn median(&self) -> Pace {
        self.0[self.0.len() / 2]
    }

    /// From the fastest to the slowest, in percent of the median.
    pub(crate) fn range(&self) -> f64 {
        let [fastest, slowest] = [self.0.first(), self.0.last()].map(|it| it.expect("a run"));
        (slowest.seconds - fastest.seconds) / self.median().seconds * 100.0
    }
}

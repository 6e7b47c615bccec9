//! State publisher: writes the engine's state to the interface's board periodically, for other
//! processes to read.

use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::StateBoard;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::ShownState;
use xwarp_tcp::Instant;

/// Shortest interval between two updates. An update takes a few thousand instructions.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval of updates without changes, by an engine that runs or has a thread: the kernel's
/// counters advance even while the engine rests.
const IDLE: Duration = Duration::from_secs(1);

/// Publishes an engine's state on the board of its interface until the engine ends.
pub(crate) struct StatePublisher {
    board: Arc<StateBoard>,
    engine: usize,
    pace: Pace,
}

impl StatePublisher {
    /// Publishes the state of a new engine, if its host has a board.
    pub(crate) fn begin(engine: &Engine) -> Option<Self> {
        let board = engine.host()?.board()?;
        show(&board, engine);
        Some(Self {
            board,
            engine: engine.index(),
            pace: Pace::default(),
        })
    }

    /// Called after a step that did the work `done`.
    #[inline]
    pub(crate) fn note_turn(&mut self, now: Instant, done: usize, engine: &Engine) {
        if self.pace.is_due(now, done) {
            show(&self.board, engine);
        }
    }

    /// The longest sleep that leaves no change unpublished; `None` without a limit.
    pub(crate) fn sleep_timeout(&self, now: Instant) -> Option<Duration> {
        self.pace.news.then(|| self.pace.due - now)
    }

    /// The longest sleep of the engine's own thread until the next update.
    pub(crate) fn idle_timeout(&self, now: Instant) -> Duration {
        self.pace.due - now
    }
}

/// Time of the next update: soon after a change, but neither too often nor too rarely.
#[derive(Default)]
struct Pace {
    /// The state is published at this time or later.
    due: Instant,
    /// Whether there are unpublished changes.
    news: bool,
    /// The earliest time to publish a change.
    next: Instant,
}

impl Pace {
    /// Whether an update is due after a step that did the work `done`.
    #[inline]
    fn is_due(&mut self, now: Instant, done: usize) -> bool {
        if done > 0 && !self.news {
            self.news = true;
            self.due = self.due.min(self.next);
        }
        let is_due = now >= self.due;
        if is_due {
            self.news = false;
            self.due = now + IDLE;
            self.next = now + INTERVAL;
        }
        is_due
    }
}

impl Drop for StatePublisher {
    /// Removes the state when the engine ends, as the process may continue.
    fn drop(&mut self) {
        if let Err(error) = self.board.wipe(self.engine) {
            log::debug!("the engine's state stays on the board: {error}");
        }
    }
}

#[cold]
fn show(board: &StateBoard, engine: &Engine) {
    if let Err(error) = board.show(engine.index(), ShownState::KEY, engine.shown_state()) {
        log::debug!("the engine's state is not shown: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ORIGIN + Duration::from_millis(millis)
    }

    #[test]
    fn news_are_shown_at_once_and_then_ten_times_a_second() {
        let mut pace = Pace::default();
        let shown = (1000..2000).filter(|&now| pace.is_due(at(now), 1)).count();
        assert_eq!(shown, 10);
    }

    #[test]
    fn last_news_before_a_sleep_are_shown_in_the_middle_of_it() {
        let mut pace = Pace::default();
        assert!(pace.is_due(at(1000), 1));
        assert!(!pace.news, "all is shown: nothing ends the sleep");
        assert!(!pace.is_due(at(1001), 1));
        assert!(!pace.is_due(at(1002), 0));
        assert!(pace.news && pace.due == at(1100));
        assert!(pace.is_due(at(1100), 0));
        assert!(!pace.news);
    }

    #[test]
    fn state_is_shown_once_a_second_without_news() {
        let mut pace = Pace::default();
        let shown = (1000..5000).filter(|&now| pace.is_due(at(now), 0)).count();
        assert_eq!(shown, 4);
        assert!(pace.is_due(at(5000), 1));
        assert!(!pace.is_due(at(5999), 0));
        assert!(pace.is_due(at(6000), 0));
    }
}

//! State publisher: puts the engine's state on the interface's board from time to time, where other
//! processes read it.

use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::StateBoard;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::ShownState;
use xwarp_tcp::Instant;

/// The state is shown at most this often. It takes a few thousand instructions.
const INTERVAL: Duration = Duration::from_millis(100);
/// It is shown as often without news, by an engine that turns or has a thread: the kernel counts on
/// while the engine rests.
const IDLE: Duration = Duration::from_secs(1);

/// An engine's state on the board of its interface, until the engine ends.
pub(crate) struct StatePublisher {
    board: Arc<StateBoard>,
    engine: usize,
    pace: Pace,
}

impl StatePublisher {
    /// Shows the state of an engine that begins now, if its host has a board.
    pub(crate) fn begin(engine: &Engine) -> Option<Self> {
        let board = engine.host()?.board()?;
        show(&board, engine);
        Some(Self {
            board,
            engine: engine.index(),
            pace: Pace::default(),
        })
    }

    /// After a turn that has done so much.
    #[inline]
    pub(crate) fn note_turn(&mut self, now: Instant, done: usize, engine: &Engine) {
        if self.pace.is_due(now, done) {
            show(&self.board, engine);
        }
    }

    /// How long a sleep may last without leaving news unshown; `None`: as long as it likes.
    pub(crate) fn sleep_timeout(&self, now: Instant) -> Option<Duration> {
        self.pace.news.then(|| self.pace.due - now)
    }

    /// How long a sleep of the engine's own thread may last without leaving the state unshown.
    pub(crate) fn idle_timeout(&self, now: Instant) -> Duration {
        self.pace.due - now
    }
}

/// When the state is shown: soon after it has changed, not too often, and not too seldom.
#[derive(Default)]
struct Pace {
    /// It is shown at this time or later.
    due: Instant,
    /// There is something that was not shown yet.
    news: bool,
    /// The earliest time for news to come.
    next: Instant,
}

impl Pace {
    /// Whether it is to be shown after a turn that has done so much.
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
    /// The engine ends, though the program may stay.
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

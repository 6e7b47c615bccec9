//! The stack's turn, and its halves.

use xwarp_driver::IoError;

use crate::conn::Conn;
use crate::stack::Stack;
use crate::time::Instant;

/// Turns in a row that may find as many frames as they ask for before timers run all the same.
const PATIENCE: u32 = 64;

impl Stack {
    /// One turn: receives up to `budget` frames, runs the timers that are due, transmits what can be sent, and flushes. Returns
    /// how much there was to do; 0 means idle. Everything received is acknowledged once per turn and connection.
    pub fn step(&mut self, now: Instant, budget: usize) -> Result<usize, IoError> {
        Ok(self.poll(now, budget) + self.transmit(now)?)
    }

    /// The first half of a turn: receives up to `budget` frames and runs the timers that are due; how much there was to do. What that
    /// gives cause to send waits for [`answer`](Self::answer) and [`transmit`](Self::transmit).
    ///
    /// While there may be more frames than were received, no timer runs: what a timer would give up waiting for may be among them,
    /// as after a pause of the whole process. A flood cannot hold the timers up for more than 63 turns.
    pub fn poll(&mut self, now: Instant, budget: usize) -> usize {
        self.advance(now);
        let received = self.receive(budget);
        self.behind = if received < budget {
            0
        } else {
            self.behind % PATIENCE + 1
        };
        let mut done = received;
        if self.behind.is_multiple_of(PATIENCE) {
            done += self.run_timers();
        }
        done
    }

    /// Transmits what the peers are to have in this turn: what was committed in it, and all else but acknowledgments that may wait for
    /// an answer, which the next [`transmit`](Self::transmit) sees to. How many segments were sent but those committed.
    pub fn answer(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let sent = self.send_dirty(Conn::is_pressed);
        self.lower.set_off()?;
        Ok(sent)
    }

    /// Transmits what has come up since the last turn, and flushes. How many segments were sent but those committed.
    pub fn transmit(&mut self, now: Instant) -> Result<usize, IoError> {
        self.advance(now);
        let mut sent = self.send_dirty(|_| true);
        if self.hear_of_paths() > 0 {
            sent += self.send_dirty(|_| true);
        }
        self.trim_timers();
        self.lower.flush()?;
        self.feed_starved();
        Ok(sent)
    }

    /// Sets off what was committed, before anything else is seen to.
    pub fn flush(&mut self) -> Result<(), IoError> {
        self.lower.set_off()
    }
}

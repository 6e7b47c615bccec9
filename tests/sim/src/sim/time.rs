//! Virtual time, and what happens in it.

use std::time::Duration;

use xwarp_tcp::Instant;

use super::{Machine, Sim};

/// Virtual time that a condition may take to come true.
const LIMIT: Duration = Duration::from_mins(10);
/// Turns within one instant after which the simulation is taken for a livelock.
const LIVELOCK: usize = 5_000_000;
/// Deadlines in a row that had passed before and led to nothing.
const STALE_DEADLINES: usize = 10_000;

impl Sim {
    /// Lets time pass until `condition` gives something.
    ///
    /// # Panics
    /// If that takes more virtual time than any test should need.
    pub fn wait_for<T>(&mut self, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
        let limit = self.now + LIMIT;
        loop {
            self.settle();
            if let Some(value) = condition() {
                return value;
            }
            if !self.advance(limit) {
                self.fail(&format!("waited in vain for {what}"));
            }
        }
    }

    /// Lets time pass until `condition` holds.
    pub fn run_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        self.wait_for(what, || condition().then_some(()));
    }

    /// Lets time pass until nothing is on its way and no timer runs.
    pub fn run_until_idle(&mut self) {
        let limit = self.now + LIMIT;
        self.settle();
        while self.advance(limit) {
            self.settle();
        }
        if self.next_event().is_some() {
            self.fail("the machines do not come to rest");
        }
    }

    /// Lets this much time pass.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while self.advance(until) {
            self.settle();
        }
        self.now = until;
        self.settle();
    }

    /// Does all that can be done at this instant.
    fn settle(&mut self) {
        for _ in 0..LIVELOCK {
            if self.carry() + self.step_machines() == 0 {
                return;
            }
        }
        self.fail("the machines are busy for ever within one instant");
    }

    /// Carries frames by the switch, if there is one, and by the link; how many.
    fn carry(&mut self) -> usize {
        let switched = self.switch.as_ref().map_or(0, |it| it.turn(self.now));
        switched + self.link.carry(self.now)
    }

    fn step_machines(&self) -> usize {
        let now = Instant::ORIGIN + self.now;
        let step = |machine: &Machine| match machine {
            Machine::Rnic(host) => host.step(now),
            Machine::Plain(peer) => peer.step(now),
            Machine::Nobody => 0,
        };
        self.machines.iter().map(step).sum()
    }

    /// Moves time to the next event; false when there is none up to `limit`.
    fn advance(&mut self, limit: Duration) -> bool {
        let Some(next) = self.next_event().filter(|next| *next <= limit) else {
            return false;
        };
        if next > self.now {
            self.stale = 0;
            self.now = next;
            return true;
        }
        // A deadline that has passed, with nothing left to do: timers count whole microseconds.
        self.stale += 1;
        if self.stale > STALE_DEADLINES {
            self.fail("a deadline has passed, but nothing is done about it");
        }
        self.now += Duration::from_micros(1);
        self.now <= limit
    }

    fn next_event(&self) -> Option<Duration> {
        let deadline = |machine: &Machine| match machine {
            Machine::Rnic(host) => host.rnic().next_deadline().unwrap(),
            Machine::Plain(peer) => peer.next_deadline(),
            Machine::Nobody => None,
        };
        let deadlines = self.machines.iter().filter_map(deadline);
        deadlines
            .map(Instant::since_origin)
            .chain(self.link.next_arrival())
            .min()
    }
}

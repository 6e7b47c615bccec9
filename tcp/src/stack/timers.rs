//! Connection timers: one deadline for each connection, exact to the microsecond.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::wheel::Wheel;
use crate::handle_map::Handle;
use crate::time::Instant;

/// Deadlines nearer than this are kept by their exact time: two of the wheel's ticks and a little
/// more, in nanoseconds.
const NEAR: u64 = 64_000;
/// Maximum lateness of the wheel for any deadline: its tick, and the one by which its clock may
/// lag, in nanoseconds.
const TICKS: u64 = 32_000;

/// A connection's view of its timer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    /// When the connection wants to run.
    deadline: Option<Instant>,
    /// Time of its entry: no later than the deadline.
    armed: Option<Instant>,
}

/// An entry that may be due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    handle: Handle,
    /// The exact time, unless the entry comes from the wheel.
    at: Option<Instant>,
}

impl Due {
    pub(super) fn handle(self) -> Handle {
        self.handle
    }
}

/// Exact deadlines on a coarse wheel (decision record tcp/0007). Far deadlines wait in a [`Wheel`],
/// which is set to fire early by its possible lateness. The last microseconds they spend in a heap
/// of exact times. So a connection runs exactly at its deadline, at a cost that does not depend on
/// the number of connections. The deadline that was entered last is kept beside the wheel until
/// another one is entered. So a timer that is set for a message and cancelled by its ACK seldom
/// enters the wheel.
///
/// An alarm that is postponed, as every ACK does to the retransmission timer, keeps its entry,
/// which finds at its time that it is early. So a wake-up may be spurious and is never late. A
/// cancelled timer is removed: if it stayed in the wheel, an idle stack would have a deadline.
#[derive(Debug)]
pub(super) struct Timers {
    wheel: Wheel,
    /// Nothing in the wheel is due before this time, so a turn without work need not look.
    idle_until: Instant,
    near: BinaryHeap<Reverse<(Instant, Handle)>>,
    /// The far deadline that was entered last, unless it was cancelled. Its connection has no other
    /// entry in the wheel.
    last: Option<(Instant, Handle)>,
}

impl Timers {
    pub(super) fn new() -> Self {
        Self {
            wheel: Wheel::new(Instant::ORIGIN),
            idle_until: Instant::ORIGIN,
            near: BinaryHeap::new(),
            last: None,
        }
    }

    /// Sets when `handle` wants to run.
    pub(super) fn set(
        &mut self,
        handle: Handle,
        alarm: &mut Alarm,
        deadline: Option<Instant>,
        now: Instant,
    ) {
        alarm.deadline = deadline;
        let Some(deadline) = deadline else {
            if alarm.armed.take().is_some() {
                self.cancel(handle);
            }
            return;
        };
        if alarm.armed.is_none_or(|armed| deadline < armed) {
            if alarm.armed.replace(deadline).is_some() {
                self.cancel(handle);
            }
            if let Some((at, other)) = self.last.replace((deadline, handle)) {
                self.enter(other, at, now);
            }
        }
    }

    fn enter(&mut self, handle: Handle, deadline: Instant, now: Instant) {
        let nanos = deadline.nanos_since_origin();
        let ahead = nanos.saturating_sub(now.nanos_since_origin());
        if ahead <= NEAR {
            self.near.push(Reverse((deadline, handle)));
        } else {
            let at = Instant::from_nanos(nanos - TICKS - (ahead - TICKS) / 32);
            self.wheel.advance(now);
            self.wheel.set(handle.key(), at);
            self.idle_until = self.idle_until.min(at); // the wheel fires nothing early
        }
    }

    /// Removes the timer of a connection that is gone.
    pub(super) fn remove(&mut self, handle: Handle) {
        self.cancel(handle);
    }

    fn cancel(&mut self, handle: Handle) {
        if self.last.is_some_and(|(_, last)| last == handle) {
            self.last = None;
            return;
        }
        self.wheel.cancel(handle.key());
        if self.wheel.is_empty() {
            self.idle_until = Instant::FAR;
        }
    }

    /// True if no entry is due.
    #[inline]
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        let near = self.near.peek();
        now < self.idle_until
            && self.last.is_none_or(|(at, _)| now < at)
            && near.is_none_or(|Reverse((at, _))| now < *at)
    }

    /// Removes an entry that is due, to be judged by [`fired`](Self::fired). `handle` finds a
    /// connection by its key.
    pub(super) fn pop(
        &mut self,
        handle: impl Fn(u32) -> Option<Handle>,
        now: Instant,
    ) -> Option<Due> {
        if let Some(Reverse((at, _))) = self.near.peek()
            && *at <= now
        {
            let Reverse((at, handle)) = self.near.pop()?;
            return Some(Due {
                handle,
                at: Some(at),
            });
        }
        if let Some((at, handle)) = self.last.take_if(|(at, _)| *at <= now) {
            return Some(Due {
                handle,
                at: Some(at),
            });
        }
        if now < self.idle_until {
            return None;
        }
        while let Some(key) = self.wheel.pop(now) {
            if let Some(handle) = handle(key) {
                return Some(Due { handle, at: None });
            }
        }
        self.idle_until = self.wheel.next().unwrap_or(Instant::FAR);
        None
    }

    /// Judges an entry that was popped. Returns true if its connection must run now.
    pub(super) fn fired(&mut self, due: Due, alarm: &mut Alarm, now: Instant) -> bool {
        if due.at.is_some() && alarm.armed != due.at {
            return false; // superseded by an earlier entry, which was judged already
        }
        alarm.armed = None;
        let fires = alarm.deadline.is_some_and(|deadline| deadline <= now);
        if !fires {
            self.set(due.handle, alarm, alarm.deadline, now);
        }
        fires
    }

    /// Removes superseded near entries, so that an idle stack has no deadline. `alarm` returns the
    /// alarm of a connection, if it still exists.
    #[inline]
    pub(super) fn trim(&mut self, alarm: impl FnMut(Handle) -> Option<Alarm>) {
        if !self.near.is_empty() {
            self.trim_near(alarm);
        }
    }

    #[inline(never)]
    fn trim_near(&mut self, mut alarm: impl FnMut(Handle) -> Option<Alarm>) {
        while let Some(Reverse((at, handle))) = self.near.peek() {
            if alarm(*handle).is_some_and(|alarm| alarm.armed == Some(*at)) {
                return;
            }
            self.near.pop();
        }
    }

    /// Time of the earliest entry: no connection wants to run before it.
    pub(super) fn next(&self) -> Option<Instant> {
        let near = self.near.peek().map(|Reverse((at, _))| *at);
        let last = self.last.map(|(at, _)| at);
        Instant::earliest([near, last, self.wheel.next()])
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::handle_map::HandleMap;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    /// Connections that consist of alarms, and a record of what fired when.
    struct Model {
        timers: Timers,
        alarms: HandleMap<Alarm>,
        now: Instant,
        fired: Vec<(Handle, Instant)>,
    }

    impl Model {
        fn new() -> Self {
            Self {
                timers: Timers::new(),
                alarms: HandleMap::new(),
                now: at(0),
                fired: Vec::new(),
            }
        }

        fn set(&mut self, handle: Handle, deadline: Option<Instant>) {
            let alarm = self.alarms.get_mut(handle).unwrap();
            self.timers.set(handle, alarm, deadline, self.now);
        }

        /// Runs one turn, and returns the number of entries examined.
        fn turn(&mut self, now: Instant) -> usize {
            self.now = now;
            let mut looked = 0;
            while let Some(due) = self.timers.pop(|key| self.alarms.handle(key), now) {
                looked += 1;
                let alarm = self.alarms.get_mut(due.handle).unwrap();
                if self.timers.fired(due, alarm, now) {
                    self.fired.push((due.handle, now));
                    self.timers.set(due.handle, alarm, None, now);
                }
            }
            let alarms = &self.alarms;
            self.timers.trim(|handle| alarms.get(handle).copied());
            looked
        }

        /// Sleeps from deadline to deadline until `end`, and returns the number of wake-ups.
        fn run(&mut self, end: Instant) -> usize {
            let mut turns = 0;
            while let Some(next) = self.timers.next().filter(|next| *next <= end) {
                self.turn(self.now.max(next));
                turns += 1;
            }
            self.now = end;
            turns
        }
    }

    #[test]
    fn deadline_moved_back_fires_once_at_its_new_time() {
        let mut model = Model::new();
        let handle = model.alarms.insert(Alarm::default());
        for micros in [1000, 3000, 5000] {
            model.set(handle, Some(at(micros)));
        }
        model.run(at(9999));
        assert_eq!(model.fired, [(handle, at(5000))]);
    }

    #[test]
    fn deadline_moved_forward_fires_at_its_new_time_only() {
        for (far, near) in [(30, 10), (5000, 10), (5000, 3000)] {
            let mut model = Model::new();
            let handle = model.alarms.insert(Alarm::default());
            model.set(handle, Some(at(far)));
            model.set(handle, Some(at(near)));
            model.run(at(9999));
            assert_eq!(model.fired, [(handle, at(near))]);
        }
    }

    #[test]
    fn hour_ahead_it_wakes_a_few_times_and_fires_exactly() {
        let mut model = Model::new();
        let handle = model.alarms.insert(Alarm::default());
        let hour = at(3_600_000_001);
        model.set(handle, Some(hour));
        let turns = model.run(hour);
        assert_eq!(model.fired, [(handle, hour)]);
        assert!(turns <= 8, "{turns} turns");
    }

    #[test]
    fn last_deadline_comes_into_the_wheel_when_another_connection_has_one() {
        let mut model = Model::new();
        let [one, other] = [0, 1].map(|_| model.alarms.insert(Alarm::default()));
        for _ in 0..3 {
            model.set(one, Some(at(5000)));
            assert_eq!(model.timers.next(), Some(at(5000)), "by its exact time");
            model.set(one, None);
            assert_eq!(model.timers.next(), None);
        }
        model.set(one, Some(at(5000)));
        assert!(model.timers.wheel.is_empty());
        model.set(other, Some(at(3000)));
        assert!(!model.timers.wheel.is_empty());
        model.run(at(9999));
        assert_eq!(model.fired, [(other, at(3000)), (one, at(5000))]);
    }

    #[test]
    fn nothing_is_left_of_what_was_called_off_or_is_gone() {
        let mut model = Model::new();
        for micros in [40, 4000] {
            let [off, gone] = [0, 1].map(|_| model.alarms.insert(Alarm::default()));
            model.set(off, Some(at(micros)));
            model.set(gone, Some(at(micros)));
            model.set(off, None);
            model.timers.remove(gone);
            model.alarms.remove(gone);
        }
        model.turn(at(0));
        assert_eq!(model.timers.next(), None);
    }

    #[test]
    fn ten_thousand_idle_connections_are_not_looked_at() {
        const IDLE: u64 = if cfg!(miri) { 100 } else { 10_000 };
        let mut model = Model::new();
        for n in 0..IDLE {
            let handle = model.alarms.insert(Alarm::default());
            model.set(handle, Some(at(7_200_000_000 + n)));
        }
        let busy = model.alarms.insert(Alarm::default());
        let mut looked = 0;
        for round in 1..=1000 {
            model.set(busy, Some(at(round * 50 + 5000)));
            looked += model.turn(at(round * 50));
        }
        // The busy connection's own entry is met every 5 ms or so.
        assert!(looked <= 20, "{looked} entries");
    }

    proptest! {
        #[test]
        fn each_fires_exactly_at_its_deadline(
            steps in prop::collection::vec((0_usize..5, prop::option::of(0_u32..34), 0_u32..24), 1..60),
        ) {
            let mut model = Model::new();
            let handles: Vec<_> = (0..5).map(|_| model.alarms.insert(Alarm::default())).collect();
            let mut wanted = vec![None; 5];
            for (which, ahead, pass) in steps {
                let deadline = ahead.map(|bits| model.now + Duration::from_micros((1 << bits) - 1));
                model.set(handles[which], deadline);
                wanted[which] = deadline;
                let end = model.now + Duration::from_micros(1 << pass);
                model.run(end);
                for (handle, wanted) in handles.iter().zip(&mut wanted) {
                    let fired: Vec<_> = model.fired.iter().filter(|it| it.0 == *handle).collect();
                    let due = wanted.take_if(|deadline| *deadline <= end);
                    prop_assert_eq!(fired.len(), usize::from(due.is_some()));
                    prop_assert!(fired.iter().all(|it| Some(it.1) == due), "{:?} for {:?}", fired, due);
                }
                model.fired.clear();
            }
        }
    }
}

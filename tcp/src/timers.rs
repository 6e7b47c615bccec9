//! When which connection wants to run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::slots::Handle;
use crate::time::Instant;

/// A connection's own view of its timer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alarm {
    /// When it wants to run.
    deadline: Option<Instant>,
    /// Its earliest entry in the heap.
    armed: Option<Instant>,
}

impl Alarm {
    /// True if the entry for `at` is needed. If not, it must be removed.
    pub(crate) fn needs(&mut self, at: Instant) -> bool {
        if self.armed != Some(at) {
            return false;
        }
        self.armed = self.armed.filter(|_| self.deadline.is_some());
        self.armed.is_some()
    }
}

/// A heap of timers with lazy deletion: an alarm that is moved back, as every ACK does to the retransmission timer, keeps its
/// entry, which finds at its time that it came too early. So a wake-up may be spurious and is never late.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, Handle)>>,
}

impl Timers {
    /// Sets when `handle` wants to run.
    pub(crate) fn set(&mut self, handle: Handle, alarm: &mut Alarm, deadline: Option<Instant>) {
        alarm.deadline = deadline;
        let Some(deadline) = deadline else { return };
        if alarm.armed.is_none_or(|armed| deadline < armed) {
            alarm.armed = Some(deadline);
            self.heap.push(Reverse((deadline, handle)));
        }
    }

    /// Takes the oldest entry that is due at `now`.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<(Instant, Handle)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Judges an entry that was popped: true if its connection is to run now.
    pub(crate) fn fired(
        &mut self,
        (at, handle): (Instant, Handle),
        alarm: &mut Alarm,
        now: Instant,
    ) -> bool {
        if alarm.armed != Some(at) {
            return false; // superseded by an earlier entry, which has been judged already
        }
        alarm.armed = None;
        let due = alarm.deadline.is_some_and(|deadline| deadline <= now);
        if !due {
            self.set(handle, alarm, alarm.deadline);
        }
        due
    }

    /// Removes the oldest entries for as long as `keep` finds that they mean nothing.
    pub(crate) fn trim(&mut self, mut keep: impl FnMut(Handle, Instant) -> bool) {
        while let Some(Reverse((at, handle))) = self.heap.peek() {
            if keep(*handle, *at) {
                return;
            }
            self.heap.pop();
        }
    }

    /// The earliest entry's time: no connection wants to run before it.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slots;

    fn at(micros: u64) -> Instant {
        Instant::from_micros(micros)
    }

    #[test]
    fn a_deadline_moved_back_fires_once_at_its_new_time() {
        let handle = Slots::new().insert(());
        let (mut timers, mut alarm) = (Timers::default(), Alarm::default());
        timers.set(handle, &mut alarm, Some(at(10)));
        timers.set(handle, &mut alarm, Some(at(30)));
        let early = timers.pop(at(10)).unwrap();
        assert!(!timers.fired(early, &mut alarm, at(10)));
        assert_eq!(timers.next(), Some(at(30)));
        let due = timers.pop(at(30)).unwrap();
        assert!(timers.fired(due, &mut alarm, at(30)));
        assert_eq!(timers.pop(at(99)), None);
    }

    #[test]
    fn a_deadline_moved_forward_fires_at_its_new_time_only() {
        let handle = Slots::new().insert(());
        let (mut timers, mut alarm) = (Timers::default(), Alarm::default());
        timers.set(handle, &mut alarm, Some(at(30)));
        timers.set(handle, &mut alarm, Some(at(10)));
        let due = timers.pop(at(10)).unwrap();
        assert!(timers.fired(due, &mut alarm, at(10)));
        timers.set(handle, &mut alarm, None);
        let stale = timers.pop(at(30)).unwrap();
        assert!(!timers.fired(stale, &mut alarm, at(30)));
    }

    #[test]
    fn entries_without_a_meaning_are_trimmed() {
        let mut slots = Slots::new();
        let (gone, idle, busy) = (slots.insert(()), slots.insert(()), slots.insert(()));
        let mut timers = Timers::default();
        let mut alarms = [Alarm::default(); 3];
        for (alarm, (handle, micros)) in alarms.iter_mut().zip([(gone, 1), (idle, 2), (busy, 3)]) {
            timers.set(handle, alarm, Some(at(micros)));
        }
        timers.set(idle, &mut alarms[1], None);
        timers.trim(|handle, at| match handle {
            handle if handle == idle => alarms[1].needs(at),
            handle if handle == busy => alarms[2].needs(at),
            _ => false,
        });
        assert_eq!(timers.next(), Some(at(3)));
        timers.set(idle, &mut alarms[1], Some(at(2)));
        assert_eq!(timers.next(), Some(at(2)), "it can be set again");
    }
}

//! From connections to frames: timers, transmission, and how connections end.

use std::time::Duration;

use crate::conn::{Conn, State};
use crate::event::{CloseReason, ConnId, Event};
use crate::life::Marks;
use crate::slots::Handle;
use crate::stack::Stack;

/// How often frames are taken from silent peers while somebody waits for one, and how many at once at least: copying a thousand
/// takes some 0.2 ms.
const PARKING_PAUSE: Duration = Duration::from_millis(1);
const PARKED_AT_ONCE: usize = 1024;

impl Stack {
    /// Notes that a connection may have something to send.
    pub(crate) fn touch(&mut self, handle: Handle) {
        if let Some(conn) = self.conns.get_mut(handle)
            && conn.life.mark(Marks::DIRTY)
        {
            self.dirty.push(handle);
        }
    }

    /// Lets those connections that were touched send that are `chosen`; how many segments that were.
    pub(crate) fn send_dirty(&mut self, chosen: impl Fn(&Conn) -> bool) -> usize {
        if self.dirty.is_empty() {
            return 0;
        }
        let mut sent = 0;
        let mut running = std::mem::take(&mut self.running);
        std::mem::swap(&mut running, &mut self.dirty);
        for handle in running.drain(..) {
            let Some(conn) = self.conns.get_mut(handle) else {
                continue;
            };
            if chosen(conn) {
                conn.life.marks.remove(Marks::DIRTY);
                sent += self.run(handle);
            } else {
                self.dirty.push(handle);
            }
        }
        self.running = running;
        sent
    }

    /// Lets one connection send, and sets its timer.
    pub(crate) fn run(&mut self, handle: Handle) -> usize {
        let Some(conn) = self.conns.get_mut(handle) else {
            return 0;
        };
        if conn.life.is(Marks::ENDED) && conn.state() != State::TimeWait {
            return 0; // all that there was to say has been said
        }
        self.lower.counters.looks += 1;
        let sent = conn.egress(&mut self.lower, self.now);
        let drained = conn.is_drained();
        if !drained {
            self.touch(handle);
        }
        self.settle(handle, false, false);
        if let Some(conn) = self.conns.get_mut(handle) {
            let deadline = conn.deadline(self.now).filter(|_| drained);
            self.timers
                .set(handle, &mut conn.life.alarm, deadline, self.now);
        }
        sent
    }

    /// Runs the connections whose timers are due; how many there were.
    pub(crate) fn run_timers(&mut self) -> usize {
        let mut ran = 0;
        while let Some(due) = self.timers.pop(&self.conns, self.now) {
            let handle = due.handle;
            self.lower.counters.looks += 1;
            let Some(conn) = self.conns.get_mut(handle) else {
                continue;
            };
            if !self.timers.fired(due, &mut conn.life.alarm, self.now) {
                continue;
            }
            ran += 1;
            conn.catch_up(&mut self.lower);
            if conn.has_expired(self.now) {
                self.reset(handle, CloseReason::TimedOut);
            } else {
                conn.on_timer(&mut self.lower, self.now);
                self.settle(handle, false, false);
                self.touch(handle);
            }
        }
        ran
    }

    /// Forgets timers that were called off, so that an idle stack has no deadline.
    pub(crate) fn trim_timers(&mut self) {
        let conns = &self.conns;
        self.timers
            .trim(|handle| conns.get(handle).map(|conn| conn.life.alarm));
    }

    /// Tells those who waited for a TX frame that there is one. While there is none, silent peers lose theirs.
    pub(crate) fn feed_starved(&mut self) {
        if self.starved.is_empty() {
            return;
        }
        self.park_silent();
        let Some(frame) = self.lower.data_frame(0) else {
            return;
        };
        self.lower.io.discard(frame);
        let spare = self.lower.spare();
        for handle in std::mem::take(&mut self.starved) {
            if let Some(conn) = self.conns.get_mut(handle) {
                if spare <= conn.frames_taken() {
                    self.starved.push(handle);
                    continue;
                }
                conn.life.marks.remove(Marks::STARVED);
                if conn.relent(self.now) {
                    self.events.push_back(Event::Writable(ConnId(handle)));
                }
            }
        }
    }

    /// Takes frames from connections whose peers are silent; what they hold is kept elsewhere. That costs copies, so it is done
    /// only for somebody who waits, a part at a time.
    fn park_silent(&mut self) {
        if self.now < self.scarce_until || self.knows_of_no_frame() {
            return;
        }
        self.scarce_until = self.now + PARKING_PAUSE;
        let mut parked = 0;
        let mut left = false;
        for conn in self.conns.values_mut() {
            parked += conn.park_if_silent(&mut self.lower, self.now);
            if parked >= PARKED_AT_ONCE {
                return;
            }
            left |= conn.has_frames();
        }
        self.none_held_at = (!left).then_some(self.lower.counters.segments_out);
    }

    /// True if no connection had a frame that could be taken, and nothing was sent since.
    pub(crate) fn knows_of_no_frame(&self) -> bool {
        self.none_held_at == Some(self.lower.counters.segments_out)
    }

    /// Ends a connection from this side. The peer is told by a RST, except in SYN-SENT, where it knows of nothing (RFC 9293
    /// §3.10.5).
    pub(crate) fn reset(&mut self, handle: Handle, reason: CloseReason) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        if conn.life.is(Marks::ENDED) {
            return;
        }
        let silent = conn.state() == State::SynSent
            || (reason == CloseReason::TimedOut && conn.state() == State::SynReceived);
        conn.abort(silent, &mut self.lower);
        conn.egress(&mut self.lower, self.now);
        self.end(handle, reason);
    }

    /// Notes that a connection has ended, and tells so whoever knows it. Its flow is free again, unless it rests in TIME-WAIT.
    pub(crate) fn end(&mut self, handle: Handle, reason: CloseReason) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        let rests = conn.state() == State::TimeWait;
        let known = conn.life.waiting.is_none() || conn.life.is(Marks::ANNOUNCED);
        let detached = conn.life.is(Marks::DETACHED);
        let news = conn.life.mark(Marks::ENDED);
        if news && known {
            let conn = ConnId(handle);
            self.events.push_back(Event::Closed { conn, reason });
        }
        if rests {
            if news {
                self.note_resting(handle);
            }
        } else {
            conn.release(&mut self.lower);
            self.unmap(handle);
            if detached || !known {
                self.accepted(handle);
                self.remove(handle);
            }
        }
    }

    /// Notes that a connection rests in TIME-WAIT, and forgets those that have rested, once these are as many as connections there are.
    fn note_resting(&mut self, handle: Handle) {
        if self.resting.len() > 2 * self.conns.len() {
            let conns = &self.conns;
            self.resting.retain(|rested| conns.get(*rested).is_some());
        }
        self.resting.push_back(handle);
    }

    /// `Closed` was polled: nobody knows the connection any more.
    pub(crate) fn detach(&mut self, handle: Handle) {
        let Some(conn) = self.conns.get_mut(handle) else {
            return;
        };
        conn.life.marks.insert(Marks::DETACHED);
        if conn.state() == State::TimeWait {
            conn.forget_unread(&mut self.lower);
        } else {
            self.remove(handle);
        }
    }

    /// Ends a TIME-WAIT before its time.
    pub(crate) fn retire(&mut self, handle: Handle) {
        self.unmap(handle);
        let conn = self.conns.get_mut(handle);
        if let Some(conn) = conn {
            if conn.life.is(Marks::DETACHED) {
                self.remove(handle);
            } else {
                conn.abort(true, &mut self.lower); // `Closed` is queued, and removes it
            }
        }
    }

    /// Removes a connection that nobody was told of, and what would tell of it.
    pub(crate) fn forget(&mut self, handle: Handle) {
        let id = ConnId(handle);
        self.events.retain(|event| event.conn() != id);
        self.unmap(handle);
        self.remove(handle);
    }

    /// True if there is room for one more connection, made by ending the oldest TIME-WAIT if need be.
    pub(crate) fn has_room(&mut self) -> bool {
        while self.conns.len() >= self.config.max_connections {
            let Some(handle) = self.resting.pop_front() else {
                return false;
            };
            self.retire(handle);
        }
        true
    }

    /// Frees a connection's flow, unless a later connection has it.
    fn unmap(&mut self, handle: Handle) {
        if let Some(conn) = self.conns.get(handle)
            && self.flows.get(&conn.flow) == Some(&handle)
        {
            self.flows.remove(&conn.flow);
        }
    }
}

#[cfg(test)]
mod tests;

//! TX frame waiters: connections that were refused a frame, and when frames are taken from silent peers for them.

use std::time::Duration;

use super::handle_list::{HandleList, Membership};
use super::table::Table;
use crate::device::Device;
use crate::handle_map::Handle;
use crate::time::Instant;

/// How often frames are taken from silent peers while somebody waits for one, and how many at once at least. Copying a thousand takes some
/// 0.2 ms.
const PARKING_PAUSE: Duration = Duration::from_millis(1);
const PARKED_AT_ONCE: usize = 1024;

/// Connections that wait for a TX frame.
#[derive(Debug)]
pub(super) struct FrameWaiters {
    waiting: HandleList,
    /// When frames may be taken from silent peers again.
    next_parking: Instant,
    /// Segments that had been sent when no connection had a frame that can be taken.
    nothing_to_park_at: Option<u64>,
}

impl FrameWaiters {
    pub(super) fn new() -> Self {
        Self {
            waiting: HandleList::new(),
            next_parking: Instant::ORIGIN,
            nothing_to_park_at: None,
        }
    }

    pub(super) fn add(&mut self, handle: Handle, membership: &mut Membership) {
        self.waiting.add(handle, membership);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When frames may be taken from silent peers, if somebody waits for one and there may be any.
    pub(super) fn deadline(&self, device: &Device) -> Option<Instant> {
        let hopeful = !self.waiting.is_empty() && !self.has_nothing_to_park(device);
        hopeful.then_some(self.next_parking)
    }

    /// True if no connection had a frame that could be taken, and nothing was sent since.
    fn has_nothing_to_park(&self, device: &Device) -> bool {
        self.nothing_to_park_at == Some(device.counters().segments_out)
    }

    /// Calls `wake` for each connection for which there is a frame again. While there is none, silent peers lose theirs.
    pub(super) fn wake(
        &mut self,
        table: &mut Table,
        device: &mut Device,
        now: Instant,
        mut wake: impl FnMut(Handle),
    ) {
        self.park_silent(table, device, now);
        let Some(frame) = device.data_frame(0) else {
            return;
        };
        device.discard(frame);
        self.wake_waiting(device.spare(), table, now, &mut wake);
    }

    /// Calls `wake` for those who have fewer frames than are to spare, and can write.
    fn wake_waiting(
        &mut self,
        spare: usize,
        table: &mut Table,
        now: Instant,
        wake: &mut impl FnMut(Handle),
    ) {
        for _ in 0..self.waiting.len() {
            let Some(handle) = self.waiting.pop() else {
                break;
            };
            let Some(entry) = table.get_mut(handle) else {
                continue;
            };
            if spare <= entry.conn.frames_taken() {
                self.waiting.keep(handle);
                continue;
            }
            entry.frame_waiter.clear();
            if entry.conn.became_writable(now) {
                wake(handle);
            }
        }
    }

    /// Takes frames from connections whose peers are silent; what they hold is kept elsewhere. That costs copies, so it is done
    /// only for somebody who waits, a part at a time.
    fn park_silent(&mut self, table: &mut Table, device: &mut Device, now: Instant) {
        if now < self.next_parking || self.has_nothing_to_park(device) {
            return;
        }
        self.next_parking = now + PARKING_PAUSE;
        let mut parked = 0;
        let mut left = false;
        for conn in table.conns_mut() {
            parked += conn.park_if_silent(device, now);
            if parked >= PARKED_AT_ONCE {
                return;
            }
            left |= conn.has_frames();
        }
        self.nothing_to_park_at = (!left).then_some(device.counters().segments_out);
    }
}

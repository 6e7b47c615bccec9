//! TX frame waiters: connections that were refused a frame, and the parking of silent peers'
//! payload for them (see [`device`](crate::device)).

use std::time::Duration;

use super::handle_list::{HandleList, Membership};
use super::table::Table;
use crate::device::Device;
use crate::handle_map::Handle;
use crate::time::Instant;

/// Interval of parking while a connection waits for a frame, and the minimum number of frames per
/// pass. Copying a thousand takes some 0.2 ms.
const PARKING_PAUSE: Duration = Duration::from_millis(1);
const PARKED_AT_ONCE: usize = 1024;

/// Connections that wait for a TX frame.
#[derive(Debug)]
pub(super) struct FrameWaiters {
    waiting: HandleList,
    /// When payload may be parked again.
    next_parking: Instant,
    /// Number of segments sent when no connection had a frame to free.
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

    /// When payload may be parked, if a connection waits for a frame and there may be one to free.
    pub(super) fn deadline(&self, device: &Device) -> Option<Instant> {
        let hopeful = !self.waiting.is_empty() && !self.has_nothing_to_park(device);
        hopeful.then_some(self.next_parking)
    }

    /// True if no connection had a frame to free, and no segment was sent since.
    fn has_nothing_to_park(&self, device: &Device) -> bool {
        self.nothing_to_park_at == Some(device.counters().segments_out)
    }

    /// Calls `wake` for each connection that can have a frame again. While there is none, parks
    /// payload of silent peers.
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

    /// Calls `wake` for connections that hold fewer frames than are free and can write.
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

    /// Parks the payload of connections whose peers are silent. Copies cost time, so this happens
    /// only while a connection waits, and a part at a time.
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

//! Cables between interfaces in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use xwarp::Rnic;
use xwarp_driver::Wire;

use crate::{MemoryRnic, Queues, Side, carry};

/// A thread that carries frames both ways until the cable is dropped.
pub struct Cable {
    cut: Arc<AtomicBool>,
    carrier: Option<JoinHandle<()>>,
}

impl Cable {
    /// Joins two interfaces.
    pub fn new(a: Wire, b: Wire) -> Self {
        Self::carrying(move || {
            carry(&a, &b);
            carry(&b, &a);
        })
    }

    /// Joins two interfaces, whose NICs tell when frames arrive: the first at
    /// [`FIRST_ARRIVAL`](Self::FIRST_ARRIVAL), each later one a microsecond after the one before.
    pub fn telling_times(a: Wire, b: Wire) -> Self {
        let mut time = Self::FIRST_ARRIVAL;
        let mut carry = move |from: &Wire, to: &Wire| {
            while let Some(frame) = from.take_sent() {
                to.deliver_at(frame, time);
                time += Duration::from_micros(1);
            }
        };
        Self::carrying(move || {
            carry(&a, &b);
            carry(&b, &a);
        })
    }

    /// When the first frame arrives on a cable with timestamps, by the NIC's clock.
    pub const FIRST_ARRIVAL: Duration = Duration::from_secs(5_000_000);

    /// Joins two interfaces of several queues each.
    pub fn between_queues([a, b]: [(Queues, Wire); 2]) -> Self {
        let ((mut of_a, a), (mut of_b, b)) = (a, b);
        Self::carrying(move || {
            of_a.carry();
            of_b.carry();
            carry(&a, &b);
            carry(&b, &a);
        })
    }

    fn carrying(mut carry: impl FnMut() + Send + 'static) -> Self {
        let cut = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&cut);
        let work = move || {
            while !stop.load(Ordering::Relaxed) {
                carry();
                thread::yield_now();
            }
        };
        let carrier = Some(thread::spawn(work));
        Self { cut, carrier }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.cut.store(true, Ordering::Relaxed);
        let carried = self.carrier.take().map(JoinHandle::join);
        assert!(carried.is_some_and(|carried| carried.is_ok()));
    }
}

/// Two RNICs whose engines run by themselves, on a cable.
pub struct MemoryRnics {
    /// [`Side::A`].
    pub a: Rnic,
    /// [`Side::B`].
    pub b: Rnic,
    /// Between them.
    pub cable: Cable,
}

impl MemoryRnics {
    /// Opens what `of` says for either side.
    pub fn open(of: impl Fn(Side) -> MemoryRnic) -> Self {
        let [(a, at_a), (b, at_b)] = Side::BOTH.map(|side| of(side).open());
        let cable = if a.has_timestamps() {
            Cable::telling_times(at_a, at_b)
        } else {
            Cable::new(at_a, at_b)
        };
        Self { a, b, cable }
    }
}

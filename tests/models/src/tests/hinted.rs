//! Hinted value (`driver/src/wake/hinted.rs`): frames that one engine hands to another, and news of
//! the interface.

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;

use super::explore_bounded;
use super::sleeping::Shared;
use crate::hinted::Hinted;
use crate::sleep_flag::WokenBy;

/// Frames that were handed over, and the doorbell of the engine that takes them.
struct HandoffQueue {
    frames: Hinted<usize>,
    bell: Shared,
}

impl HandoffQueue {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            frames: Hinted::new(0),
            bell: Shared::silent(),
        })
    }

    fn put(&self) {
        self.frames
            .change(|frames| *frames += 1, |frames| *frames > 0);
        self.bell.ring();
    }

    /// A turn of the engine; how many frames it takes.
    fn take(&self) -> usize {
        if !self.frames.has_any() {
            return 0;
        }
        self.frames.change(std::mem::take, |frames| *frames > 0)
    }

    /// The engine takes what is there, and sleeps if there is nothing more. True if it sleeps.
    fn turn(&self, taken: &mut usize) -> bool {
        *taken += self.take();
        self.bell.flag.announce(WokenBy::DESCRIPTOR);
        !self.frames.has_any()
    }
}

fn run_with(engines: usize) {
    let inlet = HandoffQueue::new();
    let others: Vec<_> = (0..engines)
        .map(|_| {
            let inlet = Arc::clone(&inlet);
            thread::spawn(move || inlet.put())
        })
        .collect();
    let mut taken = 0;
    let asleep = inlet.turn(&mut taken);
    for other in others {
        other.join().unwrap();
    }
    let woken = inlet.bell.event.load(Ordering::Acquire) > 0;
    assert!(
        !asleep || woken || taken == engines,
        "frames wait, and it sleeps"
    );
    taken += inlet.take();
    assert_eq!(taken, engines, "a frame is forgotten");
}

#[test]
fn engine_that_sleeps_is_woken_by_a_frame_of_another() {
    loom::model(|| run_with(1));
}

#[test]
fn engine_that_sleeps_is_woken_by_frames_of_two_engines() {
    explore_bounded(|| run_with(2));
}

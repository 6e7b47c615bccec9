//! Rings between processes (`driver/src/switch/ring.rs`), with the sleep flags of both sides.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use super::explore_bounded;
use crate::ring::{Broken, Cells, Consumer, Producer};
use crate::sleep_flag::{SleepFlag, WokenBy};

/// A ring of two entries, and the flag of its consumer.
struct Memory {
    produced: AtomicU32,
    consumed: AtomicU32,
    entries: [AtomicU64; 2],
    asleep: SleepFlag,
    event: AtomicUsize,
}

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            produced: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            entries: [AtomicU64::new(0), AtomicU64::new(0)],
            asleep: SleepFlag::new(),
            event: AtomicUsize::new(0),
        })
    }
}

impl Cells for Arc<Memory> {
    const ENTRIES: u32 = 2;

    fn produced(&self) -> &AtomicU32 {
        &self.produced
    }

    fn consumed(&self) -> &AtomicU32 {
        &self.consumed
    }

    fn entry(&self, number: u32) -> &AtomicU64 {
        &self.entries[number as usize % 2]
    }
}

#[test]
fn entries_arrive_once_in_order_and_none_is_overwritten_before_it_is_read() {
    explore_bounded(|| {
        let memory = Memory::new();
        let mut producer = Producer::new(Arc::clone(&memory));
        let mut consumer = Consumer::new(Arc::clone(&memory));
        let other = thread::spawn(move || {
            for entry in 1..=3 {
                while !producer.push(entry).unwrap() {
                    producer.publish();
                    thread::yield_now();
                }
                producer.publish();
            }
        });
        for expected in 1..=3 {
            let entry = loop {
                match consumer.pop().unwrap() {
                    Some(entry) => break entry,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(entry, expected);
            consumer.release();
        }
        other.join().unwrap();
        assert_eq!(consumer.pop(), Ok(None));
    });
}

#[test]
fn consumer_that_sleeps_with_entries_left_is_woken() {
    loom::model(|| {
        let memory = Memory::new();
        let mut producer = Producer::new(Arc::clone(&memory));
        let consumer = Consumer::new(Arc::clone(&memory));
        let other = thread::spawn({
            let memory = Arc::clone(&memory);
            move || {
                assert_eq!(producer.push(7), Ok(true));
                if producer.publish() && memory.asleep.must_wake().is_some() {
                    memory.event.fetch_add(1, Ordering::Release);
                }
            }
        });
        memory.asleep.announce(WokenBy::WORD);
        let sleeps = !consumer.has_any();
        other.join().unwrap();
        assert!(!sleeps || memory.event.load(Ordering::Acquire) == 1);
    });
}

/// The consumer is replaced while the producer pushes, as a switch is that was started anew: it
/// begins behind what was published, and the producer goes on with it.
#[test]
fn another_consumer_takes_what_is_published_after_it_began() {
    explore_bounded(|| {
        let memory = Memory::new();
        let mut producer = Producer::new(Arc::clone(&memory));
        assert_eq!(producer.push(1), Ok(true));
        producer.publish();
        let begins = thread::spawn({
            let memory = Arc::clone(&memory);
            move || Consumer::behind(memory)
        });
        assert_eq!(producer.push(2), Ok(true));
        producer.publish();
        let mut consumer = begins.join().unwrap();
        assert_eq!(producer.continue_at(Arc::clone(&memory)), Ok(()));
        let popped = consumer.pop().unwrap();
        assert!(popped.is_none() || popped == Some(2), "{popped:?}");
        consumer.release();
        assert_eq!(producer.consumed(), Ok(2));
    });
}

#[test]
fn number_that_cannot_be_breaks_the_ring() {
    loom::model(|| {
        for produced in [3, u32::MAX] {
            let memory = Memory::new();
            let mut consumer = Consumer::new(Arc::clone(&memory));
            memory.produced.store(produced, Ordering::Relaxed);
            assert_eq!(consumer.pop(), Err(Broken));
        }
        for consumed in [2, u32::MAX] {
            let memory = Memory::new();
            let mut producer = Producer::new(Arc::clone(&memory));
            assert_eq!(producer.push(1), Ok(true));
            producer.publish();
            memory.consumed.store(consumed, Ordering::Relaxed);
            assert_eq!(producer.consumed(), Err(Broken));
            assert_eq!(producer.push(2), Ok(true));
            assert_eq!(producer.push(3), Err(Broken));
        }
    });
}

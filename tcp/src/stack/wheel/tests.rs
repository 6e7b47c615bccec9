//! The wheel against a sorted map, and its work when many timers are idle.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(micros: u64) -> Instant {
    Instant::from_micros(micros)
}

/// Maximum lateness of a deadline `ahead`.
fn late(ahead: Duration) -> Duration {
    Duration::from_micros(16) + ahead / 31
}

#[test]
fn timer_fires_at_its_tick_and_once() {
    let mut wheel = Wheel::new(at(0));
    wheel.set(7, at(160));
    assert_eq!(wheel.next(), Some(at(160)));
    assert_eq!(wheel.pop(at(159)), None);
    assert_eq!(wheel.pop(at(160)), Some(7));
    assert_eq!(wheel.pop(at(999)), None);
    assert_eq!((wheel.next(), wheel.len()), (None, 0));
}

#[test]
fn timer_set_again_or_cancelled_does_not_fire_at_its_old_time() {
    let mut wheel = Wheel::new(at(0));
    wheel.set(1, at(160));
    wheel.set(2, at(160));
    wheel.set(1, at(320));
    wheel.cancel(2);
    wheel.cancel(99);
    assert_eq!(wheel.pop(at(319)), None);
    assert_eq!(wheel.deadline(1), Some(at(320)));
    assert_eq!(wheel.pop(at(320)), Some(1));
    assert_eq!(wheel.deadline(1), None);
}

#[test]
fn deadline_that_is_past_fires_at_once() {
    let mut wheel = Wheel::new(at(1_000_000));
    wheel.set(0, at(5));
    assert_eq!(wheel.pop(at(1_000_000)), Some(0));
}

#[test]
fn deadline_beyond_the_last_level_does_not_fire_early() {
    let mut wheel = Wheel::new(at(0));
    let century = 36_525 * 24 * 3_600_000_000;
    wheel.set(0, at(century));
    let first = wheel.next().unwrap();
    assert!(first < at(century));
    assert_eq!(wheel.pop(first), None);
    let second = wheel.next().unwrap();
    assert!(second >= at(century));
    assert!(second - at(century) <= late(second - first));
    assert_eq!(wheel.pop(second), Some(0));
}

#[test]
fn end_of_time_is_no_deadline_that_breaks_anything() {
    let mut wheel = Wheel::new(at(0));
    wheel.set(0, Instant::ORIGIN + Duration::MAX);
    let tick = Duration::from_nanos(TICK);
    assert!(wheel.pop(Instant::ORIGIN + Duration::MAX - tick).is_none());
    assert_eq!(wheel.len(), 1);
    let mut wheel = Wheel::new(Instant::ORIGIN + Duration::MAX);
    wheel.set(0, Instant::ORIGIN + Duration::MAX);
    assert_eq!(wheel.pop(Instant::ORIGIN + Duration::MAX), Some(0));
}

#[test]
fn million_idle_timers_cost_nothing() {
    const IDLE: u32 = if cfg!(miri) { 1000 } else { 1_000_000 };
    const ROUNDS: u64 = if cfg!(miri) { 100 } else { 10_000 };
    let mut wheel = Wheel::new(at(0));
    for key in 1..=IDLE {
        wheel.set(key, at(7_200_000_000 + u64::from(key)));
    }
    wheel.touched = 0;
    for round in 0..ROUNDS {
        wheel.set(0, at(round * 100 + 5000));
        wheel.set(0, at(round * 100 + 90));
        let next = wheel.next().unwrap();
        assert_eq!(wheel.pop(next), Some(0));
    }
    assert_eq!(wheel.touched, ROUNDS * 4, "each time: put, moved, taken");
    wheel.touched = 0;
    let mut fired = 0;
    while let Some(next) = wheel.next() {
        while wheel.pop(next).is_some() {
            fired += 1;
        }
    }
    assert_eq!((fired, wheel.touched), (IDLE, u64::from(IDLE)));
}

#[derive(Clone, Debug)]
enum Op {
    Set(u32, u64),
    Cancel(u32),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    // as many near deadlines as far ones: up to 2^36 µs, 19 hours
    let span = (0u32..37).prop_flat_map(|bits| 0..=(1u64 << bits));
    prop_oneof![
        (0u32..20, span.clone()).prop_map(|(key, ahead)| Op::Set(key, ahead)),
        (0u32..20).prop_map(Op::Cancel),
        span.prop_map(Op::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 500 }))]

    /// The model knows each key's deadline, and when it must have fired.
    #[test]
    fn wheel_fires_what_the_model_fires(ops in prop::collection::vec(op(), 1..100)) {
        let mut wheel = Wheel::new(at(0));
        let mut model: BTreeMap<u32, (Instant, Instant)> = BTreeMap::new();
        let mut now = at(0);
        for op in ops {
            match op {
                Op::Set(key, ahead) => {
                    let ahead = Duration::from_micros(ahead);
                    wheel.set(key, now + ahead);
                    model.insert(key, (now + ahead, now + ahead + late(ahead)));
                }
                Op::Cancel(key) => {
                    wheel.cancel(key);
                    model.remove(&key);
                }
                Op::Pass(micros) => {
                    now = now + Duration::from_micros(micros);
                    while let Some(key) = wheel.pop(now) {
                        let (deadline, _) = model.remove(&key).expect("set and not cancelled");
                        prop_assert!(deadline <= now, "early");
                    }
                }
            }
            prop_assert_eq!(wheel.len(), model.len());
            for (key, (deadline, last)) in &model {
                prop_assert_eq!(wheel.deadline(*key), Some(*deadline));
                prop_assert!(*last >= now, "key {} is late", key);
            }
            let last = model.values().map(|(_, last)| *last).min();
            prop_assert_eq!(wheel.next().is_some(), last.is_some());
            if let (Some(next), Some(last)) = (wheel.next(), last) {
                prop_assert!(next <= last);
            }
        }
    }

    #[test]
    fn no_input_panics(start: Duration, ops: Vec<(u8, u8, Duration)>) {
        let mut wheel = Wheel::new(Instant::ORIGIN + start);
        for (kind, key, time) in ops {
            let time = Instant::ORIGIN + time;
            match kind % 4 {
                0 | 1 => wheel.set(u32::from(key), time),
                2 => wheel.cancel(u32::from(key)),
                _ => while wheel.pop(time).is_some() {},
            }
            wheel.next();
        }
    }
}

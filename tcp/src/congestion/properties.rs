//! Properties of every congestion control algorithm under arbitrary calls.

use proptest::prelude::*;

use super::testing::ALL;
use super::window::{MAX_WINDOW, clamp_mss};
use super::*;

/// One call, with any values that an engine could pass.
#[derive(Clone, Debug)]
enum Call {
    Ack(Acked),
    Loss(usize),
    Recovered,
    Timeout(usize),
    Undo,
    Ecn(usize),
    Idle(Duration, Duration),
    Mss(usize),
}

/// Numbers of all magnitudes.
fn bytes() -> impl Strategy<Value = usize> {
    (any::<usize>(), 0..usize::BITS).prop_map(|(n, shift)| n >> shift)
}

fn time() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..u64::BITS, any::<bool>()).prop_map(|(n, shift, most)| {
        if most && shift == 0 {
            Duration::MAX
        } else {
            Duration::from_nanos(n >> shift)
        }
    })
}

fn rate() -> impl Strategy<Value = RateSample> {
    (bytes(), time(), any::<bool>(), any::<u64>()).prop_map(
        |(delivered, interval, app_limited, prior_delivered)| RateSample {
            delivered,
            interval,
            app_limited,
            prior_delivered,
        },
    )
}

fn acked() -> impl Strategy<Value = Acked> {
    (
        [bytes(), bytes(), bytes(), bytes()],
        prop::option::of(time()),
        prop::option::of(rate()),
        any::<[bool; 2]>(),
    )
        .prop_map(|(bytes, rtt, rate, flags)| Acked {
            now: Instant::ORIGIN,
            bytes: bytes[0],
            in_flight: bytes[1],
            rtt,
            delivered: bytes[2] as u64,
            rate,
            ece_bytes: bytes[3],
            cwnd_limited: flags[0],
            in_recovery: flags[1],
        })
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        8 => acked().prop_map(Call::Ack),
        1 => bytes().prop_map(Call::Loss),
        1 => Just(Call::Recovered),
        1 => bytes().prop_map(Call::Timeout),
        1 => Just(Call::Undo),
        1 => bytes().prop_map(Call::Ecn),
        1 => (time(), time()).prop_map(|(idle, rto)| Call::Idle(idle, rto)),
        1 => bytes().prop_map(Call::Mss),
    ]
}

proptest! {
    #[test]
    fn no_input_panics_and_the_window_stays_in_bounds(mss in bytes(), calls in prop::collection::vec((time(), call()), 0..60)) {
        for algorithm in ALL {
            let mut mss = clamp_mss(mss);
            let mut now = Instant::ORIGIN;
            let mut control = algorithm.start(mss, now);
            for (gap, call) in &calls {
                now = now + *gap;
                match *call {
                    Call::Ack(acked) => control.on_ack(&Acked { now, ..acked }),
                    Call::Loss(in_flight) => control.on_loss(now, in_flight),
                    Call::Recovered => control.on_recovered(now),
                    Call::Timeout(in_flight) => control.on_timeout(now, in_flight),
                    Call::Undo => control.on_undo(now),
                    Call::Ecn(in_flight) => control.on_ecn(now, in_flight),
                    Call::Idle(idle, rto) => control.on_idle(now, idle, rto),
                    Call::Mss(new) => {
                        mss = clamp_mss(new);
                        control.on_mss(new);
                    }
                }
                let window = control.window();
                prop_assert!(window >= mss, "{algorithm:?}: {window} after {call:?}");
                prop_assert!(window <= MAX_WINDOW, "{algorithm:?}: {window} after {call:?}");
                prop_assert!(control.pacing_rate() != Some(0), "{algorithm:?} stands still after {call:?}");
            }
        }
    }
}

//! Calls of the kernel, and stalls: when it has stood still for too long.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::packet_io::IoError;
use crate::xdp::busy_poll::{BusyPollError, InterruptDeferral};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn kernel_is_called_to_send_if_it_asks_for_that_and_there_is_something() {
    let mut bed = Bed::new();
    bed.kernel.ask_for_wakeups(true, false);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 0], "there is nothing");
    bed.send(&[1; 60]);
    bed.send(&[2; 60]);
    assert_eq!(bed.kernel.calls(), [0, 0]);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [1, 0], "once for both");
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [1, 0], "it has not taken all");
    bed.kernel.ask_for_wakeups(false, false);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 0]);
    bed.kernel.ask_for_wakeups(true, false);
    bed.complete_all();
    bed.io.flush().unwrap();
    bed.kernel.calls();
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 0], "all is completed");
}

/// Some drivers ask though they have all that they want. So they are called once in a while, and
/// sooner if there are new chunks.
#[test]
fn kernel_is_called_to_receive_if_it_asks_for_that_and_not_too_often() {
    let mut bed = Bed::new();
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 0], "it does not ask");
    bed.kernel.ask_for_wakeups(false, true);
    let mut calls_after = |micros, chunks| {
        bed.kernel.advance(Duration::from_micros(micros));
        if chunks {
            bed.deliver(&[1; 60]);
            bed.pass();
        } else {
            bed.io.flush().unwrap();
        }
        bed.kernel.calls()[1]
    };
    assert_eq!(calls_after(0, false), 1, "of the first chunks");
    assert_eq!(calls_after(999, false), 0);
    assert_eq!(calls_after(1, false), 1);
    assert_eq!(calls_after(99, true), 0);
    assert_eq!(calls_after(1, false), 1);
    assert_eq!(calls_after(100, false), 0, "it was called for those");
    assert_eq!(calls_after(900, false), 1);
    assert_eq!(calls_after(100, true), 1);
}

/// A call that came too soon is made up for: nothing may arrive before it that would end a sleep.
#[test]
fn queue_whose_driver_must_be_woken_has_a_backlog_until_then() {
    let mut bed = Bed::new();
    bed.kernel.ask_for_wakeups(false, true);
    bed.io.flush().unwrap();
    assert_eq!((bed.kernel.calls(), bed.io.backlog()), ([0, 1], false));
    bed.kernel.advance(Duration::from_micros(99));
    bed.deliver(&[1; 60]);
    bed.pass();
    assert_eq!((bed.kernel.calls(), bed.io.backlog()), ([0, 0], true));
    bed.io.set_up(false);
    assert!(!bed.io.backlog(), "the link is down");
    bed.io.set_up(true);
    bed.kernel.advance(Duration::from_micros(1));
    bed.io.flush().unwrap();
    assert_eq!((bed.kernel.calls(), bed.io.backlog()), ([0, 1], false));
}

/// The driver finds nothing in the fill ring, and asks for a call just after the queue has looked
/// whether it does.
#[test]
fn driver_without_chunks_may_ask_a_moment_later() {
    let mut bed = Bed::open(&target(), &wanted(), Kernel::set_zero_copy)
        .unwrap_or_else(|error| panic!("{error}"));
    bed.io.flush().unwrap();
    assert!(bed.io.backlog(), "it has none, and does not ask yet");
    bed.fill();
    assert!(!bed.io.backlog(), "it has taken them");
}

#[test]
fn kernel_is_not_called_while_the_link_is_down() {
    let mut bed = Bed::new();
    bed.kernel.ask_for_wakeups(true, true);
    bed.io.set_up(false);
    bed.send(&[1; 60]);
    bed.io.flush().unwrap();
    assert_eq!((bed.kernel.calls(), bed.io.backlog()), ([0, 0], false));
    bed.io.set_up(true);
    assert!(bed.io.backlog());
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [1, 1]);
    assert_eq!(bed.take_sent().len(), 1);
}

/// Each call polls the driver.
#[test]
fn busy_polling_is_one_call_at_each_flush() {
    let deferral = Arc::new(InterruptDeferral::of_nothing());
    let copying = Bed::new().io.poll_busily(&deferral);
    assert!(matches!(copying, Err(BusyPollError::NoZeroCopy { .. })));
    let mut bed = Bed::open(&target(), &wanted(), Kernel::set_zero_copy)
        .ok()
        .unwrap();
    bed.io.poll_busily(&deferral).unwrap();
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 1]);
    bed.send(&[1; 60]);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [1, 0], "a call that sends polls, too");
    bed.io.set_up(false);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.calls(), [0, 0]);
}

#[test]
fn refused_call_is_an_error_that_names_it() {
    let mut bed = Bed::new();
    bed.kernel.ask_for_wakeups(true, true);
    bed.kernel.refuse(Some(libc::ENXIO));
    let refused = bed.io.flush().unwrap_err();
    assert!(matches!(refused, IoError::Receive { .. }), "{refused}");
    bed.send(&[1; 60]);
    let refused = bed.io.flush().unwrap_err();
    assert!(matches!(refused, IoError::Transmit { .. }), "{refused}");
    bed.kernel.refuse(None);
    bed.io.flush().unwrap();
}

/// Sends a frame that is not completed, and flushes after each of these pauses.
fn stall(bed: &mut Bed, millis: &[u64]) -> Result<(), IoError> {
    bed.send(&[1; 60]);
    bed.io.flush()?;
    millis.iter().try_for_each(|millis| {
        bed.kernel.advance(Duration::from_millis(*millis));
        bed.io.flush()
    })
}

#[test]
fn frame_that_is_never_completed_is_noticed_and_then_an_error() {
    let mut bed = Bed::new();
    stall(&mut bed, &[1999]).unwrap();
    assert_eq!(bed.io.counters().completion_stalls, 0);
    bed.kernel.advance(Duration::from_millis(1));
    bed.io.flush().unwrap();
    assert_eq!(bed.io.counters().completion_stalls, 1);
    bed.kernel.advance(Duration::from_millis(2999));
    bed.io.flush().unwrap();
    bed.kernel.advance(Duration::from_millis(1));
    let stalled = bed.io.flush().unwrap_err();
    assert!(
        matches!(
            stalled,
            IoError::Stalled {
                frames: 1,
                seconds: 5,
                ..
            }
        ),
        "{stalled}"
    );
    assert_eq!(bed.io.counters().completion_stalls, 1);
    let mut sudden = Bed::new();
    assert!(stall(&mut sudden, &[5000]).is_err());
}

/// A sender that is busy always has something in flight.
#[test]
fn completions_are_progress_though_other_frames_are_in_flight() {
    let mut bed = Bed::new();
    bed.send(&[0; 60]);
    bed.io.flush().unwrap();
    let mut oldest = bed.take_sent()[0];
    for number in 1..20 {
        bed.send(&[number; 60]);
        bed.io.flush().unwrap();
        let newest = bed.take_sent()[0];
        bed.kernel.advance(SECOND);
        bed.kernel.complete(oldest);
        bed.io.flush().unwrap();
        assert_eq!(bed.io.levels().tx_frames_in_flight, 1);
        oldest = newest;
    }
    assert_eq!(bed.io.counters().completion_stalls, 0);
}

#[test]
fn time_without_frames_in_flight_is_no_stall() {
    let mut bed = Bed::new();
    stall(&mut bed, &[1000]).unwrap();
    bed.complete_all();
    for _ in 0..2 {
        bed.io.flush().unwrap();
        bed.kernel.advance(60 * SECOND);
    }
    stall(&mut bed, &[1999]).unwrap();
    assert_eq!(bed.io.counters().completion_stalls, 0);
}

/// The link takes nothing while it is down. When it comes again, the kernel has as long as at
/// first.
#[test]
fn stall_is_watched_anew_after_the_link_has_changed() {
    let mut bed = Bed::new();
    stall(&mut bed, &[1900]).unwrap();
    bed.io.set_up(false);
    for _ in 0..10 {
        bed.io.flush().unwrap();
        bed.kernel.advance(SECOND);
    }
    bed.io.set_up(true);
    bed.io.flush().unwrap();
    bed.kernel.advance(Duration::from_millis(1999));
    bed.io.flush().unwrap();
    // It has gone and come between two flushes.
    bed.io.set_up(false);
    bed.io.set_up(true);
    bed.kernel.advance(Duration::from_millis(1999));
    bed.io.flush().unwrap();
    assert_eq!(bed.io.counters().completion_stalls, 0);
    bed.kernel.advance(2 * SECOND);
    bed.io.flush().unwrap();
    assert_eq!(bed.io.counters().completion_stalls, 1);
}

#[test]
fn driver_that_is_woken_for_chunks_and_takes_none_is_noticed() {
    let mut bed = Bed::new();
    bed.kernel.ask_for_wakeups(false, true);
    let owes_wakeup = |bed: &mut Bed| {
        bed.io.flush().unwrap();
        bed.kernel.advance(SECOND);
        bed.io.counters().fill_stalls
    };
    assert_eq!([(); 3].map(|()| owes_wakeup(&mut bed)), [0, 0, 1]);
    // A link that has changed is watched anew.
    bed.io.set_up(false);
    bed.io.set_up(true);
    assert_eq!([(); 3].map(|()| owes_wakeup(&mut bed)), [1, 1, 2]);
    bed.kernel.take_chunks(1);
    assert_eq!(
        [(); 5].map(|()| owes_wakeup(&mut bed)),
        [2; 5],
        "it has one"
    );
}

#[test]
fn what_the_kernel_counts_is_counted() {
    let mut bed = Bed::new();
    bed.kernel.count(|it| {
        it.rx_dropped = 6; // those without a chunk included
        it.rx_invalid_descs = 2;
        it.tx_invalid_descs = 3;
        it.rx_ring_full = 4;
        it.rx_fill_ring_empty_descs = 5;
        it.tx_ring_empty_descs = 6;
    });
    let counters = bed.io.counters();
    let (dropped, invalid) = (counters.drop_rx_other, counters.drop_tx_invalid);
    let (full, empty) = (counters.drop_rx_ring_full, counters.drop_rx_no_frame);
    assert_eq!([dropped, invalid, full, empty], [1, 3, 4, 5]);
    let levels = bed.io.levels();
    assert_eq!((levels.fill_invalid, levels.tx_ring_empty), (2, 6));
    assert_eq!((levels.fill_ring, levels.rx_chunks_lent), (320, 320));
    bed.send(&[1; 60]);
    bed.io.flush().unwrap();
    let held = bed.frame(&[2; 60]);
    let levels = bed.io.levels();
    let frames = [
        levels.tx_frames_free,
        levels.tx_frames_in_flight,
        levels.tx_frames_kept,
    ];
    assert_eq!((frames, levels.tx_ring), ([6, 1, 1], 1));
    bed.complete_all();
    let levels = bed.io.levels();
    assert_eq!((levels.tx_ring, levels.completion_ring), (0, 1));
    bed.io.discard(held);
}

//! Driver alone: takes frames from its rings, or sends them back, as `tests/bench/minimal.c` does
//! without it.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use xwarp_driver::{PacketIo, RxFrame};

use crate::Raw;
use crate::raw::{BATCH, SILENCE, TIMEOUT, open};

/// What is done with the frames.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// They are given back.
    Receive,
    /// They are sent back.
    Forward,
}

/// Takes frames until none has come for a while. Prints the frames of a second, and all.
pub(crate) fn run(raw: &Raw, work: Work, pause: Duration) -> anyhow::Result<()> {
    let mut nic = open(raw)?;
    let mut received = Vec::with_capacity(BATCH);
    let (start, mut frames, mut times) = (Instant::now(), 0_u32, None);
    loop {
        let count = xwarp_turn(&mut *nic.ios[0], work, &mut received)?;
        let now = Instant::now();
        if count > 0 {
            let first = times.map_or(now, |(first, _)| first);
            times = Some((first, now));
            frames += count;
            continue;
        }
        let (last, limit) = times.map_or((start, TIMEOUT), |(_, last)| (last, SILENCE));
        if last.elapsed() > limit {
            break;
        }
        // In zero copy the driver may need a wakeup before it uses new chunks.
        nic.ios[0].flush()?;
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    let (first, last) = times.context("no frame has come")?;
    println!(
        "{:.0} {frames}",
        f64::from(frames) / (last - first).as_secs_f64()
    );
    Ok(())
}

/// `callgrind` counts what this function takes.
#[inline(never)]
fn xwarp_turn(
    io: &mut dyn PacketIo,
    work: Work,
    received: &mut Vec<RxFrame>,
) -> anyhow::Result<u32> {
    io.receive(BATCH, received);
    let count = u32::try_from(received.len())?;
    for frame in received.drain(..) {
        if work == Work::Forward {
            send_back(io, &frame);
        }
        io.recycle(frame);
    }
    if count > 0 {
        io.flush()?;
    }
    Ok(count)
}

/// Sends a frame to where it has come from, unless no buffer is free.
fn send_back(io: &mut dyn PacketIo, from: &RxFrame) {
    let Some(mut frame) = io.tx_frame() else {
        return;
    };
    frame.set_len(from.len());
    frame.copy_from_slice(from);
    let (to, others) = frame.split_at_mut(6);
    to.swap_with_slice(&mut others[..6]);
    io.send(frame);
}

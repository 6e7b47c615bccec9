//! Takes frames from the rings of the crate xsk-rs, or sends them back: what `tools/bench --link
//! --queues` holds xwarp's driver against. One socket on queue 0 and libxdp's own XDP program, as
//! `tests/bench/minimal.c`.
//!
//! ```text
//! xsk_rs DEV copy|zero-copy receive|forward PAUSE
//! ```
//!
//! PAUSE: microseconds of sleep after a turn without frames.
//! Prints the frames of a second, and all, when none has come for 300 ms.

#![allow(unsafe_code)]

use std::io::Write;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use xsk_rs::config::{BindFlags, FrameSize, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

const FRAMES: NonZeroU32 = NonZeroU32::new(4096).unwrap();
const BYTES: u32 = 2048;
const RING: u32 = 2048;
const BATCH: usize = 64;
/// How long the first frame may take, and each further one.
const FIRST: Duration = Duration::from_mins(1);
const FURTHER: Duration = Duration::from_millis(300);

/// A socket, and the descriptors of frames that pass through this program.
struct Loop {
    umem: Umem,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    passing: [FrameDesc; BATCH],
    sent: [FrameDesc; BATCH],
    forward: bool,
}

impl Loop {
    fn open(device: &str, zero_copy: bool, forward: bool) -> anyhow::Result<Self> {
        let of_umem = UmemConfig::builder()
            .frame_size(FrameSize::new(BYTES)?)
            .fill_queue_size(QueueSize::new(2 * FRAMES.get())?)
            .comp_queue_size(QueueSize::new(RING)?)
            .build()?;
        let copying = if zero_copy {
            BindFlags::XDP_ZEROCOPY
        } else {
            BindFlags::XDP_COPY
        };
        let of_socket = SocketConfig::builder()
            .rx_queue_size(QueueSize::new(RING)?)
            .tx_queue_size(QueueSize::new(RING)?)
            .bind_flags(copying)
            .build();
        let (umem, frames) = Umem::new(of_umem, FRAMES, false)?;
        // SAFETY: no other socket shares this memory.
        let opened = unsafe { Socket::new(of_socket, &umem, &device.parse()?, 0) };
        let (tx, rx, rings) = opened?;
        let (mut fill, completion) = rings.context("rings for frames")?;
        // SAFETY: the frames are this memory's, and nothing has touched them.
        let produced = unsafe { fill.produce(&frames) };
        ensure!(produced == frames.len(), "the fill ring is full");
        Ok(Self {
            umem,
            rx,
            tx,
            fill,
            completion,
            passing: [frames[0]; BATCH],
            sent: [frames[0]; BATCH],
            forward,
        })
    }

    fn reclaim(&mut self) {
        // SAFETY: all descriptors that the ring has are of this memory.
        let count = unsafe { self.completion.consume(&mut self.sent) };
        give_back(&mut self.fill, &self.sent[..count]);
    }

    fn send_back(&mut self, count: usize) -> anyhow::Result<()> {
        for frame in &mut self.passing[..count] {
            // SAFETY: the frame is of this memory, and has been received: the kernel does not touch
            // it.
            let mut bytes = unsafe { self.umem.data_mut(frame) };
            let (to, rest) = bytes.contents_mut().split_at_mut(6);
            to.swap_with_slice(&mut rest[..6]);
        }
        loop {
            // SAFETY: these frames were received, and nothing touches them until they are
            // completed.
            let produced = unsafe { self.tx.produce(&self.passing[..count]) };
            self.tx.wakeup()?;
            self.reclaim();
            if produced == count {
                return Ok(());
            }
        }
    }

    /// callgrind counts what this function takes.
    #[inline(never)]
    fn turn(&mut self) -> anyhow::Result<usize> {
        // SAFETY: all descriptors that the ring has are of this memory.
        let count = unsafe { self.rx.consume(&mut self.passing) };
        if count > 0 && self.forward {
            self.send_back(count)?;
        } else if count > 0 {
            give_back(&mut self.fill, &self.passing[..count]);
        }
        Ok(count)
    }
}

/// Gives the kernel frames that it has returned.
fn give_back(fill: &mut FillQueue, frames: &[FrameDesc]) {
    // SAFETY: the kernel has returned these frames, and nothing reads or writes them now.
    let produced = unsafe { fill.produce(frames) };
    assert_eq!(produced, frames.len(), "the fill ring is full");
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, copying, work, pause] = arguments.as_slice() else {
        anyhow::bail!("usage: xsk_rs DEV copy|zero-copy receive|forward PAUSE");
    };
    let pause = Duration::from_micros(pause.parse().context("PAUSE is a number")?);
    let mut taking = Loop::open(device, copying == "zero-copy", work == "forward")?;
    println!("ready");
    std::io::stdout().flush()?;
    let start = Instant::now();
    let (mut frames, mut times) = (0_u32, None);
    loop {
        let count = taking.turn()?;
        let now = Instant::now();
        if count > 0 {
            frames += u32::try_from(count)?;
            let (first, _) = times.unwrap_or((now, now));
            times = Some((first, now));
            continue;
        }
        let (since, limit) = times.map_or((start, FIRST), |(_, last)| (last, FURTHER));
        if now - since > limit {
            break;
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let (first, last) = times.context("no frame came")?;
    println!(
        "{:.0} {frames}",
        f64::from(frames) / (last - first).as_secs_f64()
    );
    Ok(())
}

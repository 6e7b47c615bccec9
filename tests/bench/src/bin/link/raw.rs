//! Frames over AF_XDP with nothing above: what the driver and the kernel can do at most.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use xwarp_driver::attach::XdpMode;
use xwarp_driver::{Nic, NicConfig, PacketIo, RxFrame};

use crate::Raw;
use crate::frame::{PORT, headers, parse_mac};
use crate::latency::{WARM_UP, print};

/// Frames received and sent per turn, as the stack does it.
const BATCH: usize = 64;
/// A side that hears nothing for so long after the first frame ends.
const SILENCE: Duration = Duration::from_millis(300);
/// A side that hears nothing at all for so long gives up.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An open interface, and the headers of what it sends.
struct Side {
    nic: Nic,
    headers: Vec<u8>,
    bytes: usize,
    received: Vec<RxFrame>,
}

impl Side {
    fn open(raw: &Raw) -> anyhow::Result<Self> {
        let mode = match raw.mode.as_str() {
            "native" => XdpMode::Native,
            "generic" => XdpMode::Generic,
            other => bail!("there is no XDP mode {other}, but native and generic"),
        };
        let config = NicConfig {
            mode: Some(mode),
            ..NicConfig::default()
        };
        let mut nic = Nic::open(&raw.dev, &config)?;
        nic.steering.add(SocketAddr::from((raw.local, PORT)))?;
        let macs = (nic.info.mac.0, parse_mac(&raw.mac)?);
        let headers = headers(raw.bytes, macs, (raw.local, raw.remote))?.to_vec();
        println!("ready");
        Ok(Self {
            nic,
            headers,
            bytes: raw.bytes,
            received: Vec::with_capacity(BATCH),
        })
    }

    fn io(&mut self) -> &mut dyn PacketIo {
        &mut *self.nic.io
    }

    /// Queues a frame; false while none is free.
    fn send(&mut self) -> bool {
        let Some(mut frame) = self.nic.io.tx_frame() else {
            return false;
        };
        frame.set_len(self.bytes);
        frame[..self.headers.len()].copy_from_slice(&self.headers);
        self.nic.io.send(frame);
        true
    }

    /// Takes in what has arrived, and gives it back; how many frames.
    fn receive(&mut self) -> usize {
        self.nic.io.receive(BATCH, &mut self.received);
        let frames = self.received.len();
        for frame in self.received.drain(..) {
            self.nic.io.recycle(frame);
        }
        frames
    }

    /// Calls `take` with the number of frames of each turn, until none has come for a while.
    fn until_silent(&mut self, mut take: impl FnMut(&mut Self, usize)) -> anyhow::Result<()> {
        let (mut last, mut any) = (Instant::now(), false);
        loop {
            let frames = self.receive();
            if frames > 0 {
                (last, any) = (Instant::now(), true);
                take(self, frames);
            }
            self.io().flush()?;
            let limit = if any { SILENCE } else { TIMEOUT };
            if last.elapsed() > limit {
                return any.then_some(()).context("no frame has come");
            }
        }
    }
}

/// Prints the frames per second between the first and the last.
pub(crate) fn sink(raw: &Raw) -> anyhow::Result<()> {
    let mut side = Side::open(raw)?;
    let (mut frames, mut first, mut last) = (0_u32, None, Instant::now());
    side.until_silent(|_, count| {
        last = Instant::now();
        // The first turn says only when it began.
        if first.is_none() {
            first = Some(last);
        } else {
            frames += u32::try_from(count).unwrap_or(u32::MAX);
        }
    })?;
    let seconds = last.duration_since(first.unwrap_or(last)).as_secs_f64();
    println!("{:.0}", f64::from(frames) / seconds);
    Ok(())
}

pub(crate) fn source(raw: &Raw, time: Duration) -> anyhow::Result<()> {
    let mut side = Side::open(raw)?;
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..BATCH {
            if !side.send() {
                break;
            }
        }
        side.io().flush()?;
    }
    while side.io().backlog() {
        side.io().flush()?;
    }
    Ok(())
}

pub(crate) fn pong(raw: &Raw) -> anyhow::Result<()> {
    let mut side = Side::open(raw)?;
    side.until_silent(|side, frames| {
        for _ in 0..frames {
            side.send();
        }
    })
}

pub(crate) fn ping(raw: &Raw, count: usize) -> anyhow::Result<()> {
    let mut side = Side::open(raw)?;
    let mut round_trips = Vec::with_capacity(count);
    for round in 0..count + WARM_UP {
        let began = Instant::now();
        side.send();
        side.io().flush()?;
        while side.receive() == 0 {
            anyhow::ensure!(began.elapsed() < TIMEOUT, "frame {round} has not come back");
        }
        if round >= WARM_UP {
            round_trips.push(began.elapsed());
        }
    }
    print(round_trips);
    Ok(())
}

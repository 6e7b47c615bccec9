//! Frames over AF_XDP with nothing above: what the driver and the kernel can do at most.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use xwarp_driver::attach::XdpMode;
use xwarp_driver::{Nic, NicConfig, PacketIo, RxFrame, ZeroCopy};

use crate::Raw;
use crate::frame::{self, Headers, PORT, parse_mac};
use crate::latency::{WARM_UP, print};

/// Frames received and sent per turn, as the stack does it.
pub(crate) const BATCH: usize = 64;
/// Once a frame has arrived, a side ends when it has received nothing for this long.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);
/// A side gives up when it has received nothing at all for this long.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// A source that has received no credit for this long takes the frames on their way for lost, and
/// sends on.
const STALL: Duration = Duration::from_millis(20);
/// Bytes of a credit: a frame that reports to the source which frames have arrived.
const CREDIT_BYTES: usize = 78;

/// Kinds of AF_XDP sockets.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Copies {
    Copy,
    ZeroCopy,
}

/// An open interface, and the headers of what it sends.
struct Endpoint {
    nic: Nic,
    data: Headers,
    credit: Headers,
    received: Vec<RxFrame>,
}

/// What a turn has brought.
#[derive(Clone, Copy, Default)]
struct Arrived {
    frames: u64,
    /// Highest number in them, and one.
    next: u64,
}

/// Opens the interface, and has the frames of one port steered to it.
pub(crate) fn open(raw: &Raw) -> anyhow::Result<Nic> {
    let mode = match raw.mode.as_str() {
        "native" => XdpMode::Native,
        "generic" => XdpMode::Generic,
        other => bail!("there is no XDP mode {other}, but native and generic"),
    };
    let zero_copy = match raw.copies {
        None => ZeroCopy::Try,
        Some(Copies::Copy) => ZeroCopy::Never,
        Some(Copies::ZeroCopy) => ZeroCopy::Demand,
    };
    let config = NicConfig::default().mode(Some(mode)).zero_copy(zero_copy);
    let mut nic = Nic::open(&raw.dev, &config)?;
    nic.steering.add(SocketAddr::from((raw.local, PORT)))?;
    println!("ready");
    Ok(nic)
}

impl Endpoint {
    fn open(raw: &Raw) -> anyhow::Result<Self> {
        let nic = open(raw)?;
        let macs = (nic.info.mac.0, parse_mac(&raw.mac)?);
        let headers = |bytes| Headers::new(bytes, macs, (raw.local, raw.remote));
        let (data, credit) = (headers(raw.bytes)?, headers(CREDIT_BYTES)?);
        Ok(Self {
            nic,
            data,
            credit,
            received: Vec::with_capacity(BATCH),
        })
    }

    fn io(&mut self) -> &mut dyn PacketIo {
        &mut *self.nic.ios[0]
    }

    /// Queues a frame with a number; false while none is free.
    fn send(&mut self, number: u64) -> bool {
        queue(&mut *self.nic.ios[0], &self.data, number)
    }

    /// Takes in what has arrived, and gives it back.
    fn receive(&mut self) -> Arrived {
        self.nic.ios[0].receive(BATCH, &mut self.received);
        let mut arrived = Arrived::default();
        for frame in self.received.drain(..) {
            arrived.frames += 1;
            arrived.next = arrived.next.max(frame::number(&frame) + 1);
            self.nic.ios[0].recycle(frame);
        }
        arrived
    }

    /// Calls `take` with what each turn has brought, until nothing has come for a while.
    fn until_silent(&mut self, mut take: impl FnMut(&mut Self, Arrived)) -> anyhow::Result<()> {
        let (mut last, mut any) = (Instant::now(), false);
        loop {
            let arrived = self.receive();
            if arrived.frames > 0 {
                (last, any) = (Instant::now(), true);
                take(self, arrived);
            }
            self.io().flush()?;
            let limit = if any { SILENCE } else { TIMEOUT };
            if last.elapsed() > limit {
                return any.then_some(()).context("no frame has come");
            }
        }
    }
}

fn queue(io: &mut dyn PacketIo, headers: &Headers, number: u64) -> bool {
    let Some(mut frame) = io.tx_frame() else {
        return false;
    };
    frame.set_len(headers.bytes());
    headers.write(&mut frame, number);
    io.send(frame);
    true
}

/// Frames that a sink has counted.
#[derive(Default)]
struct Count {
    frames: u64,
    next: u64,
    credited: u64,
}

impl Count {
    fn take(&mut self, arrived: Arrived) {
        self.frames += arrived.frames;
        self.next = self.next.max(arrived.next);
    }

    /// Whether the next credit is due. The source sends `window` frames beyond the last one.
    fn is_due(&self, window: u64) -> bool {
        self.next - self.credited >= window.div_ceil(4)
    }
}

/// Counts frames, and sends credits to the source. Prints the frames per second between the first
/// and the last, the number of frames, and how many were dropped on the way.
pub(crate) fn sink(raw: &Raw, window: u64) -> anyhow::Result<()> {
    let mut side = Endpoint::open(raw)?;
    let (mut count, mut first, mut last) = (Count::default(), None, Instant::now());
    side.until_silent(|side, arrived| {
        last = Instant::now();
        count.take(arrived);
        // The first turn says only when it began.
        first.get_or_insert((last, count.frames));
        if count.is_due(window) && queue(&mut *side.nic.ios[0], &side.credit, count.next) {
            count.credited = count.next;
        }
    })?;
    let (first, uncounted) = first.context("no frame has come")?;
    let seconds = last.duration_since(first).as_secs_f64();
    let frames = u32::try_from(count.frames - uncounted).context("too many frames")?;
    let dropped = count.next - count.frames;
    println!(
        "{:.0} {} {dropped}",
        f64::from(frames) / seconds,
        count.frames
    );
    Ok(())
}

/// Frames on their way, as far as a source knows.
struct Window {
    frames: u64,
    sent: u64,
    known: u64,
    heard: Instant,
}

impl Window {
    /// Frames that may be sent.
    fn room(&self) -> u64 {
        if self.frames == 0 {
            return u64::MAX;
        }
        (self.known + self.frames).saturating_sub(self.sent)
    }

    fn hear(&mut self, next: u64) {
        if next > self.known {
            (self.known, self.heard) = (next, Instant::now());
        } else if self.room() == 0 && self.heard.elapsed() > STALL {
            (self.known, self.heard) = (self.sent, Instant::now());
        }
    }
}

/// Sends for `time`, at most `frames` beyond the sink's last credit; without a limit if `frames` is
/// 0.
pub(crate) fn source(raw: &Raw, time: Duration, frames: u64) -> anyhow::Result<()> {
    let mut side = Endpoint::open(raw)?;
    let now = Instant::now();
    let mut window = Window {
        frames,
        sent: 0,
        known: 0,
        heard: now,
    };
    let batch = u64::try_from(BATCH)?;
    while now.elapsed() < time {
        let room = window.room().min(batch);
        let queued = (0..room)
            .take_while(|offset| side.send(window.sent + offset))
            .count();
        window.sent += u64::try_from(queued)?;
        if queued > 0 || side.io().backlog() {
            side.io().flush()?;
        }
        // A credit's number is that of the next frame, and `next` one more.
        let next = side.receive().next.saturating_sub(1);
        window.hear(next);
    }
    while side.io().backlog() {
        side.io().flush()?;
    }
    Ok(())
}

pub(crate) fn pong(raw: &Raw) -> anyhow::Result<()> {
    let mut side = Endpoint::open(raw)?;
    side.until_silent(|side, arrived| {
        for number in 0..arrived.frames {
            side.send(number);
        }
    })
}

pub(crate) fn ping(raw: &Raw, count: usize) -> anyhow::Result<()> {
    let mut side = Endpoint::open(raw)?;
    let mut round_trips = Vec::with_capacity(count);
    for round in 0..count + WARM_UP {
        let began = Instant::now();
        side.send(0);
        side.io().flush()?;
        while side.receive().frames == 0 {
            anyhow::ensure!(began.elapsed() < TIMEOUT, "frame {round} has not come back");
        }
        if round >= WARM_UP {
            round_trips.push(began.elapsed());
        }
    }
    print(round_trips);
    Ok(())
}

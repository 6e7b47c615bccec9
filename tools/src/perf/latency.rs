//! Latency test: one message at a time, back and forth.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use xwarp::{Opcode, RecvRequest, RemoteAddress, SendRequest, WrId};

use super::Extent;
use super::hello::{Hello, Verb};
use super::peer::{Peer, Record};
use crate::connection::{ONLY, Silence};

/// Longest latency that is recorded exactly.
const LONGEST: Duration = Duration::from_mins(1);
/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// Rounds before the measurement, which warm caches and let both sides settle.
const WARM_UP: u64 = 100;
/// Polls of memory without success, and rounds, between two checks of the connection. The test does
/// not sleep meanwhile.
const IDLE_LOOKS: u32 = 4096;
const CHECKED_ROUNDS: u64 = 256;
/// Receive buffers that each side keeps posted for Sends.
const RECEIVES: usize = 4;

/// Result of a latency run: nanoseconds of each round, halved for a ping-pong.
pub(crate) struct Run {
    pub(crate) histogram: Histogram<u64>,
    pub(crate) messages: u64,
}

/// The client's part.
pub(crate) fn run_client(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remote: RemoteAddress,
    extent: Extent,
) -> anyhow::Result<Run> {
    let mut histogram = Histogram::new_with_max(nanos(LONGEST), DIGITS)?;
    let mut round = 0_u64;
    for _ in 0..WARM_UP {
        round += 1;
        one_round(peer, hello, remote, round)?;
    }
    let start = Instant::now();
    let mut now = Instant::now();
    let halves = if hello.kind.verb == Verb::Read { 1 } else { 2 };
    loop {
        let more = match extent {
            Extent::Messages(limit) => round - WARM_UP < limit,
            Extent::Time(limit) => now - start < limit,
        };
        if !more {
            return Ok(Run {
                histogram,
                messages: round,
            });
        }
        round += 1;
        one_round(peer, hello, remote, round)?;
        let before = now;
        now = Instant::now();
        histogram.saturating_record(nanos(now - before) / halves);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn one_round(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remote: RemoteAddress,
    round: u64,
) -> anyhow::Result<()> {
    match hello.kind.verb {
        Verb::Write => {
            write_marked(peer, hello, remote, round)?;
            await_marker(peer, hello, round).map(|_| ())
        }
        Verb::Read => {
            let sink = peer.buffers(ONLY).sink.local(0, hello.size);
            peer.connections
                .post_send(ONLY, SendRequest::read(WrId(round), sink, remote))?;
            peer.connections.completion().map(|_| ())
        }
        Verb::Send => {
            send(peer, hello, round)?;
            while peer.connections.completion()?.opcode != Opcode::Receive {}
            post_receive(peer, hello)
        }
    }
}

/// Writes the message with the round's number in its last byte.
fn write_marked(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remote: RemoteAddress,
    round: u64,
) -> anyhow::Result<()> {
    let last = hello.size as usize - 1;
    peer.buffers(ONLY)
        .source
        .bytes()
        .write(last, &[marker(round)])?;
    let source = peer.buffers(ONLY).source.local(0, hello.size);
    // If the answer is there at the first poll, completions are not polled, and one for each Write
    // would fill the queues.
    let request = SendRequest::write(WrId(round), source, remote).unsignaled();
    peer.connections.post_send(ONLY, request)
}

fn marker(round: u64) -> u8 {
    round.to_le_bytes()[0]
}

/// True if the other side's message of this round has arrived. Memory is polled before the
/// completion, as in perftest: TCP delivers in order, and the last byte is placed last.
fn marker_is(peer: &Peer<'_>, hello: &Hello, round: u64) -> anyhow::Result<bool> {
    let mut last = [0];
    peer.buffers(ONLY)
        .sink
        .bytes()
        .read(hello.size as usize - 1, &mut last)?;
    Ok(last[0] == marker(round))
}

/// Runs the engine until the other side's message of this round has arrived. Returns false if its
/// record arrives instead.
fn await_marker(peer: &mut Peer<'_>, hello: &Hello, round: u64) -> anyhow::Result<bool> {
    if round.is_multiple_of(CHECKED_ROUNDS) {
        peer.connections.check_alive()?;
    }
    let mut idle = 0;
    let mut silence = Silence::default();
    while !marker_is(peer, hello, round)? {
        if let Some(completion) = peer.connections.try_completion()? {
            if Peer::announces_record(&completion) {
                return Ok(false);
            }
            continue;
        }
        idle += 1;
        if idle == IDLE_LOOKS {
            idle = 0;
            peer.connections.check_going(&mut silence)?;
        }
        std::hint::spin_loop();
    }
    Ok(true)
}

fn send(peer: &mut Peer<'_>, hello: &Hello, round: u64) -> anyhow::Result<()> {
    let source = peer.buffers(ONLY).source.local(0, hello.size);
    let request = SendRequest::send(WrId(round), source).unsignaled();
    peer.connections.post_send(ONLY, request)
}

/// Posts buffers for the other side's Sends, all in one place: one message is in flight at a time.
pub(crate) fn post_receives(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    (0..RECEIVES).try_for_each(|_| post_receive(peer, hello))
}

fn post_receive(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    let buffer = peer.buffers(ONLY).sink.local(0, hello.size);
    peer.connections
        .post_recv(ONLY, RecvRequest::new(WrId(0), buffer))
}

/// The server's part of a Send test: answers each message, until the client's record arrives.
pub(crate) fn serve_sends(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<Vec<Record>> {
    let mut round = 0;
    loop {
        let completion = peer.connections.completion()?;
        if Peer::announces_record(&completion) {
            return Ok(vec![peer.record(ONLY)?]);
        }
        if completion.opcode == Opcode::Receive {
            round += 1;
            post_receive(peer, hello)?;
            send(peer, hello, round)?;
        }
    }
}

/// The server's part of a Write test: answers each message that it sees in memory, until the
/// client's record arrives.
pub(crate) fn serve_writes(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<Vec<Record>> {
    let mut round = 1;
    while await_marker(peer, hello, round)? {
        write_marked(peer, hello, hello.places.buffer, round)?;
        round += 1;
    }
    Ok(vec![peer.record(ONLY)?])
}

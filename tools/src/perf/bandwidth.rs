//! Bandwidth test: as many messages as possible, `depth` of them outstanding on each connection.

use std::time::{Duration, Instant};

use xwarp::work::Sgl;
use xwarp::{Opcode, RecvRequest, RemoteAddress, SendRequest, WrId};

use super::Extent;
use super::hello::{Hello, Verb};
use super::peer::{Peer, Record};

/// Receive buffers of zero bytes that the client posts on each connection for credits and the final
/// record. A credit comes every half `depth` messages, and at most two `depth`s are in flight, so
/// at most four can wait.
pub(crate) const CREDIT_RECEIVES: usize = 8;
/// Messages between two readings of the clock, and messages of a connection between two checks of
/// its state.
const CHECKED_MESSAGES: u64 = 64;

/// Result of a bandwidth run.
pub(crate) struct Run {
    /// Per connection.
    pub(crate) messages: Vec<u64>,
    pub(crate) elapsed: Duration,
}

impl Run {
    /// Messages of all connections.
    pub(crate) fn total(&self) -> u64 {
        self.messages.iter().sum()
    }
}

/// Messages per credit of the server.
fn credit_batch(hello: &Hello) -> u64 {
    u64::from(hello.depth / 2).max(1)
}

/// Messages that the client may send ahead of the server's credits: the server's receive buffers,
/// except one for the final record. RDMAP has no flow control of its own (RFC 5040 §5.3).
fn send_window(hello: &Hello) -> u64 {
    2 * u64::from(hello.depth) - 1
}

/// The client's part. `remotes`: destinations of the connections' messages, in their order.
pub(crate) fn run(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remotes: &[RemoteAddress],
    extent: Extent,
) -> anyhow::Result<Run> {
    let mut load = Load::new(hello, remotes, extent);
    for which in peer.each() {
        load.post(peer, which)?;
    }
    while load.unfinished > 0 {
        load.take(peer)?;
    }
    peer.barrier()?;
    Ok(Run {
        elapsed: load.clock.start.elapsed(),
        messages: load.pumps.iter().map(|pump| pump.posted).collect(),
    })
}

/// Decides when a run is over.
struct Clock {
    extent: Extent,
    start: Instant,
    /// Queries since the start.
    asked: u64,
    is_over: bool,
}

impl Clock {
    fn new(extent: Extent) -> Self {
        Self {
            extent,
            start: Instant::now(),
            asked: 0,
            is_over: false,
        }
    }

    /// True if a connection that has posted `posted` messages may post another.
    fn wants_more(&mut self, posted: u64) -> bool {
        match self.extent {
            Extent::Messages(limit) => posted < limit,
            Extent::Time(limit) => {
                if self.asked.is_multiple_of(CHECKED_MESSAGES) {
                    self.is_over = self.start.elapsed() >= limit;
                }
                self.asked += u64::from(!self.is_over);
                !self.is_over
            }
        }
    }
}

/// Load of all connections of a client.
struct Load<'a> {
    clock: Clock,
    pumps: Vec<Pump<'a>>,
    /// Pumps with messages to post or to complete.
    unfinished: usize,
}

impl<'a> Load<'a> {
    fn new(hello: &'a Hello, remotes: &[RemoteAddress], extent: Extent) -> Self {
        let pumps = remotes.iter().map(|remote| Pump::new(hello, *remote));
        Self {
            clock: Clock::new(extent),
            pumps: pumps.collect(),
            unfinished: remotes.len(),
        }
    }

    /// Posts as many messages as a connection may have outstanding.
    fn post(&mut self, peer: &mut Peer<'_>, which: usize) -> anyhow::Result<()> {
        let pump = &mut self.pumps[which];
        if pump.is_finished {
            return Ok(());
        }
        let mut wants_more = self.clock.wants_more(pump.posted);
        while wants_more && pump.may_post() {
            pump.post(peer, which)?;
            wants_more = self.clock.wants_more(pump.posted);
        }
        pump.is_finished = !wants_more && pump.completed == pump.posted;
        self.unfinished -= usize::from(pump.is_finished);
        Ok(())
    }

    /// Processes a completion of any connection, and posts messages in its place.
    fn take(&mut self, peer: &mut Peer<'_>) -> anyhow::Result<()> {
        let completion = peer.connections.completion()?;
        let which = peer.connections.of(&completion);
        let pump = &mut self.pumps[which];
        if completion.opcode == Opcode::Receive {
            pump.credited += credit_batch(pump.hello);
            peer.expect_empty(which)?;
        } else {
            pump.completed += 1;
            if pump.completed.is_multiple_of(CHECKED_MESSAGES) {
                peer.connections.check_alive()?;
            }
        }
        self.post(peer, which)
    }
}

/// State of one connection at the client.
struct Pump<'a> {
    hello: &'a Hello,
    remote: RemoteAddress,
    posted: u64,
    completed: u64,
    /// Messages that the server has credited (Sends only).
    credited: u64,
    /// No message is left to post or to complete.
    is_finished: bool,
}

impl<'a> Pump<'a> {
    fn new(hello: &'a Hello, remote: RemoteAddress) -> Self {
        Self {
            hello,
            remote,
            posted: 0,
            completed: 0,
            credited: 0,
            is_finished: false,
        }
    }

    fn may_post(&self) -> bool {
        let window = self.hello.kind.verb != Verb::Send
            || self.posted - self.credited < send_window(self.hello);
        window && self.posted - self.completed < u64::from(self.hello.depth)
    }

    /// Posts the next message, from and to the next slot.
    fn post(&mut self, peer: &mut Peer<'_>, which: usize) -> anyhow::Result<()> {
        let offset = self.hello.slot_offset(self.posted);
        let id = WrId(self.posted);
        let remote = RemoteAddress {
            to: self.remote.to + offset,
            ..self.remote
        };
        let size = self.hello.size;
        let buffers = peer.buffers(which);
        let request = match self.hello.kind.verb {
            Verb::Write => SendRequest::write(id, buffers.source.local(offset, size), remote),
            Verb::Read => SendRequest::read(id, buffers.sink.local(offset, size), remote),
            Verb::Send => SendRequest::send(id, buffers.source.local(offset, size)),
        };
        peer.connections.post_send(which, request)?;
        self.posted += 1;
        Ok(())
    }
}

/// Posts the server's receive buffers for Sends, in the order of the slots.
pub(crate) fn post_receives(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    for which in peer.each() {
        for message in 0..=send_window(hello) {
            post_receive(peer, hello, which, message)?;
        }
    }
    Ok(())
}

fn post_receive(
    peer: &mut Peer<'_>,
    hello: &Hello,
    which: usize,
    message: u64,
) -> anyhow::Result<()> {
    let sink = &peer.buffers(which).sink;
    let buffer = sink.local(hello.slot_offset(message), hello.size);
    let request = RecvRequest::new(WrId(message), buffer);
    peer.connections.post_recv(which, request)
}

/// The server's part of a Send test: keeps receive buffers posted and returns credits, until the
/// client's records arrive.
pub(crate) fn serve_sends(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<Vec<Record>> {
    let mut received_by = vec![0_u64; peer.connections.count()];
    peer.receive_records_while(|peer, which, completion| {
        if completion.opcode != Opcode::Receive {
            return Ok(());
        }
        let received = &mut received_by[which];
        // The rest is posted ahead.
        post_receive(peer, hello, which, send_window(hello) + 1 + *received)?;
        *received += 1;
        if !received.is_multiple_of(credit_batch(hello)) {
            return Ok(());
        }
        let credit = SendRequest::send(WrId(*received), Sgl::new());
        peer.connections.post_send(which, credit.unsignaled())
    })
}

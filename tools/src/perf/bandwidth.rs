//! Bandwidth: as many messages as fit, `depth` of them outstanding.

use std::time::{Duration, Instant};

use xwarp::work::Sgl;
use xwarp::{Opcode, RecvRequest, RemoteAddress, SendRequest, WrId};

use super::Extent;
use super::hello::{Hello, Verb};
use super::peer::{Peer, Record};

/// Receive buffers of no bytes that the client posts for credits and for the final record. Credits come every half `depth`
/// messages and at most two `depth`s are under way, so that at most four can wait.
pub(crate) const CREDIT_RECEIVES: usize = 8;
/// Messages between two looks at the clock, and two checks that the test goes on.
const CHECKED_MESSAGES: u64 = 64;

/// What a bandwidth run measured.
pub(crate) struct Run {
    pub(crate) messages: u64,
    pub(crate) elapsed: Duration,
}

/// Messages for which the server returns one credit.
fn credit_batch(hello: &Hello) -> u64 {
    u64::from(hello.depth / 2).max(1)
}

/// Messages that the client may send ahead of the server's credits: the server's receive buffers but for one, which the final
/// record takes. RDMAP has no flow control of its own (RFC 5040 §5.3).
fn send_window(hello: &Hello) -> u64 {
    2 * u64::from(hello.depth) - 1
}

/// The client's part.
pub(crate) fn run(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remote: RemoteAddress,
    extent: Extent,
) -> anyhow::Result<Run> {
    let mut pump = Pump::new(hello, remote);
    let start = Instant::now();
    loop {
        let more = match extent {
            Extent::Messages(limit) => pump.posted < limit,
            Extent::Time(limit) => {
                !pump.posted.is_multiple_of(CHECKED_MESSAGES) || start.elapsed() < limit
            }
        };
        if !more {
            break;
        }
        if pump.may_post() {
            pump.post(peer)?;
            continue;
        }
        pump.take(peer)?;
        if pump.completed.is_multiple_of(CHECKED_MESSAGES) {
            peer.connection.check_alive()?;
        }
    }
    while pump.completed < pump.posted {
        pump.take(peer)?;
    }
    peer.barrier()?;
    Ok(Run {
        messages: pump.posted,
        elapsed: start.elapsed(),
    })
}

/// The client's count of a run.
struct Pump<'a> {
    hello: &'a Hello,
    remote: RemoteAddress,
    posted: u64,
    completed: u64,
    /// Messages that the server has acknowledged with credits (Sends only).
    credited: u64,
}

impl<'a> Pump<'a> {
    fn new(hello: &'a Hello, remote: RemoteAddress) -> Self {
        Self {
            hello,
            remote,
            posted: 0,
            completed: 0,
            credited: 0,
        }
    }

    fn may_post(&self) -> bool {
        let window = self.hello.kind.verb != Verb::Send
            || self.posted - self.credited < send_window(self.hello);
        window && self.posted - self.completed < u64::from(self.hello.depth)
    }

    /// Posts the next message, from and to the slot whose turn it is.
    fn post(&mut self, peer: &mut Peer<'_>) -> anyhow::Result<()> {
        let offset = self.hello.slot_offset(self.posted);
        let id = WrId(self.posted);
        let remote = RemoteAddress {
            to: self.remote.to + offset,
            ..self.remote
        };
        let size = self.hello.size;
        let request = match self.hello.kind.verb {
            Verb::Write => SendRequest::write(id, peer.source.local(offset, size), remote),
            Verb::Read => SendRequest::read(id, peer.sink.local(offset, size), remote),
            Verb::Send => SendRequest::send(id, peer.source.local(offset, size)),
        };
        peer.connection.post_send(request)?;
        self.posted += 1;
        Ok(())
    }

    fn take(&mut self, peer: &mut Peer<'_>) -> anyhow::Result<()> {
        let completion = peer.connection.completion()?;
        if completion.opcode == Opcode::Receive {
            self.credited += credit_batch(self.hello);
            peer.expect_empty()
        } else {
            self.completed += 1;
            Ok(())
        }
    }
}

/// The server's receive buffers for Sends, in the order of the slots.
pub(crate) fn post_receives(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    (0..=send_window(hello)).try_for_each(|message| post_receive(peer, hello, message))
}

fn post_receive(peer: &mut Peer<'_>, hello: &Hello, message: u64) -> anyhow::Result<()> {
    let buffer = peer.sink.local(hello.slot_offset(message), hello.size);
    peer.connection
        .post_recv(RecvRequest::new(WrId(message), buffer))
}

/// The server's part in a Send test: keeps receive buffers posted and returns credits, until the client's record comes.
pub(crate) fn serve_sends(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<Record> {
    let mut next = send_window(hello) + 1;
    let mut received = 0_u64;
    loop {
        let completion = peer.connection.completion()?;
        if completion.opcode != Opcode::Receive {
            continue;
        }
        if Peer::announces_record(&completion) {
            return peer.record();
        }
        received += 1;
        post_receive(peer, hello, next)?;
        next += 1;
        if received.is_multiple_of(credit_batch(hello)) {
            let credit = SendRequest::send(WrId(received), Sgl::new());
            peer.connection.post_send(credit.unsignaled())?;
        }
    }
}

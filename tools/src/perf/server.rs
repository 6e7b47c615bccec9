//! The server: waits for one client, plays its part of the test, checks the data, ends.

use anyhow::Context;
use xwarp::Rnic;
use xwarp::cm::ConnectionRequest;

use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::{Peer, Record};
use super::{COMPARE_TIMEOUT, PerfArgs, bandwidth, data, latency, report};
use crate::connection::{CLOSE_TIMEOUT, Clients, fpdus_heard};
use crate::output::OutputError;
use crate::signals::Interrupted;

/// Serves one test of the kind and at most the size of `largest`. A client whose first message never comes is none: the server waits
/// for the next.
pub(crate) fn run(
    rnic: &Rnic,
    device: &str,
    largest: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut clients = Clients::listen(rnic, device, args.port, interrupted)?;
    report::print_listening(rnic, largest.kind, &clients.addresses(), args)?;
    loop {
        let request = clients.next()?;
        let client = request.remote();
        let heard = fpdus_heard(rnic)?;
        let hello = match check_request(&request, largest.kind, largest) {
            Ok(hello) => hello,
            Err(error) => {
                turn_away(request, &error);
                continue;
            }
        };
        match serve(rnic, request, &hello, args, interrupted) {
            Err(error) if !error.is::<OutputError>() && fpdus_heard(rnic)? == heard => {
                interrupted.check()?;
                log::warn!("{client} has not begun its test: {error:#}");
            }
            outcome => return outcome,
        }
    }
}

fn turn_away(request: ConnectionRequest, why: &anyhow::Error) {
    log::warn!("{} is turned away: {why:#}", request.remote());
    if let Err(error) = request.reject(why.to_string().as_bytes()) {
        log::info!("it has not waited for the answer: {error}");
    }
}

fn check_request(
    request: &ConnectionRequest,
    kind: Kind,
    largest: &Hello,
) -> anyhow::Result<Hello> {
    let hello = Hello::from_bytes(request.private_data())?;
    anyhow::ensure!(
        hello.kind == kind,
        "this server runs {kind}, not {}; start both sides with the same test",
        hello.kind
    );
    anyhow::ensure!(
        hello.region_bytes() <= largest.region_bytes(),
        "this server has room for buffers of {} bytes, not {}; start it with the same --size and --depth",
        largest.buffer_bytes(),
        hello.buffer_bytes()
    );
    Ok(hello)
}

fn serve(
    rnic: &Rnic,
    request: ConnectionRequest,
    hello: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut peer = set_up(rnic, hello, interrupted)?;
    peer.connection.must_begin(fpdus_heard(rnic)?);
    if hello.server_sends() {
        peer.fill(hello, interrupted)?;
    }
    post_receives(&mut peer, hello)?;
    let remote = request.remote();
    let places: Places = peer.places(hello.kind.verb == Verb::Read);
    request
        .accept(&mut peer.connection.qp, &places.to_bytes())
        .with_context(|| format!("the connection from {remote} was lost"))?;
    report::print_client(remote, &peer.connection.qp, args)?;
    let [messages, ..] = match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::serve_sends(&mut peer, hello)?,
        (Verb::Send, Style::Latency) => latency::serve_sends(&mut peer, hello)?,
        (Verb::Write, Style::Latency) => latency::serve_writes(&mut peer, hello)?,
        (Verb::Write, Style::Bandwidth) | (Verb::Read, _) => peer.receive_record()?,
    };
    let verdict = check(&peer, hello, messages, interrupted)?;
    peer.send_record(verdict, hello.places.control)?;
    // The client compares its buffers before it closes.
    let timeout = if hello.verify {
        COMPARE_TIMEOUT
    } else {
        CLOSE_TIMEOUT
    };
    peer.connection.wait_closed(timeout)
}

/// The buffers for what the client sends first.
fn post_receives(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::post_receives(peer, hello),
        (Verb::Send, Style::Latency) => latency::post_receives(peer, hello),
        (Verb::Write | Verb::Read, _) => peer.expect_empty(),
    }
}

/// One end for a test. Zeroing gigabytes takes its time; a program of our own goes with the process, and with it what it steers.
fn set_up<'a>(
    rnic: &'a Rnic,
    hello: &Hello,
    interrupted: &'a Interrupted,
) -> anyhow::Result<Peer<'a>> {
    let make = || Peer::new(rnic, hello, interrupted);
    if rnic.info().is_some_and(|info| info.program_found) {
        return make();
    }
    interrupted.at_once_during(make)?
}

/// Whether this side holds what was sent to it: bytes checked, and where the first wrong one is.
fn check(
    peer: &Peer<'_>,
    hello: &Hello,
    messages: u64,
    interrupted: &Interrupted,
) -> anyhow::Result<Record> {
    if !hello.verify {
        return Ok([0; 4]);
    }
    let (size, slots) = match (hello.kind.verb, hello.kind.style) {
        (Verb::Read, _) => (0, 0),
        (Verb::Write, Style::Latency) => hello.marked_slot(),
        (Verb::Write | Verb::Send, _) => hello.full_slots(messages),
    };
    let wrong = data::first_wrong(peer.sink.bytes(), size, slots, interrupted)?;
    Ok(match wrong {
        None => [(size * slots) as u64, 0, 0, 0],
        Some((slot, at)) => [0, 1, slot as u64, at as u64],
    })
}

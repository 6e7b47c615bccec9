//! Server: waits for one client, runs its part of the test, checks the data, and ends.
//!
//! Until an FPDU of a client has arrived, the client cannot end the server: after 3 s of silence,
//! which the log reports, the server waits for the next client. A connection of the same run has 3
//! s, too; if it does not come, the client has not begun. After the first message the server ends
//! with the run, as perftest's does, at the latest when no FPDU has moved for 10 s. So a silent
//! client delays the next one by 3 s, less than the 5 s for which a client waits for its
//! connection.
//!
//! The connections of a run come one after the other, because the server numbers them as they come.
//! Connecting all at once is faster on a long path, but then the private data would have to name
//! each one.

use anyhow::{Context, anyhow, bail, ensure};
use xwarp::Rnic;
use xwarp::cm::ConnectionRequest;

use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::{Peer, Record};
use super::{COMPARE_TIMEOUT, PerfArgs, bandwidth, data, latency, report};
use crate::connection::{CLOSE_TIMEOUT, Clients, ONLY, TURN, fpdus_received};
use crate::device::Device;
use crate::host::named;
use crate::output::OutputError;
use crate::signals::Interrupted;

/// Serves one test of the kind and at most the size of `largest`. A client whose first message
/// never comes does not count: the server waits for the next.
pub(crate) fn run(
    rnic: &Rnic,
    device: &Device,
    largest: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut clients = Clients::listen(rnic, device, args.port, interrupted)?;
    report::print_listening(rnic, largest.kind, &clients.addresses(), args)?;
    loop {
        let request = clients.next()?;
        let client = request.remote();
        let received = fpdus_received(rnic)?;
        let hello = match check_request(&request, largest.kind, largest) {
            Ok(hello) => hello,
            Err(error) => {
                turn_away(request, &error);
                continue;
            }
        };
        match serve(rnic, &mut clients, request, &hello, args, interrupted) {
            Err(error) if !error.is::<OutputError>() && fpdus_received(rnic)? == received => {
                interrupted.check()?;
                log::warn!("{} has not begun its test: {error:#}", named(client));
            }
            outcome => return outcome,
        }
    }
}

fn turn_away(request: ConnectionRequest, why: &anyhow::Error) {
    log::warn!("{} is rejected: {why:#}", named(request.remote()));
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
    ensure!(
        hello.kind == kind,
        "this server runs {kind}, not {}; start both sides with the same test",
        hello.kind
    );
    ensure!(
        hello.region_bytes() <= largest.region_bytes(),
        "this server has room for buffers of {} bytes, not {}; start it with the same --size, --depth and --qps",
        largest.test_bytes(),
        hello.test_bytes()
    );
    Ok(hello)
}

/// Serves the test of the client whose first connection is requested.
fn serve(
    rnic: &Rnic,
    clients: &mut Clients<'_>,
    request: ConnectionRequest,
    hello: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut peer = set_up(rnic, hello, interrupted)?;
    peer.connections.must_begin(fpdus_received(rnic)?);
    if hello.server_sends() {
        peer.fill(hello, interrupted)?;
    }
    post_receives(&mut peer, hello)?;
    let remote = request.remote();
    let places = accept_all(&mut peer, clients, request, hello)?;
    report::print_client(remote, hello, peer.connections.qp(ONLY), args)?;
    let records = run_test(&mut peer, hello)?;
    for (which, ([messages, ..], places)) in records.into_iter().zip(places).enumerate() {
        let verdict = check(&peer, hello, which, messages, interrupted)?;
        peer.send_record(which, verdict, places.control)?;
    }
    // The client compares its buffers before it closes.
    let timeout = if hello.verify {
        COMPARE_TIMEOUT
    } else {
        CLOSE_TIMEOUT
    };
    peer.connections.wait_closed(timeout)
}

/// Accepts a client's connections, the first of which is requested, and returns its memory for
/// each. Rejects other clients, which may try again.
fn accept_all(
    peer: &mut Peer<'_>,
    clients: &mut Clients<'_>,
    first: ConnectionRequest,
    hello: &Hello,
) -> anyhow::Result<Vec<Places>> {
    let client = first.remote().ip();
    let mut places = vec![hello.places];
    accept(peer, 0, first, hello)?;
    while places.len() < peer.connections.count() {
        let Some(request) = clients.next_within(TURN)? else {
            bail!(
                "it wants {}, but after {} of them it has not connected another one for {} s",
                hello.connections,
                places.len(),
                TURN.as_secs()
            );
        };
        let further = Hello::from_bytes(request.private_data());
        let of_run = further.ok().filter(|further| further.is_of_run(hello));
        match of_run.filter(|_| request.remote().ip() == client) {
            Some(further) => {
                accept(peer, places.len(), request, hello)?;
                places.push(further.places);
            }
            None => turn_away(
                request,
                &anyhow!("this server is busy with another client; try again"),
            ),
        }
    }
    Ok(places)
}

fn accept(
    peer: &mut Peer<'_>,
    which: usize,
    request: ConnectionRequest,
    hello: &Hello,
) -> anyhow::Result<()> {
    let remote = request.remote();
    let places: Places = peer.places(which, hello.kind.verb == Verb::Read);
    request
        .accept(peer.connections.qp_mut(which), &places.to_bytes())
        .with_context(|| format!("the connection from {remote} was lost"))
}

/// The server's part, until the client's records have arrived.
fn run_test(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<Vec<Record>> {
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::serve_sends(peer, hello),
        (Verb::Send, Style::Latency) => latency::serve_sends(peer, hello),
        (Verb::Write, Style::Latency) => latency::serve_writes(peer, hello),
        (Verb::Write, Style::Bandwidth) | (Verb::Read, _) => peer.receive_records(),
    }
}

/// Posts the buffers for the client's first messages.
fn post_receives(peer: &mut Peer<'_>, hello: &Hello) -> anyhow::Result<()> {
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::post_receives(peer, hello),
        (Verb::Send, Style::Latency) => latency::post_receives(peer, hello),
        (Verb::Write | Verb::Read, _) => {
            (peer.each()).try_for_each(|which| peer.expect_empty(which))
        }
    }
}

/// One side of a test. Zeroing gigabytes takes time, and the kernel would undo everything: our
/// program ends with the process.
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

/// Checks the data received on a connection. Returns the number of bytes, and the position of the
/// first wrong one.
fn check(
    peer: &Peer<'_>,
    hello: &Hello,
    which: usize,
    messages: u64,
    interrupted: &Interrupted,
) -> anyhow::Result<Record> {
    if !hello.verify {
        return Ok([0; 4]);
    }
    let slots = match (hello.kind.verb, hello.kind.style) {
        (Verb::Read, _) => hello.no_slots(which),
        (Verb::Write, Style::Latency) => hello.marked_slot(which),
        (Verb::Write | Verb::Send, _) => hello.full_slots(which, messages),
    };
    let sink = peer.buffers(which).sink.bytes();
    Ok(match data::first_wrong(sink, slots, interrupted)? {
        None => [slots.bytes() as u64, 0, 0, 0],
        Some((slot, at)) => [0, 1, slot as u64, at as u64],
    })
}

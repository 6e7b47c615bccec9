//! The server: waits for one client, plays its part of the test, checks the data, ends.

use std::net::SocketAddr;

use anyhow::Context;
use xwarp::{ConnectionRequest, Rnic};

use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::{Peer, Record};
use super::{MEMORY_LIMIT, PerfArgs, bandwidth, data, latency, report};
use crate::connection::next_client;
use crate::device::any_addresses;
use crate::signals::Interrupted;

pub(crate) fn run(
    device: &str,
    kind: Kind,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    // A client with --verify needs most.
    let largest = args.hello(kind, true)?;
    let rnic = args.open(device, &largest)?;
    let mut listeners = Vec::new();
    for any in any_addresses(device)? {
        listeners.push(rnic.listen(SocketAddr::new(any, args.port))?);
    }
    report::print_listening(&rnic, kind, &listeners, args);
    let (request, hello) = loop {
        let request = next_client(&mut listeners, interrupted)?;
        match check_request(&request, kind, &largest) {
            Ok(hello) => break (request, hello),
            Err(error) => {
                log::warn!("{} is turned away: {error:#}", request.remote());
                request.reject(error.to_string().as_bytes())?;
            }
        }
    };
    serve(&rnic, request, &hello, args, interrupted)
}

fn check_request(
    request: &ConnectionRequest,
    kind: Kind,
    largest: &Hello,
) -> anyhow::Result<Hello> {
    let hello = Hello::from_octets(request.private_data())?;
    anyhow::ensure!(
        hello.kind == kind,
        "this server runs {kind}, not {}; start both sides with the same test",
        hello.kind
    );
    anyhow::ensure!(
        hello.region_octets() <= largest.region_octets()
            || hello.buffer_octets() as u64 > MEMORY_LIMIT,
        "this server has room for buffers of {} octets, not {}; start it with the same --size and --depth",
        largest.buffer_octets(),
        hello.buffer_octets()
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
    let mut peer = Peer::new(rnic, hello, interrupted)?;
    data::fill(
        peer.source.bytes(),
        hello.size as usize,
        hello.slots as usize,
    )?;
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::post_receives(&mut peer, hello)?,
        (Verb::Send, Style::Latency) => latency::post_receives(&mut peer, hello)?,
        (Verb::Write | Verb::Read, _) => peer.expect_empty()?,
    }
    let remote = request.remote();
    let places: Places = peer.places(hello.kind.verb == Verb::Read);
    request
        .accept(&mut peer.connection.qp, &places.to_octets())
        .with_context(|| format!("the connection from {remote} was lost"))?;
    report::print_client(remote, &peer.connection.qp, args);
    let [messages, ..] = match (hello.kind.verb, hello.kind.style) {
        (Verb::Send, Style::Bandwidth) => bandwidth::serve_sends(&mut peer, hello)?,
        (Verb::Send, Style::Latency) => latency::serve_sends(&mut peer, hello)?,
        (Verb::Write, Style::Latency) => latency::serve_writes(&mut peer, hello)?,
        (Verb::Write, Style::Bandwidth) | (Verb::Read, _) => peer.receive_record()?,
    };
    let verdict = check(&peer, hello, messages)?;
    peer.send_record(verdict, hello.places.control)?;
    peer.connection.wait_closed()
}

/// Whether this side holds what was sent to it: octets checked, and where the first wrong one is.
fn check(peer: &Peer<'_>, hello: &Hello, messages: u64) -> anyhow::Result<Record> {
    if !hello.verify {
        return Ok([0; 4]);
    }
    let (size, slots) = match (hello.kind.verb, hello.kind.style) {
        (Verb::Read, _) => (0, 0),
        (Verb::Write, Style::Latency) => hello.marked_slot(),
        (Verb::Write | Verb::Send, _) => hello.full_slots(messages),
    };
    Ok(match data::first_wrong(peer.sink.bytes(), size, slots)? {
        None => [(size * slots) as u64, 0, 0, 0],
        Some((slot, at)) => [0, 1, slot as u64, at as u64],
    })
}

//! Client: connects, runs the test, asks the server whether the data is right, and prints.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use xwarp::error::ConnectError;
use xwarp::{RemoteAddress, Rnic};

use super::data::Slots;
use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::Peer;
use super::report::{self, Measured};
use super::{COMPARE_TIMEOUT, Extent, GRACE, PerfArgs, bandwidth, data, latency};
use crate::connection::{Connections, ONLY};
use crate::peer_text;
use crate::signals::Interrupted;

/// Maximum number of characters shown of a server's refusal.
const REFUSAL_SHOWN: usize = 200;

pub(crate) fn run(
    rnic: &Rnic,
    server: SocketAddr,
    hello: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut peer = set_up(rnic, hello, interrupted)?;
    let remotes: Vec<Places> = (peer.each())
        .map(|which| connect(&mut peer, which, server, hello))
        .collect::<Result<_, _>>()?;
    report::print_setup(rnic, hello, peer.connections.qp(ONLY), args)?;
    limit_time(&mut peer.connections, args.extent());
    let setup = report::setup_json(rnic, peer.connections.qp(ONLY), args);
    let before = rnic.counters()?.tcp.retransmissions;
    let measured = measure(&mut peer, hello, &remotes, args.extent())?;
    let retransmitted = rnic.counters()?.tcp.retransmissions - before;
    let verified = finish(&mut peer, hello, &measured, &remotes, interrupted)?;
    peer.connections.close()?;
    if args.json {
        return report::print_json(hello, &setup, &measured, verified, retransmitted);
    }
    Ok(report::print_result(
        hello,
        &measured,
        verified,
        retransmitted,
    )?)
}

/// One side of the test, not yet connected.
fn set_up<'a>(
    rnic: &'a Rnic,
    hello: &Hello,
    interrupted: &'a Interrupted,
) -> anyhow::Result<Peer<'a>> {
    // Zeroing gigabytes takes time, and no frames are steered yet.
    let mut peer = interrupted.at_once_during(|| Peer::new(rnic, hello, interrupted))??;
    if hello.client_sends() {
        peer.fill(hello, interrupted)?;
    }
    if hello.kind == SEND_LATENCY {
        latency::post_receives(&mut peer, hello)?;
    } else {
        for which in peer.each() {
            (0..bandwidth::CREDIT_RECEIVES).try_for_each(|_| peer.expect_empty(which))?;
        }
    }
    Ok(peer)
}

/// Runs the test.
fn measure(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remotes: &[Places],
    extent: Extent,
) -> anyhow::Result<Measured> {
    let buffers: Vec<RemoteAddress> = remotes.iter().map(|places| places.buffer).collect();
    Ok(match hello.kind.style {
        Style::Bandwidth => Measured::Bandwidth(bandwidth::run(peer, hello, &buffers, extent)?),
        Style::Latency => {
            Measured::Latency(latency::run_client(peer, hello, buffers[ONLY], extent)?)
        }
    })
}

/// Ends a run of limited duration.
fn limit_time(connections: &mut Connections<'_>, extent: Extent) {
    let Extent::Time(time) = extent else { return };
    let Some(end) = Instant::now().checked_add(time.saturating_add(GRACE)) else {
        return;
    };
    let otherwise = format!(
        "--duration is over by {} s, and the server has not answered all that was sent; use a smaller --depth or --size if it is only slow",
        GRACE.as_secs()
    );
    connections.end_by(end, otherwise);
}

const SEND_LATENCY: Kind = Kind {
    verb: Verb::Send,
    style: Style::Latency,
};

/// Connects one connection to the server, and returns the server's memory for it.
fn connect(
    peer: &mut Peer<'_>,
    which: usize,
    server: SocketAddr,
    hello: &Hello,
) -> anyhow::Result<Places> {
    let hello = Hello {
        places: peer.places(which, false),
        ..hello.clone()
    };
    let answer = (peer.connections).connect(which, server, &hello.to_bytes());
    let answer = answer.map_err(|error| match error.downcast() {
        Ok(ConnectError::Rejected { private_data, .. }) => {
            let said = peer_text::shown(&private_data, REFUSAL_SHOWN);
            anyhow!("{server} refused the test: {said}")
        }
        Ok(error) => error.into(),
        Err(error) => error,
    })?;
    Places::from_answer(&answer, &hello)
        .with_context(|| format!("the listener at {server} is no xwarp perf server"))
}

/// Reports the end of the test to the server on each connection, and learns whether both sides hold
/// the right data. `None` if that was not requested.
fn finish(
    peer: &mut Peer<'_>,
    hello: &Hello,
    measured: &Measured,
    remotes: &[Places],
    interrupted: &Interrupted,
) -> anyhow::Result<Option<u64>> {
    if hello.verify {
        let otherwise = "the server does not report whether it has the data sent".to_owned();
        peer.connections.set_silence_timeout(COMPARE_TIMEOUT);
        peer.connections
            .end_by(Instant::now() + COMPARE_TIMEOUT, otherwise);
    }
    for (which, places) in remotes.iter().enumerate() {
        let record = [measured.messages_of(which), 0, 0, 0];
        peer.send_record(which, record, places.control)?;
    }
    let verdicts = peer.receive_records()?;
    if !hello.verify {
        return Ok(None);
    }
    let mut checked_on_both = 0;
    for (which, [checked, wrong, slot, at]) in verdicts.into_iter().enumerate() {
        ensure!(
            wrong == 0,
            "DATA MISMATCH at the server: byte {at} of buffer {slot} of connection {which} is not what was sent"
        );
        let received = received_by_client(hello, which, measured.messages_of(which));
        checked_on_both += checked + check_sink(peer, received, interrupted)?;
    }
    Ok(Some(checked_on_both))
}

/// Checks the data that this side received. Returns the number of bytes.
fn check_sink(peer: &Peer<'_>, slots: Slots, interrupted: &Interrupted) -> anyhow::Result<u64> {
    let which = slots.connection;
    let sink = peer.buffers(which).sink.bytes();
    if let Some((slot, at)) = data::first_wrong(sink, slots, interrupted)? {
        bail!(
            "DATA MISMATCH at the client: byte {at} of buffer {slot} of connection {which} is not what was sent"
        );
    }
    Ok(slots.bytes() as u64)
}

/// Buffers of a connection that must be full at the client.
fn received_by_client(hello: &Hello, which: usize, messages: u64) -> Slots {
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Write | Verb::Send, Style::Bandwidth) => hello.no_slots(which),
        (Verb::Read, _) | (Verb::Send, Style::Latency) => hello.full_slots(which, messages),
        (Verb::Write, Style::Latency) => hello.marked_slot(which),
    }
}

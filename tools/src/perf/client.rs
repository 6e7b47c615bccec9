//! The client: connects, has the test run, asks the server whether the data is right, prints.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use xwarp::Rnic;
use xwarp::error::ConnectError;

use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::Peer;
use super::report::{self, Measured};
use super::{COMPARE_TIMEOUT, Extent, GRACE, PerfArgs, bandwidth, data, latency};
use crate::connection::Connection;
use crate::peer_text;
use crate::signals::Interrupted;

/// Characters of a server's refusal that are shown.
const REFUSAL_SHOWN: usize = 200;

pub(crate) fn run(
    rnic: &Rnic,
    server: SocketAddr,
    hello: &Hello,
    args: &PerfArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let (mut peer, hello) = set_up(rnic, hello, interrupted)?;
    let remote = connect(&mut peer, server, &hello)?;
    report::print_setup(rnic, &hello, &peer.connection.qp, args)?;
    limit_time(&mut peer.connection, args.extent());
    let setup = report::setup_json(rnic, &peer.connection.qp, args);
    let before = rnic.counters()?.tcp.retransmissions;
    let measured = measure(&mut peer, &hello, remote, args.extent())?;
    let retransmitted = rnic.counters()?.tcp.retransmissions - before;
    let verified = finish(&mut peer, &hello, measured.messages(), remote, interrupted)?;
    peer.connection.close()?;
    if args.json {
        return report::print_json(&hello, &setup, &measured, verified, retransmitted);
    }
    Ok(report::print_result(
        &hello,
        &measured,
        verified,
        retransmitted,
    )?)
}

/// One end for the test, not yet connected, and what the server is told of it.
fn set_up<'a>(
    rnic: &'a Rnic,
    hello: &Hello,
    interrupted: &'a Interrupted,
) -> anyhow::Result<(Peer<'a>, Hello)> {
    // Zeroing gigabytes takes its time, and nothing is steered yet.
    let mut peer = interrupted.at_once_during(|| Peer::new(rnic, hello, interrupted))??;
    if hello.client_sends() {
        peer.fill(hello, interrupted)?;
    }
    if hello.kind == SEND_LATENCY {
        latency::post_receives(&mut peer, hello)?;
    } else {
        (0..bandwidth::CREDIT_RECEIVES).try_for_each(|_| peer.expect_empty())?;
    }
    let hello = Hello {
        places: peer.places(false),
        ..hello.clone()
    };
    Ok((peer, hello))
}

/// The test itself.
fn measure(
    peer: &mut Peer<'_>,
    hello: &Hello,
    remote: Places,
    extent: Extent,
) -> anyhow::Result<Measured> {
    let buffer = remote.buffer;
    Ok(match hello.kind.style {
        Style::Bandwidth => Measured::Bandwidth(bandwidth::run(peer, hello, buffer, extent)?),
        Style::Latency => Measured::Latency(latency::run_client(peer, hello, buffer, extent)?),
    })
}

/// Has a run of a certain time end with it.
fn limit_time(connection: &mut Connection<'_>, extent: Extent) {
    let Extent::Time(time) = extent else { return };
    let Some(end) = Instant::now().checked_add(time.saturating_add(GRACE)) else {
        return;
    };
    let otherwise = format!(
        "--duration is over by {} s, and the server has not answered all that was sent; use a smaller --depth or --size if it is only slow",
        GRACE.as_secs()
    );
    connection.end_by(end, otherwise);
}

const SEND_LATENCY: Kind = Kind {
    verb: Verb::Send,
    style: Style::Latency,
};

fn connect(peer: &mut Peer<'_>, server: SocketAddr, hello: &Hello) -> anyhow::Result<Places> {
    let answer = peer.connection.connect(server, &hello.to_bytes());
    let answer = answer.map_err(|error| match error.downcast() {
        Ok(ConnectError::Rejected { private_data, .. }) => {
            let said = peer_text::shown(&private_data, REFUSAL_SHOWN);
            anyhow!("{server} refused the test: {said}")
        }
        Ok(error) => error.into(),
        Err(error) => error,
    })?;
    Places::from_answer(&answer, hello)
        .with_context(|| format!("what listens at {server} is no xwarp perf server"))
}

/// Tells the server that the test is over and learns whether both sides hold what was sent. `None` if that was not asked for.
fn finish(
    peer: &mut Peer<'_>,
    hello: &Hello,
    messages: u64,
    remote: Places,
    interrupted: &Interrupted,
) -> anyhow::Result<Option<u64>> {
    if hello.verify {
        let otherwise = "the server does not say whether it has what was sent".to_owned();
        peer.connection.set_silence_timeout(COMPARE_TIMEOUT);
        peer.connection
            .end_by(Instant::now() + COMPARE_TIMEOUT, otherwise);
    }
    peer.send_record([messages, 0, 0, 0], remote.control)?;
    let [checked, wrong, slot, at] = peer.receive_record()?;
    if !hello.verify {
        return Ok(None);
    }
    ensure!(
        wrong == 0,
        "DATA MISMATCH at the server: byte {at} of buffer {slot} is not what was sent"
    );
    let checked_here = check_sink(peer, hello, messages, interrupted)?;
    Ok(Some(checked + checked_here))
}

/// Checks what this side received; how many bytes that were.
fn check_sink(
    peer: &Peer<'_>,
    hello: &Hello,
    messages: u64,
    interrupted: &Interrupted,
) -> anyhow::Result<u64> {
    let (size, slots) = received_by_client(hello, messages);
    let wrong = data::first_wrong(peer.sink.bytes(), size, slots, interrupted)?;
    if let Some((slot, at)) = wrong {
        anyhow::bail!(
            "DATA MISMATCH at the client: byte {at} of buffer {slot} is not what was sent"
        );
    }
    Ok((size * slots) as u64)
}

/// Size and number of the buffers that must be full at the client.
fn received_by_client(hello: &Hello, messages: u64) -> (usize, usize) {
    match (hello.kind.verb, hello.kind.style) {
        (Verb::Write | Verb::Send, Style::Bandwidth) => (0, 0),
        (Verb::Read, _) | (Verb::Send, Style::Latency) => hello.full_slots(messages),
        (Verb::Write, Style::Latency) => hello.marked_slot(),
    }
}

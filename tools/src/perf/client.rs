//! The client: connects, has the test run, asks the server whether the data is right, prints.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use xwarp::{ConnectError, Rnic};

use super::hello::{Hello, Kind, Places, Style, Verb};
use super::peer::Peer;
use super::report::{self, Measured};
use super::{PerfArgs, bandwidth, data, latency};
use crate::signals::Interrupted;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run(
    rnic: &Rnic,
    server: SocketAddr,
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
    if hello.kind == SEND_LATENCY {
        latency::post_receives(&mut peer, hello)?;
    } else {
        (0..bandwidth::CREDIT_RECEIVES).try_for_each(|_| peer.expect_empty())?;
    }
    let hello = Hello {
        places: peer.places(false),
        ..hello.clone()
    };
    let remote = connect(&mut peer, server, &hello)?;
    report::print_setup(rnic, &hello, &peer.connection.qp, args);
    let setup = report::setup_json(rnic, &peer.connection.qp, args);
    let before = rnic.counters()?.tcp.retransmissions;
    let measured = match hello.kind.style {
        Style::Bandwidth => Measured::Bandwidth(bandwidth::run(
            &mut peer,
            &hello,
            remote.buffer,
            args.extent(),
        )?),
        Style::Latency => Measured::Latency(latency::run_client(
            &mut peer,
            &hello,
            remote.buffer,
            args.extent(),
        )?),
    };
    let retransmitted = rnic.counters()?.tcp.retransmissions - before;
    let verified = finish(&mut peer, &hello, measured.messages(), remote)?;
    peer.connection.close()?;
    if args.json {
        return report::print_json(&hello, &setup, &measured, verified, retransmitted);
    }
    report::print_result(&hello, &measured, verified, retransmitted);
    Ok(())
}

const SEND_LATENCY: Kind = Kind {
    verb: Verb::Send,
    style: Style::Latency,
};

fn connect(peer: &mut Peer<'_>, server: SocketAddr, hello: &Hello) -> anyhow::Result<Places> {
    let answer = match peer
        .connection
        .qp
        .connect(server, &hello.to_octets(), CONNECT_LIMIT)
    {
        Ok(answer) => answer,
        Err(ConnectError::Rejected { private_data, .. }) => {
            anyhow::bail!(
                "{server} refused the test: {}",
                String::from_utf8_lossy(&private_data)
            )
        }
        Err(error) => return Err(error.into()),
    };
    Places::from_octets(&answer)
        .with_context(|| format!("what listens at {server} is no xwarp perf server"))
}

/// Tells the server that the test is over and learns whether both sides hold what was sent. `None` if that was not asked for.
fn finish(
    peer: &mut Peer<'_>,
    hello: &Hello,
    messages: u64,
    remote: Places,
) -> anyhow::Result<Option<u64>> {
    peer.send_record([messages, 0, 0, 0], remote.control)?;
    let [checked, wrong, slot, at] = peer.receive_record()?;
    if !hello.verify {
        return Ok(None);
    }
    ensure!(
        wrong == 0,
        "DATA MISMATCH at the server: octet {at} of buffer {slot} is not what was sent"
    );
    let checked_here = check_sink(peer, hello, messages)?;
    Ok(Some(checked + checked_here))
}

/// Checks what this side received; how many octets that were.
fn check_sink(peer: &Peer<'_>, hello: &Hello, messages: u64) -> anyhow::Result<u64> {
    let (size, slots) = received_by_client(hello, messages);
    let wrong = data::first_wrong(peer.sink.bytes(), size, slots)?;
    if let Some((slot, at)) = wrong {
        anyhow::bail!(
            "DATA MISMATCH at the client: octet {at} of buffer {slot} is not what was sent"
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

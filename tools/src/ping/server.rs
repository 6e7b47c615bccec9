//! The server: reads each message and writes it back.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use xwarp::{ConnectionRequest, Opcode, QpState, Rnic, SendRequest, WrId};

use super::ends::End;
use super::place::Place;
use super::{LARGEST, PingArgs, text};
use crate::connection::next_client;
use crate::device::any_addresses;
use crate::signals::Interrupted;

const READ: WrId = WrId(3);
const WRITE: WrId = WrId(4);

pub(crate) fn run(
    rnic: &Rnic,
    device: &str,
    args: &PingArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut listeners = Vec::new();
    for any in any_addresses(device)? {
        listeners.push(rnic.listen(SocketAddr::new(any, args.port))?);
    }
    let addresses: Vec<String> = (listeners.iter())
        .flat_map(|listener| listener.addresses().iter().map(ToString::to_string))
        .collect();
    println!("ping server  {rnic}");
    println!("waiting for a client at {}", addresses.join(", "));
    loop {
        let request = next_client(&mut listeners, interrupted)?;
        let client = request.remote();
        let outcome = serve(rnic, request, args, interrupted);
        interrupted.check()?;
        if !args.persistent {
            return outcome;
        }
        if let Err(error) = outcome {
            log::warn!("{client}: {error:#}");
        }
    }
}

fn serve(
    rnic: &Rnic,
    request: ConnectionRequest,
    args: &PingArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let client = request.remote();
    let mut end = End::new(rnic, interrupted)?;
    request
        .accept(&mut end.connection.qp, &[])
        .with_context(|| format!("the connection from {client} was lost"))?;
    let mut pings = 0_u64;
    while let Some(source) = next_message(&mut end)? {
        let message =
            echo(&mut end, source).with_context(|| format!("ping {pings} of {client} failed"))?;
        if !args.quiet {
            println!("{client}  {message}");
        }
        pings += 1;
    }
    end.connection.wait_closed()?;
    println!("{client}: {pings} pings");
    ensure!(pings > 0, "{client} connected, and closed without a ping");
    Ok(())
}

/// Where the client's next message is; `None` when it has closed in order.
fn next_message(end: &mut End<'_>) -> anyhow::Result<Option<Place>> {
    match end.receive() {
        Ok(place) => Ok(Some(place)),
        Err(_) if matches!(end.connection.qp.state(), QpState::Closing | QpState::Idle) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a message and writes it back up to its zero octet; returns its text as it may be shown.
fn echo(end: &mut End<'_>, source: Place) -> anyhow::Result<String> {
    ensure!(
        source.len <= LARGEST,
        "the client's message has {} octets; at most {LARGEST} are possible",
        source.len
    );
    let sink = end.data.local(0, source.len);
    end.carry_out(SendRequest::read(READ, sink, source.address), Opcode::Read)?;
    let mut octets = vec![0; source.len as usize];
    end.data.bytes().read(0, &mut octets)?;
    let text_len = octets.iter().position(|&octet| octet == 0);
    let text_len = text_len.unwrap_or(octets.len());
    end.send(source)?;
    let target = end.receive()?;
    let len = u32::try_from(text_len)? + 1;
    ensure!(
        len <= target.len.min(source.len),
        "the client's message of {len} octets, with the zero octet that ends it, does not fit into its buffer of {}",
        target.len
    );
    let written = end.data.local(0, len);
    end.carry_out(
        SendRequest::write(WRITE, written, target.address),
        Opcode::Write,
    )?;
    end.send(target)?;
    Ok(text::shown(&octets[..text_len]))
}

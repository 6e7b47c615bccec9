//! Server: reads each message and writes it back.
//!
//! Clients are served one after the other. A client that is silent for 3 s gives way if another one
//! waits.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use xwarp::cm::ConnectionRequest;
use xwarp::{Opcode, QpState, Rnic, SendRequest, WrId};

use super::ends::End;
use super::place::Place;
use super::{LARGEST, PingArgs};
use crate::connection::{CLOSE_TIMEOUT, Clients, ONLY, TURN};
use crate::device::Device;
use crate::host::named;
use crate::output::{OutputError, print_line};
use crate::peer_text;
use crate::signals::Interrupted;

const READ: WrId = WrId(3);
const WRITE: WrId = WrId(4);
/// Maximum number of characters shown of a message.
const SHOWN: usize = 60;

pub(crate) fn run(
    rnic: &Rnic,
    device: &Device,
    args: &PingArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut clients = Clients::listen(rnic, device, args.port, interrupted)?;
    print_line!("ping server  {rnic}")?;
    print_line!("waiting for a client at {}", clients.addresses())?;
    loop {
        let request = clients.next()?;
        let mut service = Service {
            client: request.remote(),
            pings: 0,
            clients: &mut clients,
            args,
        };
        let outcome = service.serve(rnic, request, interrupted);
        let Service { client, pings, .. } = service;
        interrupted.check()?;
        match outcome {
            Err(error) if error.is::<OutputError>() => return Err(error),
            // A client that has not pinged does not count.
            outcome if pings > 0 && !args.persistent => return outcome,
            Err(error) => log::warn!("{}: {error:#}", named(client)),
            Ok(()) => {}
        }
    }
}

/// Service of one client.
struct Service<'a, 'b> {
    client: SocketAddr,
    pings: u64,
    clients: &'a mut Clients<'b>,
    args: &'a PingArgs,
}

impl Service<'_, '_> {
    fn serve(
        &mut self,
        rnic: &Rnic,
        request: ConnectionRequest,
        interrupted: &Interrupted,
    ) -> anyhow::Result<()> {
        let client = self.client;
        let mut end = End::new(rnic, interrupted)?;
        request
            .accept(end.connections.qp_mut(ONLY), &[])
            .with_context(|| format!("the connection from {client} was lost"))?;
        while let Some(source) = self.next_message(&mut end)? {
            let message = echo(&mut end, source)
                .with_context(|| format!("ping {} of {client} failed", self.pings))?;
            self.pings += 1;
            if !self.args.quiet {
                print_line!("{}  {message}", named(client))?;
            }
        }
        end.connections.wait_closed(CLOSE_TIMEOUT)?;
        ensure!(self.pings > 0, "connected, and closed without a ping");
        Ok(print_line!("{}: {} pings", named(client), self.pings)?)
    }

    /// Place of the client's next message; `None` after an orderly close.
    fn next_message(&mut self, end: &mut End<'_>) -> anyhow::Result<Option<Place>> {
        let message = end.receive_while(|silent| {
            ensure!(
                silent < TURN || !self.clients.are_waiting()?,
                "silent for {} s, while another client waits",
                TURN.as_secs()
            );
            Ok(())
        });
        match message {
            Ok(place) => Ok(Some(place)),
            Err(_)
                if matches!(
                    end.connections.qp(ONLY).state(),
                    QpState::Closing | QpState::Idle
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Reads a message and writes it back up to its zero byte. Returns its text, safe to print.
fn echo(end: &mut End<'_>, source: Place) -> anyhow::Result<String> {
    ensure!(
        source.len <= LARGEST,
        "the client's message has {} bytes; at most {LARGEST} are possible",
        source.len
    );
    let sink = end.data.local(0, source.len);
    end.carry_out(SendRequest::read(READ, sink, source.address), Opcode::Read)?;
    let mut bytes = vec![0; source.len as usize];
    end.data.bytes().read(0, &mut bytes)?;
    let text_len = bytes.iter().position(|&byte| byte == 0);
    let text_len = text_len.unwrap_or(bytes.len());
    end.send(source)?;
    let target = end.receive()?;
    let len = u32::try_from(text_len)? + 1;
    ensure!(
        len <= target.len.min(source.len),
        "the client's message of {len} bytes, with the zero byte that ends it, does not fit into its buffer of {}",
        target.len
    );
    let written = end.data.local(0, len);
    end.carry_out(
        SendRequest::write(WRITE, written, target.address),
        Opcode::Write,
    )?;
    end.send(target)?;
    Ok(peer_text::shown(&bytes[..text_len], SHOWN))
}

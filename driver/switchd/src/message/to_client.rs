//! Messages of the switch to a client.

use std::net::SocketAddr;
use std::num::NonZero;

use super::fields::{Body, Entry, Field};
use super::{Header, Malformed, VERSION, kind};
use crate::counters::Counters;
use crate::request::{Refusal, Reply};
use crate::state::{ClientState, SwitchState};
use crate::station::MacAddress;

/// A message of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// The reply to [`ToSwitch::Hello`](super::ToSwitch::Hello). The descriptor beside it: the
    /// switch's file `down`.
    Welcome {
        /// Id of the request. Not 0.
        id: u32,
        /// What the client is to this switch.
        welcome: Welcome,
    },
    /// The reply to a request.
    Reply {
        /// Id of the request. Not 0.
        id: u32,
        /// What was asked.
        reply: Reply,
    },
    /// The reply to a request that the switch refuses.
    Refused {
        /// Id of the request. Not 0.
        id: u32,
        /// Why.
        refusal: Refusal,
    },
    /// News that no request asked for.
    Event(Event),
}

/// What a client is to the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version of the protocol from now on: [`VERSION`].
    pub version: u16,
    /// The switch's generation, which no other switch of this name has.
    pub generation: u64,
    /// The client's Ethernet address.
    pub mac: MacAddress,
    /// Largest IP packet towards other clients, in bytes.
    pub mtu: u32,
    /// Name of the switch's interface. The message carries whole characters of it, of at most
    /// [`NAME_MAX`](super::NAME_MAX) bytes.
    pub name: String,
    /// Which of the ports of [`Before`](super::Before) are the client's again. At most
    /// [`LIST_MAX`](super::LIST_MAX), as there.
    pub kept: Vec<SocketAddr>,
}

/// News about another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client and another one may exchange frames by a pair of rings. Descriptors beside it:
    /// the pair's file, and the other client's `up`, `flags` and bell.
    Peer {
        /// Ethernet address of the other client.
        mac: MacAddress,
        /// Whether this client has the first of the pair's rings to send by.
        first: bool,
    },
    /// The other client of a pair has ended.
    Gone {
        /// Its Ethernet address.
        mac: MacAddress,
    },
}

impl ToClient {
    /// Bytes of the message, at most [`MESSAGE_MAX`](super::MESSAGE_MAX). A message whose fields
    /// are not as they are described is one that [`decode`](Self::decode) refuses. A list of more
    /// than [`LIST_MAX`](super::LIST_MAX) addresses is cut.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, id, status) = match self {
            Self::Welcome { id, .. } => (kind::HELLO, *id, 0),
            Self::Reply { id, reply } => (kind_of(reply), *id, 0),
            Self::Refused { id, refusal } => (kind::REFUSED, *id, status_of(refusal)),
            Self::Event(Event::Peer { .. }) => (kind::PEER, 0, 0),
            Self::Event(Event::Gone { .. }) => (kind::GONE, 0, 0),
        };
        let header = Header { kind, id, status };
        header.with_body(|body| match self {
            Self::Welcome { welcome, .. } => welcome.write(body),
            Self::Reply { reply, .. } => write_reply(reply, body),
            Self::Refused { refusal, .. } => write_refusal(*refusal, body),
            Self::Event(Event::Peer { mac, first }) => {
                mac.write(body);
                first.write(body);
            }
            Self::Event(Event::Gone { mac }) => mac.write(body),
        })
    }

    /// The message of a datagram.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: why the bytes are no message of the switch.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, mut body) = Header::split(bytes)?;
        let message = if header.kind == kind::REFUSED {
            Self::Refused {
                id: header.request()?,
                refusal: read_refusal(header.status, &mut body)?,
            }
        } else {
            header.succeeds()?;
            read_success(header, &mut body)?
        };
        body.end()?;
        Ok(message)
    }
}

/// Any message but a refusal.
fn read_success(header: Header, body: &mut Body<'_>) -> Result<ToClient, Malformed> {
    Ok(match header.kind {
        kind::PEER => {
            header.without_request()?;
            let (mac, first) = (body.read()?, body.read()?);
            ToClient::Event(Event::Peer { mac, first })
        }
        kind::GONE => {
            header.without_request()?;
            let mac = body.read()?;
            ToClient::Event(Event::Gone { mac })
        }
        kind::HELLO => ToClient::Welcome {
            id: header.request()?,
            welcome: body.read()?,
        },
        kind => ToClient::Reply {
            reply: read_reply(kind, body)?,
            id: header.request()?,
        },
    })
}

fn kind_of(reply: &Reply) -> u16 {
    match reply {
        Reply::Addresses(_) => kind::ADDRESSES,
        Reply::Source(_) => kind::SOURCE,
        Reply::Hop(_) => kind::HOP,
        Reply::Port(_) => kind::PORT,
        Reply::Closed => kind::CLOSE,
        Reply::Clients(_) => kind::CLIENTS,
    }
}

fn write_reply(reply: &Reply, body: &mut Vec<u8>) {
    match reply {
        Reply::Addresses(addresses) => addresses.write(body),
        Reply::Source(address) => address.write(body),
        Reply::Hop(mac) => mac.write(body),
        Reply::Port(at) => at.write(body),
        Reply::Closed => {}
        Reply::Clients(state) => state.write(body),
    }
}

fn read_reply(kind: u16, body: &mut Body<'_>) -> Result<Reply, Malformed> {
    Ok(match kind {
        kind::ADDRESSES => Reply::Addresses(body.read()?),
        kind::SOURCE => Reply::Source(body.read()?),
        kind::HOP => Reply::Hop(body.read()?),
        kind::PORT => Reply::Port(body.read()?),
        kind::CLOSE => Reply::Closed,
        kind::CLIENTS => Reply::Clients(body.read()?),
        kind => return Err(Malformed::Kind(kind)),
    })
}

/// Status of each refusal.
mod status {
    pub(super) const NOT_HERE: i32 = -1;
    pub(super) const IN_USE: i32 = -2;
    pub(super) const NONE_FREE: i32 = -3;
    pub(super) const NOT_PERMITTED: i32 = -4;
    pub(super) const NOT_OPEN: i32 = -5;
    pub(super) const TOO_MANY_PORTS: i32 = -6;
    pub(super) const TOO_MANY_CLIENTS: i32 = -7;
    pub(super) const FULL: i32 = -8;
    pub(super) const DETACHED: i32 = -9;
    pub(super) const VERSION: i32 = -10;
    pub(super) const TOO_FAST: i32 = -11;
}

fn status_of(refusal: &Refusal) -> i32 {
    match refusal {
        Refusal::NotHere(_) => status::NOT_HERE,
        Refusal::InUse(_) => status::IN_USE,
        Refusal::NoneFree(_) => status::NONE_FREE,
        Refusal::NotPermitted(_) => status::NOT_PERMITTED,
        Refusal::NotOpen(_) => status::NOT_OPEN,
        Refusal::TooManyPorts(_) => status::TOO_MANY_PORTS,
        Refusal::TooManyClients(_) => status::TOO_MANY_CLIENTS,
        Refusal::Full(_) => status::FULL,
        Refusal::Detached => status::DETACHED,
        Refusal::Version { .. } => status::VERSION,
        Refusal::TooFast(_) => status::TOO_FAST,
    }
}

fn write_refusal(refusal: Refusal, body: &mut Vec<u8>) {
    match refusal {
        Refusal::NotHere(address) | Refusal::NoneFree(address) => address.write(body),
        Refusal::InUse(at) | Refusal::NotOpen(at) => at.write(body),
        Refusal::NotPermitted(port) => port.write(body),
        Refusal::TooManyPorts(limit) | Refusal::TooManyClients(limit) | Refusal::Full(limit) => {
            limit.write(body);
        }
        Refusal::Detached => {}
        Refusal::Version {
            lowest,
            highest,
            speaks,
        } => {
            lowest.write(body);
            highest.write(body);
            speaks.write(body);
        }
        Refusal::TooFast(limit) => limit.write(body),
    }
}

fn read_refusal(status: i32, body: &mut Body<'_>) -> Result<Refusal, Malformed> {
    Ok(match status {
        status::NOT_HERE => Refusal::NotHere(body.read()?),
        status::IN_USE => Refusal::InUse(body.read()?),
        status::NONE_FREE => Refusal::NoneFree(body.read()?),
        status::NOT_PERMITTED => Refusal::NotPermitted(body.read()?),
        status::NOT_OPEN => Refusal::NotOpen(body.read()?),
        status::TOO_MANY_PORTS => Refusal::TooManyPorts(body.read()?),
        status::TOO_MANY_CLIENTS => Refusal::TooManyClients(body.read()?),
        status::FULL => Refusal::Full(body.read()?),
        status::DETACHED => Refusal::Detached,
        status::VERSION => Refusal::Version {
            lowest: body.read()?,
            highest: body.read()?,
            speaks: body.read()?,
        },
        status::TOO_FAST => Refusal::TooFast(body.read()?),
        status => {
            let kind = kind::REFUSED;
            return Err(Malformed::Status { kind, status });
        }
    })
}

impl Field for Welcome {
    fn write(&self, body: &mut Vec<u8>) {
        self.version.write(body);
        self.generation.write(body);
        self.mac.write(body);
        self.mtu.write(body);
        self.name.write(body);
        self.kept.write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let version = body.read()?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        Ok(Self {
            version,
            generation: body.read()?,
            mac: body.read()?,
            mtu: body.read()?,
            name: body.read()?,
            kept: body.read()?,
        })
    }
}

/// Each in the order of [`Counters::NAMES`].
impl Field for Counters {
    fn write(&self, body: &mut Vec<u8>) {
        for value in self.values() {
            value.write(body);
        }
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let mut values = [0; Self::NAMES.len()];
        for value in &mut values {
            *value = body.read()?;
        }
        Ok(values.into())
    }
}

impl Field for SwitchState {
    fn write(&self, body: &mut Vec<u8>) {
        self.generation.write(body);
        self.counters.write(body);
        self.may_pair.write(body);
        self.count.write(body);
        self.clients.write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            generation: body.read()?,
            counters: body.read()?,
            may_pair: body.read()?,
            count: body.read()?,
            clients: body.read()?,
        })
    }
}

/// Process 0 stands for one that is not shown.
impl Field for ClientState {
    fn write(&self, body: &mut Vec<u8>) {
        self.uid.write(body);
        self.process.map_or(0, NonZero::get).write(body);
        self.ports.write(body);
        self.peers.write(body);
        self.may_pair.write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            uid: body.read()?,
            process: NonZero::new(body.read()?),
            ports: body.read()?,
            peers: body.read()?,
            may_pair: body.read()?,
        })
    }
}

impl Entry for ClientState {
    const SIZE: usize = 4 * 4 + 1;
}

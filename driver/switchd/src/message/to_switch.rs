//! Messages of a client to the switch.

use std::net::SocketAddr;

use super::fields::{Body, Field};
use super::{Header, Malformed, VERSION, kind};
use crate::request::{Refusal, Request};
use crate::station::MacAddress;

/// A message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToSwitch {
    /// The first message. Descriptors beside it: the client's file `up`, and its bell.
    Hello {
        /// The client's number of the request, which the reply carries. Not 0.
        id: u32,
        /// Versions that the client speaks, and what it was before.
        hello: Hello,
    },
    /// A request.
    Request {
        /// The client's number of the request, which the reply carries. Not 0.
        id: u32,
        /// What it asks.
        request: Request,
    },
    /// Wakes a switch that sleeps. It has no id, no body and no reply.
    Ring,
}

/// How a client introduces itself. The message has the same bytes in every version of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The lowest version of the protocol that the client speaks, at most `highest`.
    pub lowest: u16,
    /// The highest version of the protocol that the client speaks.
    pub highest: u16,
    /// What the client was to a switch that has ended.
    pub before: Option<Before>,
}

impl Hello {
    /// The version of the protocol that the client and this switch speak.
    ///
    /// # Errors
    ///
    /// [`Refusal::Version`]: there is none.
    pub fn agree(&self) -> Result<u16, Refusal> {
        let Self {
            lowest, highest, ..
        } = *self;
        let speaks = VERSION;
        let is_common = (lowest..=highest).contains(&speaks);
        is_common.then_some(speaks).ok_or(Refusal::Version {
            lowest,
            highest,
            speaks,
        })
    }
}

/// What a client was to a switch that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Generation of that switch.
    pub generation: u64,
    /// The client's Ethernet address.
    pub mac: MacAddress,
    /// Ports that the client had. The message carries the first [`LIST_MAX`](super::LIST_MAX). A
    /// client asks for the rest by [`Request::OpenPort`].
    pub ports: Vec<SocketAddr>,
}

impl ToSwitch {
    /// Bytes of the message, at most [`MESSAGE_MAX`](super::MESSAGE_MAX). A message whose fields
    /// are not as they are described is one that [`decode`](Self::decode) refuses.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, id) = match self {
            Self::Hello { id, .. } => (kind::HELLO, *id),
            Self::Request { id, request } => (kind_of(request), *id),
            Self::Ring => (kind::RING, 0),
        };
        let header = Header {
            kind,
            id,
            status: 0,
        };
        header.with_body(|body| match self {
            Self::Hello { hello, .. } => hello.write(body),
            Self::Request { request, .. } => write_request(*request, body),
            Self::Ring => {}
        })
    }

    /// The message of a datagram.
    ///
    /// # Errors
    ///
    /// [`Malformed`]: why the bytes are no message of a client.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, mut body) = Header::split(bytes)?;
        header.succeeds()?;
        let message = match header.kind {
            kind::RING => {
                header.without_request()?;
                Self::Ring
            }
            kind::HELLO => Self::Hello {
                id: header.request()?,
                hello: body.read()?,
            },
            kind => Self::Request {
                request: read_request(kind, &mut body)?,
                id: header.request()?,
            },
        };
        body.end()?;
        Ok(message)
    }
}

fn kind_of(request: &Request) -> u16 {
    match request {
        Request::Addresses => kind::ADDRESSES,
        Request::Source(_) => kind::SOURCE,
        Request::Hop(_) => kind::HOP,
        Request::OpenPort(_) => kind::PORT,
        Request::ClosePort(_) => kind::CLOSE,
        Request::Clients => kind::CLIENTS,
    }
}

fn write_request(request: Request, body: &mut Vec<u8>) {
    match request {
        Request::Addresses | Request::Clients => {}
        Request::Source(remote) => remote.write(body),
        Request::Hop(at) | Request::OpenPort(at) | Request::ClosePort(at) => at.write(body),
    }
}

fn read_request(kind: u16, body: &mut Body<'_>) -> Result<Request, Malformed> {
    Ok(match kind {
        kind::ADDRESSES => Request::Addresses,
        kind::SOURCE => Request::Source(body.read()?),
        kind::HOP => Request::Hop(body.read()?),
        kind::PORT => Request::OpenPort(body.read()?),
        kind::CLOSE => Request::ClosePort(body.read()?),
        kind::CLIENTS => Request::Clients,
        kind => return Err(Malformed::Kind(kind)),
    })
}

impl Field for Hello {
    fn write(&self, body: &mut Vec<u8>) {
        self.lowest.write(body);
        self.highest.write(body);
        self.before.is_some().write(body);
        if let Some(before) = &self.before {
            before.write(body);
        }
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let (lowest, highest) = (body.read()?, body.read()?);
        if lowest > highest {
            return Err(Malformed::Versions { lowest, highest });
        }
        let has_before = body.read()?;
        Ok(Self {
            lowest,
            highest,
            before: if has_before { Some(body.read()?) } else { None },
        })
    }
}

impl Field for Before {
    fn write(&self, body: &mut Vec<u8>) {
        self.generation.write(body);
        self.mac.write(body);
        self.ports.write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            generation: body.read()?,
            mac: body.read()?,
            ports: body.read()?,
        })
    }
}

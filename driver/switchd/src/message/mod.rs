//! Messages of the control socket between a client and the switch, and their bytes (decision record
//! driver/0036).
//!
//! A message is one datagram of a `SOCK_SEQPACKET` socket: a header of 16 bytes, and the body. All
//! numbers are little-endian. Descriptors travel beside the bytes and are not seen here.
//!
//! Each message has one sequence of bytes. A decoder returns [`Malformed`] for all others, so a
//! message that was decoded is encoded to the same bytes.

mod fields;
mod to_client;
mod to_switch;

pub use to_client::{Event, ToClient, Welcome};
pub use to_switch::{Before, Hello, ToSwitch};

use fields::Body;

/// Version of the protocol, and of the files that a client and the switch share.
pub const VERSION: u16 = 1;
/// Bytes of the longest message.
pub const MESSAGE_MAX: usize = 4096;
/// Entries of the longest list in a message. An encoder leaves further entries out.
pub const LIST_MAX: usize = 128;
/// Bytes of the longest name in a message. An encoder leaves further characters out.
pub const NAME_MAX: usize = 64;

/// Bytes of a header: kind, flags, id, status, length of the body.
const HEADER: usize = 16;

/// Kinds of messages. A reply has the kind of its request.
mod kind {
    pub(super) const REFUSED: u16 = 0;
    pub(super) const HELLO: u16 = 1;
    pub(super) const ADDRESSES: u16 = 2;
    pub(super) const SOURCE: u16 = 4;
    pub(super) const HOP: u16 = 5;
    pub(super) const PORT: u16 = 7;
    pub(super) const CLOSE: u16 = 8;
    pub(super) const PEER: u16 = 9;
    pub(super) const GONE: u16 = 10;
    pub(super) const CLIENTS: u16 = 14;
    pub(super) const RING: u16 = 15;
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The datagram ends within the header.
    #[error("a message has a header of {HEADER} bytes, and this one has {0} bytes in all")]
    Header(usize),
    /// The datagram is longer than [`MESSAGE_MAX`].
    #[error("a message has at most {MESSAGE_MAX} bytes, and this one has {0}")]
    Message(usize),
    /// The kind is unknown, or messages of this kind go the other way.
    #[error("no message of kind {0} goes this way")]
    Kind(u16),
    /// No flag has a meaning.
    #[error("the flags {0:#06x} are unknown")]
    Flags(u16),
    /// An event or a ring with an id, or a request or a reply without.
    #[error("a message of kind {kind} cannot have the id {id}")]
    Id {
        /// Kind of the message.
        kind: u16,
        /// Its id.
        id: u32,
    },
    /// The status of a refusal is unknown, or the message is none and its status is not 0.
    #[error("a message of kind {kind} cannot have the status {status}")]
    Status {
        /// Kind of the message.
        kind: u16,
        /// Its status.
        status: i32,
    },
    /// The body does not have the length in the header.
    #[error("the header is of a body of {header} bytes, and the body has {body}")]
    Length {
        /// Length in the header.
        header: u32,
        /// Bytes of the body in the datagram.
        body: usize,
    },
    /// The body ends within a field.
    #[error("the body ends {0} bytes too early")]
    Short(usize),
    /// The body goes on behind its last field.
    #[error("the body has {0} bytes too many")]
    Long(usize),
    /// A truth value is neither 0 nor 1.
    #[error("{0} is no truth value")]
    Truth(u8),
    /// The family of an address is neither 4 nor 6.
    #[error("{0} is no family of addresses")]
    Family(u8),
    /// An IPv4 address does not have 0 in the 12 bytes that it does not need.
    #[error("an IPv4 address has more than 4 bytes")]
    Padding,
    /// An IPv4 address has a scope, or an IPv6 address without a port has one.
    #[error("an address of this kind cannot have the scope {0}")]
    Scope(u32),
    /// A limit is larger than this machine can count.
    #[error("{0} is no limit of this machine")]
    Limit(u64),
    /// A list has more than [`LIST_MAX`] entries.
    #[error("a list has at most {LIST_MAX} entries, and this one has {0}")]
    List(usize),
    /// A name has more than [`NAME_MAX`] bytes.
    #[error("a name has at most {NAME_MAX} bytes, and this one has {0}")]
    Name(usize),
    /// A name is not UTF-8.
    #[error("a name is not UTF-8")]
    Text,
    /// A client speaks versions of which the lowest is above the highest.
    #[error("there are no versions from {lowest} to {highest}")]
    Versions {
        /// The lowest version.
        lowest: u16,
        /// The highest version.
        highest: u16,
    },
    /// A switch has chosen a version other than [`VERSION`].
    #[error("version {0} of the protocol is not spoken here")]
    Version(u16),
}

/// Fields of a header, apart from its flags and the length of the body.
#[derive(Clone, Copy)]
struct Header {
    kind: u16,
    /// 0 for an event or a ring.
    id: u32,
    /// Below 0 for a refusal.
    status: i32,
}

impl Header {
    /// A message of this header and the body that `write` appends.
    fn with_body(self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER);
        message.extend_from_slice(&self.kind.to_le_bytes());
        message.extend_from_slice(&0_u16.to_le_bytes());
        message.extend_from_slice(&self.id.to_le_bytes());
        message.extend_from_slice(&self.status.to_le_bytes());
        message.extend_from_slice(&[0; 4]);
        write(&mut message);
        // No body is longer than MESSAGE_MAX.
        let body = u32::try_from(message.len() - HEADER).unwrap_or(u32::MAX);
        message[HEADER - 4..HEADER].copy_from_slice(&body.to_le_bytes());
        message
    }

    /// Header and body of a message.
    fn split(message: &[u8]) -> Result<(Self, Body<'_>), Malformed> {
        if message.len() > MESSAGE_MAX {
            return Err(Malformed::Message(message.len()));
        }
        let header = message.split_first_chunk::<HEADER>();
        let (header, body) = header.ok_or(Malformed::Header(message.len()))?;
        let [k0, k1, f0, f1, i0, i1, i2, i3, s0, s1, s2, s3, length @ ..] = *header;
        let flags = u16::from_le_bytes([f0, f1]);
        if flags != 0 {
            return Err(Malformed::Flags(flags));
        }
        let length = u32::from_le_bytes(length);
        if usize::try_from(length) != Ok(body.len()) {
            let (header, body) = (length, body.len());
            return Err(Malformed::Length { header, body });
        }
        let header = Self {
            kind: u16::from_le_bytes([k0, k1]),
            id: u32::from_le_bytes([i0, i1, i2, i3]),
            status: i32::from_le_bytes([s0, s1, s2, s3]),
        };
        Ok((header, Body::new(body)))
    }

    /// Fails unless the status is 0, as of all messages but refusals.
    fn succeeds(self) -> Result<(), Malformed> {
        let Self { kind, status, .. } = self;
        let is_fine = status == 0;
        is_fine
            .then_some(())
            .ok_or(Malformed::Status { kind, status })
    }

    /// The id of a request or a reply.
    fn request(self) -> Result<u32, Malformed> {
        let Self { kind, id, .. } = self;
        (id != 0).then_some(id).ok_or(Malformed::Id { kind, id })
    }

    /// Fails unless the id is 0, as of an event and a ring.
    fn without_request(self) -> Result<(), Malformed> {
        let Self { kind, id, .. } = self;
        (id == 0).then_some(()).ok_or(Malformed::Id { kind, id })
    }
}

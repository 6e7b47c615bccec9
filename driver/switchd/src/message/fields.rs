//! Fields of a body.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::{LIST_MAX, Malformed, NAME_MAX};
use crate::station::MacAddress;

/// The part of a body that is not decoded yet.
pub(super) struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next field.
    pub(super) fn read<T: Field>(&mut self) -> Result<T, Malformed> {
        T::read(self)
    }

    /// Fails unless all of the body is decoded.
    pub(super) fn end(self) -> Result<(), Malformed> {
        match self.0.len() {
            0 => Ok(()),
            rest => Err(Malformed::Long(rest)),
        }
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Malformed> {
        let field = self.0.split_first_chunk();
        let (array, rest) = field.ok_or_else(|| self.lacks(LEN))?;
        self.0 = rest;
        Ok(*array)
    }

    fn slice(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let field = self.0.split_at_checked(len);
        let (slice, rest) = field.ok_or_else(|| self.lacks(len))?;
        self.0 = rest;
        Ok(slice)
    }

    /// The body ends before a field of `len` bytes does.
    fn lacks(&self, len: usize) -> Malformed {
        Malformed::Short(len.saturating_sub(self.0.len()))
    }
}

/// A value of a field.
pub(super) trait Field: Sized {
    /// Appends the field to a body.
    fn write(&self, body: &mut Vec<u8>);

    /// Takes the field from the front of a body.
    fn read(body: &mut Body<'_>) -> Result<Self, Malformed>;
}

/// A field that takes the same bytes for every value. Lists have entries of such fields.
pub(super) trait Entry: Field {
    /// How many bytes.
    const SIZE: usize;
}

macro_rules! number {
    ($($number:ty),*) => {
        $(impl Field for $number {
            fn write(&self, body: &mut Vec<u8>) {
                body.extend_from_slice(&self.to_le_bytes());
            }

            fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(body.array()?))
            }
        })*
    };
}

number!(u8, u16, u32, u64);

/// A limit, in 64 bits.
impl Field for usize {
    fn write(&self, body: &mut Vec<u8>) {
        u64::try_from(*self).unwrap_or(u64::MAX).write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let limit: u64 = body.read()?;
        Self::try_from(limit).map_err(|_| Malformed::Limit(limit))
    }
}

impl Field for bool {
    fn write(&self, body: &mut Vec<u8>) {
        u8::from(*self).write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        match body.read()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Malformed::Truth(other)),
        }
    }
}

impl Field for MacAddress {
    fn write(&self, body: &mut Vec<u8>) {
        body.extend_from_slice(self);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        body.array()
    }
}

/// Family, 16 bytes of address, and a scope, which is 0 unless the address is IPv6.
fn write_scoped(address: IpAddr, scope: u32, body: &mut Vec<u8>) {
    let (family, bytes) = match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            (4_u8, bytes)
        }
        IpAddr::V6(address) => (6, address.octets()),
    };
    family.write(body);
    body.extend_from_slice(&bytes);
    scope.write(body);
}

fn read_scoped(body: &mut Body<'_>) -> Result<(IpAddr, u32), Malformed> {
    let family: u8 = body.read()?;
    let bytes: [u8; 16] = body.array()?;
    let scope: u32 = body.read()?;
    match (family, bytes) {
        (4, [a, b, c, d, padding @ ..]) => {
            if padding != [0; 12] {
                return Err(Malformed::Padding);
            }
            if scope != 0 {
                return Err(Malformed::Scope(scope));
            }
            Ok((Ipv4Addr::new(a, b, c, d).into(), 0))
        }
        (6, bytes) => Ok((Ipv6Addr::from(bytes).into(), scope)),
        (family, _) => Err(Malformed::Family(family)),
    }
}

/// An address without a scope, which `IpAddr` cannot have.
impl Field for IpAddr {
    fn write(&self, body: &mut Vec<u8>) {
        write_scoped(*self, 0, body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        match read_scoped(body)? {
            (address, 0) => Ok(address),
            (_, scope) => Err(Malformed::Scope(scope)),
        }
    }
}

impl Entry for IpAddr {
    const SIZE: usize = 1 + 16 + 4;
}

/// Address, scope and port. The flow information of `SocketAddrV6` is not carried.
impl Field for SocketAddr {
    fn write(&self, body: &mut Vec<u8>) {
        let scope = match self {
            Self::V4(_) => 0,
            Self::V6(address) => address.scope_id(),
        };
        write_scoped(self.ip(), scope, body);
        self.port().write(body);
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let (address, scope) = read_scoped(body)?;
        let port: u16 = body.read()?;
        Ok(match address {
            IpAddr::V4(address) => Self::from((address, port)),
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, scope).into(),
        })
    }
}

impl Entry for SocketAddr {
    const SIZE: usize = IpAddr::SIZE + 2;
}

/// A list of at most [`LIST_MAX`] entries: their count, and the entries.
impl<T: Entry> Field for Vec<T> {
    fn write(&self, body: &mut Vec<u8>) {
        let entries = &self[..self.len().min(LIST_MAX)];
        write_len(entries.len(), body);
        for entry in entries {
            entry.write(body);
        }
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let count = read_len(body)?;
        if count > LIST_MAX {
            return Err(Malformed::List(count));
        }
        // No memory is allocated for entries that are not there.
        let mut entries = Body(body.slice(count * T::SIZE)?);
        (0..count).map(|_| entries.read()).collect()
    }
}

/// A name of at most [`NAME_MAX`] bytes: its length, and its bytes.
impl Field for String {
    fn write(&self, body: &mut Vec<u8>) {
        let name = &self[..self.floor_char_boundary(NAME_MAX)];
        write_len(name.len(), body);
        body.extend_from_slice(name.as_bytes());
    }

    fn read(body: &mut Body<'_>) -> Result<Self, Malformed> {
        let len = read_len(body)?;
        if len > NAME_MAX {
            return Err(Malformed::Name(len));
        }
        let name = std::str::from_utf8(body.slice(len)?);
        name.map(Self::from).map_err(|_| Malformed::Text)
    }
}

/// A count or a length of at most [`LIST_MAX`] or [`NAME_MAX`].
fn write_len(len: usize, body: &mut Vec<u8>) {
    u16::try_from(len).unwrap_or(u16::MAX).write(body);
}

fn read_len(body: &mut Body<'_>) -> Result<usize, Malformed> {
    body.read::<u16>().map(usize::from)
}

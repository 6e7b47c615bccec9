//! Generic netlink: families of commands that the kernel numbers as they are registered
//! (`linux/genetlink.h`).

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_TYPE_MASK, NetlinkSerializable, NlaBuffer, NlasIterator,
};
use nix::errno::Errno;

use super::netlink::{Netlink, NetlinkError};

/// The family that knows the others, and what it is asked.
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
/// The groups that the family notifies: each has a name and a number.
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// Bytes of `struct genlmsghdr`: command, version, reserved.
const HEADER_BYTES: usize = 4;
/// The only version that any family here has.
const VERSION: u8 = 1;

/// A family that this kernel has.
pub(super) struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    /// The family `name`, or `None` if the kernel has none of this name.
    pub(super) fn open(name: &str) -> Result<Option<Self>, NetlinkError> {
        let Some((netlink, found)) = find(name)? else {
            return Ok(None);
        };
        let id = (found.number(FAMILY_ID)).and_then(|id| u16::try_from(id).ok());
        Ok(Some(Self {
            netlink,
            id: id.ok_or(NetlinkError::Malformed)?,
        }))
    }

    /// A socket that receives the notifications of family `name` to this group from now on, or
    /// `None` if the kernel has no such family or group.
    pub(super) fn listen(name: &str, group: &str) -> Result<Option<Netlink>, NetlinkError> {
        let Some((netlink, found)) = find(name)? else {
            return Ok(None);
        };
        let id = group_id(&found, group);
        id.map(|id| netlink.joined(&[id])).transpose()
    }
    /// Asks a question that has one answer.
    pub(super) fn get(
        &mut self,
        command: u8,
        attributes: Vec<DefaultNla>,
    ) -> Result<Attributes, NetlinkError> {
        let answer = self.netlink.get(self.question(command, attributes))?;
        Attributes::of_message(&answer.payload)
    }

    /// Asks for a whole table.
    pub(super) fn dump(
        &mut self,
        command: u8,
        attributes: Vec<DefaultNla>,
    ) -> Result<Vec<Attributes>, NetlinkError> {
        let table = self.netlink.dump(&self.question(command, attributes))?;
        (table.iter())
            .map(|message| Attributes::of_message(&message.payload))
            .collect()
    }

    fn question(&self, command: u8, attributes: Vec<DefaultNla>) -> Question {
        Question {
            family: self.id,
            command,
            attributes,
        }
    }
}

/// The kernel's attributes of family `name`, and the socket that has queried them.
fn find(name: &str) -> Result<Option<(Netlink, Attributes)>, NetlinkError> {
    let mut controller = Family {
        netlink: Netlink::generic()?,
        id: CONTROLLER,
    };
    let mut wanted = name.as_bytes().to_vec();
    wanted.push(0);
    match controller.get(GET_FAMILY, vec![DefaultNla::new(FAMILY_NAME, wanted)]) {
        Err(error) if error.refusal() == Some(Errno::ENOENT) => Ok(None),
        answer => Ok(Some((controller.netlink, answer?))),
    }
}

/// The number of a family's group.
fn group_id(family: &Attributes, group: &str) -> Option<u32> {
    let groups = family.nested(GROUPS)?;
    let found = (groups.0.iter().map(|(_, group)| Attributes::parse(group)))
        .find(|it| it.text(GROUP_NAME).as_deref() == Some(group))?;
    u32::try_from(found.number(GROUP_ID)?).ok()
}

/// An attribute that holds a number.
pub(super) fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}

/// A command with its attributes.
#[derive(Clone)]
struct Question {
    family: u16,
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl NetlinkSerializable for Question {
    fn message_type(&self) -> u16 {
        self.family
    }

    fn buffer_len(&self) -> usize {
        HEADER_BYTES + self.attributes.as_slice().buffer_len()
    }

    fn serialize(&self, buffer: &mut [u8]) {
        let Some((header, attributes)) = buffer.split_at_mut_checked(HEADER_BYTES) else {
            return;
        };
        header.copy_from_slice(&[self.command, VERSION, 0, 0]);
        self.attributes.as_slice().emit(attributes);
    }
}

/// Attributes of an answer, or those nested in one.
pub(super) struct Attributes(Vec<(u16, Vec<u8>)>);

impl Attributes {
    /// Those of a whole message, behind its header.
    pub(super) fn of_message(payload: &[u8]) -> Result<Self, NetlinkError> {
        let attributes = payload.get(HEADER_BYTES..).ok_or(NetlinkError::Malformed)?;
        Ok(Self::parse(attributes))
    }

    /// These, as the kernel would encode them.
    #[cfg(test)]
    pub(super) fn of(attributes: &[DefaultNla]) -> Self {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        Self::parse(&bytes)
    }

    /// As far as they can be read.
    fn parse(bytes: &[u8]) -> Self {
        let attributes = NlasIterator::new(bytes).map_while(Result::ok);
        Self(attributes.map(|nla| own(&nla)).collect())
    }

    /// The bytes of the first attribute of this kind.
    pub(super) fn bytes(&self, kind: u16) -> Option<&[u8]> {
        self.all(kind).next()
    }

    /// The bytes of every attribute of this kind.
    fn all(&self, kind: u16) -> impl Iterator<Item = &[u8]> {
        (self.0.iter()).filter_map(move |(found, bytes)| (*found == kind).then_some(&bytes[..]))
    }

    /// A number of 16, 32 or 64 bits.
    pub(super) fn number(&self, kind: u16) -> Option<u64> {
        match *self.bytes(kind)? {
            [a, b] => Some(u16::from_ne_bytes([a, b]).into()),
            [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
            ref bytes => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }

    /// Text that ends with a zero.
    pub(super) fn text(&self, kind: u16) -> Option<String> {
        let bytes = self.bytes(kind)?.split(|&byte| byte == 0).next()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// The attributes nested in the first attribute of this kind.
    pub(super) fn nested(&self, kind: u16) -> Option<Self> {
        self.bytes(kind).map(Self::parse)
    }

    /// The attributes nested in each attribute of this kind.
    pub(super) fn every_nested(&self, kind: u16) -> impl Iterator<Item = Self> {
        self.all(kind).map(Self::parse)
    }
}

fn own(nla: &NlaBuffer<&[u8]>) -> (u16, Vec<u8>) {
    (nla.kind() & NLA_TYPE_MASK, nla.value().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_far_as_they_go() {
        let bytes = [
            6, 0, 1, 0, 7, 0, 0, 0, // kind 1: a number of 16 bits, padded
            12, 0, 2, 0x80, 7, 0, 3, 0, b'a', b'b', 0, 0, // kind 2, nested: kind 3, text
            9, 0, 4, 0, 1, // kind 4 claims 9 bytes, and there are 5
        ];
        let read = Attributes::parse(&bytes);
        assert_eq!(read.number(1), Some(7));
        let nested = read.nested(2).unwrap();
        assert_eq!(nested.text(3).as_deref(), Some("ab"));
        assert_eq!(nested.number(3), None, "three bytes are no number");
        assert!(read.bytes(4).is_none());
    }

    /// The kernel numbers the groups of a family from 1, in attributes of that kind.
    #[test]
    fn group_is_found_by_its_name() {
        #[rustfmt::skip]
        let family = [
            44, 0, 7, 0x80,                                  // CTRL_ATTR_MCAST_GROUPS
            20, 0, 1, 0x80, 8, 0, 2, 0, 5, 0, 0, 0, 7, 0, 1, 0, b'o', b'n', 0, 0,
            20, 0, 2, 0x80, 8, 0, 2, 0, 6, 0, 0, 0, 8, 0, 1, 0, b'o', b'f', b'f', 0,
        ];
        let family = Attributes::parse(&family);
        assert_eq!(group_id(&family, "on"), Some(5));
        assert_eq!(group_id(&family, "off"), Some(6));
        assert_eq!(group_id(&family, "of"), None);
        assert_eq!(group_id(&Attributes::parse(&[]), "on"), None);
    }

    #[test]
    fn question_is_laid_out_as_the_kernel_reads_it() {
        let question = Question {
            family: 0x21,
            command: 17,
            attributes: vec![number(1, 5)],
        };
        let mut bytes = vec![0xff; question.buffer_len()];
        question.serialize(&mut bytes);
        assert_eq!(bytes, [17, 1, 0, 0, 8, 0, 1, 0, 5, 0, 0, 0]);
        assert_eq!(question.message_type(), 0x21);
    }
}

//! A netlink socket: questions, dumps and notifications.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::{
    DecodeError, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REPLACE, NLM_F_REQUEST, NLMSG_DONE,
    NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlaBuffer,
};
use netlink_sys::{
    Socket, SocketAddr,
    protocols::{NETLINK_GENERIC, NETLINK_ROUTE},
};
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The kernel answers from memory, at once; without an answer for this long something is wrong.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The largest buffer that the kernel fills with one piece of a dump (`netlink_recvmsg`).
const DUMP_PIECE: usize = 32 << 10;
/// A dump is asked for again once, if the tables changed under it.
const DUMP_TRIES: usize = 2;
/// Message types below this one are netlink's own (linux/netlink.h).
const NLMSG_MIN_TYPE: u16 = 16;
/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Messages start at multiples of this many bytes (`NLMSG_ALIGNTO`).
const ALIGNMENT: usize = 4;

/// Why the kernel's tables could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// No socket.
    #[error("cannot open a netlink socket, so what the kernel knows of the network cannot be read")]
    Open(#[source] io::Error),
    /// The socket failed.
    #[error("reading what the kernel knows of the network by netlink failed")]
    Io(#[source] io::Error),
    /// The kernel refused the question.
    #[error("the kernel refused a netlink question")]
    Refused(#[source] io::Error),
    /// Notifications came faster than they were read, and some were lost.
    #[error("the kernel dropped netlink notifications, as too many came at once; try again")]
    Overrun,
    /// No answer.
    #[error("the kernel did not answer a netlink question within 5 s; try again")]
    Silent,
    /// The tables changed while they were read, and again.
    #[error("the kernel's network tables keep changing while they are read; try again")]
    Changing,
    /// Not what a kernel should say.
    #[error("the kernel gave a netlink answer that cannot be understood")]
    Malformed,
}

impl NetlinkError {
    /// The kernel's error, if it refused the query.
    pub(super) fn refusal(&self) -> Option<Errno> {
        match self {
            Self::Refused(error) => error.raw_os_error().map(Errno::from_raw),
            _ => None,
        }
    }
}

/// One message from the kernel.
pub(super) struct Message {
    /// `RTM_*` or `NLMSG_*`.
    pub(super) kind: u16,
    /// The bytes behind the netlink header.
    pub(super) payload: Vec<u8>,
    flags: u16,
    sequence: u32,
}

impl Message {
    #[cfg(test)]
    pub(super) fn notification(kind: u16, payload: &[u8]) -> Self {
        Self {
            kind,
            payload: payload.to_vec(),
            flags: 0,
            sequence: 0,
        }
    }

    /// The errno of an `NLMSG_ERROR` or `NLMSG_DONE`: `Ok` if it is 0 or there is none.
    fn verdict(&self) -> Result<(), NetlinkError> {
        match self
            .payload
            .first_chunk()
            .map(|code| i32::from_ne_bytes(*code))
        {
            None | Some(0) => Ok(()),
            Some(code) => Err(NetlinkError::Refused(io::Error::from_raw_os_error(
                code.saturating_neg(),
            ))),
        }
    }
}

/// An open socket in the network namespace of the thread that opened it.
pub(super) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// A socket to ask for interfaces, addresses, routes and neighbours with.
    pub(super) fn open() -> Result<Self, NetlinkError> {
        Self::of_protocol(NETLINK_ROUTE)
    }

    /// A socket to ask generic netlink families with.
    pub(super) fn generic() -> Result<Self, NetlinkError> {
        Self::of_protocol(NETLINK_GENERIC)
    }

    fn of_protocol(protocol: isize) -> Result<Self, NetlinkError> {
        let mut socket = Socket::new(protocol).map_err(NetlinkError::Open)?;
        socket.bind_auto().map_err(NetlinkError::Open)?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// A socket that receives the notifications of these groups (`RTNLGRP_*`) from now on.
    pub(super) fn listen(groups: &[u32]) -> Result<Self, NetlinkError> {
        Self::open()?.joined(groups)
    }

    /// A member of these groups, whose notifications it receives from now on.
    pub(super) fn joined(self, groups: &[u32]) -> Result<Self, NetlinkError> {
        for group in groups {
            let joined = self.socket.add_membership(*group);
            joined.map_err(NetlinkError::Open)?;
        }
        Ok(self)
    }

    /// Asks a question that has one answer.
    pub(super) fn get(
        &mut self,
        question: impl NetlinkSerializable,
    ) -> Result<Message, NetlinkError> {
        self.send(question, NLM_F_REQUEST)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            for message in self.answer(deadline)? {
                if message.kind == NLMSG_ERROR {
                    message.verdict()?;
                } else if message.kind >= NLMSG_MIN_TYPE {
                    return Ok(message);
                }
            }
        }
    }

    /// Makes the kernel change an existing entry.
    pub(super) fn replace(&mut self, change: impl NetlinkSerializable) -> Result<(), NetlinkError> {
        self.send(change, NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let answer = self.answer(deadline)?;
            if let Some(message) = answer.iter().find(|it| it.kind == NLMSG_ERROR) {
                return message.verdict();
            }
        }
    }

    /// Asks for a whole table.
    pub(super) fn dump(
        &mut self,
        question: &(impl NetlinkSerializable + Clone),
    ) -> Result<Vec<Message>, NetlinkError> {
        for _ in 0..DUMP_TRIES {
            if let Some(table) = self.dump_once(question.clone())? {
                return Ok(table);
            }
        }
        Err(NetlinkError::Changing)
    }

    /// `None` if the table changed meanwhile.
    fn dump_once(
        &mut self,
        question: impl NetlinkSerializable,
    ) -> Result<Option<Vec<Message>>, NetlinkError> {
        self.send(question, NLM_F_REQUEST | NLM_F_DUMP)?;
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let mut table = Vec::new();
        let mut changed = false;
        loop {
            for message in self.answer(deadline)? {
                changed |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_ERROR => message.verdict()?,
                    NLMSG_DONE => {
                        message.verdict()?;
                        return Ok((!changed).then_some(table));
                    }
                    kind if kind >= NLMSG_MIN_TYPE => table.push(message),
                    _ => {}
                }
            }
        }
    }

    fn send(&mut self, question: impl NetlinkSerializable, flags: u16) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        let kernel = SocketAddr::new(0, 0);
        uninterrupted(|| self.socket.send_to(&bytes, &kernel, 0)).map_err(NetlinkError::Io)?;
        Ok(())
    }

    /// The next messages that answer our last question.
    fn answer(&self, deadline: Instant) -> Result<Vec<Message>, NetlinkError> {
        let mut messages = self.receive(deadline)?.ok_or(NetlinkError::Silent)?;
        messages.retain(|message| message.sequence == self.sequence);
        Ok(messages)
    }

    /// Calls `each` with every message that has arrived so far.
    pub(super) fn receive_all(&self, mut each: impl FnMut(&Message)) -> Result<(), NetlinkError> {
        while let Some(messages) = self.receive(Instant::now())? {
            messages.iter().for_each(&mut each);
        }
        Ok(())
    }

    /// The next messages from the kernel, or `None` if there are none until `deadline`.
    pub(super) fn receive(&self, deadline: Instant) -> Result<Option<Vec<Message>>, NetlinkError> {
        while self.readable(deadline)? {
            let (datagram, sender) = self.read()?;
            if sender.port_number() == 0 {
                return split(&datagram).map(Some);
            }
        }
        Ok(None)
    }

    /// Waits until there is something to read, or `deadline` has passed. Does not wait if it has
    /// passed already.
    fn readable(&self, deadline: Instant) -> Result<bool, NetlinkError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last millisecond is slept, not spun.
            let timeout = match left {
                Duration::ZERO => PollTimeout::ZERO,
                left => {
                    let rounded_up = left + Duration::from_millis(1);
                    PollTimeout::try_from(rounded_up).unwrap_or(PollTimeout::MAX)
                }
            };
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Ok(0) if Instant::now() < deadline => {}
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(NetlinkError::Io(errno.into())),
            }
        }
    }

    /// One datagram, whole whatever its size.
    fn read(&self) -> Result<(Vec<u8>, SocketAddr), NetlinkError> {
        let mut peeked = Vec::with_capacity(DUMP_PIECE);
        let (length, _) = self.read_into(&mut peeked, libc::MSG_PEEK | libc::MSG_TRUNC)?;
        let mut datagram = Vec::with_capacity(length.max(DUMP_PIECE));
        let (length, sender) = self.read_into(&mut datagram, libc::MSG_TRUNC)?;
        if length > datagram.len() {
            return Err(NetlinkError::Malformed);
        }
        Ok((datagram, sender))
    }

    fn read_into(
        &self,
        buffer: &mut Vec<u8>,
        flags: i32,
    ) -> Result<(usize, SocketAddr), NetlinkError> {
        uninterrupted(|| self.socket.recv_from(buffer, flags)).map_err(|error| {
            if error.raw_os_error() == Some(libc::ENOBUFS) {
                NetlinkError::Overrun
            } else {
                NetlinkError::Io(error)
            }
        })
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The attributes of a message that can be read: a newer kernel's unknown ones never hide the
/// others.
pub(super) fn readable_attributes<'a, A>(
    attributes: impl Iterator<Item = Result<NlaBuffer<&'a [u8]>, DecodeError>>,
    parse: impl Fn(&NlaBuffer<&'a [u8]>) -> Result<A, DecodeError>,
) -> impl Iterator<Item = A> {
    attributes
        .map_while(Result::ok)
        .filter_map(move |attribute| parse(&attribute).ok())
}

fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The messages of one datagram.
fn split(datagram: &[u8]) -> Result<Vec<Message>, NetlinkError> {
    let mut messages = Vec::new();
    let mut rest = datagram;
    while !rest.is_empty() {
        let buffer = NetlinkBuffer::new_checked(rest).map_err(|_| NetlinkError::Malformed)?;
        let payload = buffer.payload().to_vec();
        let total = (HEADER_BYTES + payload.len()).next_multiple_of(ALIGNMENT);
        messages.push(Message {
            kind: buffer.message_type(),
            payload,
            flags: buffer.flags(),
            sequence: buffer.sequence_number(),
        });
        rest = rest.get(total..).unwrap_or_default();
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_is_split_at_aligned_lengths() {
        let datagram = [
            18, 0, 0, 0, 16, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0,
            0, // 18 bytes, RTM_NEWLINK, NLM_F_MULTI, sequence 7
            0xaa, 0xbb, 0, 0, // payload and padding
            20, 0, 0, 0, 3, 0, 0x12, 0, 7, 0, 0, 0, 0, 0, 0,
            0, // 20 bytes, NLMSG_DONE, MULTI and DUMP_INTR
            0, 0, 0, 0, // errno 0
        ];
        let messages = split(&datagram).unwrap();
        assert_eq!(messages.len(), 2);
        assert_eq!(messages[0].kind, 16);
        assert_eq!(messages[0].payload, [0xaa, 0xbb]);
        assert_eq!(messages[1].kind, NLMSG_DONE);
        assert_ne!(messages[1].flags & NLM_F_DUMP_INTR, 0);
        assert!(messages[1].verdict().is_ok());
    }

    #[test]
    fn odd_lengths_are_errors_not_panics() {
        let short = [8, 0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]; // claims 8 bytes: less than a header
        assert!(matches!(split(&short), Err(NetlinkError::Malformed)));
        let long = [99, 0, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]; // claims 99 bytes: more than there are
        assert!(matches!(split(&long), Err(NetlinkError::Malformed)));
        assert!(matches!(split(&[1, 2, 3]), Err(NetlinkError::Malformed)));
    }

    #[test]
    fn refusal_carries_the_errno() {
        let message = Message {
            kind: NLMSG_ERROR,
            payload: (-libc::ENETUNREACH).to_ne_bytes().to_vec(),
            flags: 0,
            sequence: 1,
        };
        assert_eq!(
            message.verdict().unwrap_err().refusal(),
            Some(Errno::ENETUNREACH)
        );
    }
}

//! Control socket: messages with descriptors between a client and the switch.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType,
    UnixAddr, UnixCredentials, accept4, bind, connect, getsockopt, listen, recvmsg, sendmsg,
    socket, sockopt,
};
use nix::sys::stat::{Mode, fchmod};
use xwarp_switchd::MESSAGE_MAX;

/// Descriptors beside a message at most.
pub(super) const DESCRIPTORS: usize = 4;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A message as it has arrived.
pub(super) struct Received {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

/// An end of a control socket.
pub(super) struct ControlSocket(OwnedFd);

/// A new socket of messages.
fn unconnected(flags: SockFlag) -> nix::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::Unix, SockType::SeqPacket);
    socket(family, kind, SockFlag::SOCK_CLOEXEC | flags, None)
}

impl ControlSocket {
    /// Connects to the switch that listens at a path.
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = unconnected(SockFlag::empty())?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        Ok(Self(socket))
    }

    /// Process and user at the other end, when it has connected.
    pub(super) fn peer(&self) -> io::Result<UnixCredentials> {
        Ok(getsockopt(&self.0, sockopt::PeerCredentials)?)
    }

    /// Sends a message. Never waits: a full socket is an error.
    pub(super) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let rights = if raw.is_empty() { &[] } else { &rights[..] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let socket = self.0.as_raw_fd();
        let bytes = [IoSlice::new(bytes)];
        retried(|| sendmsg::<()>(socket, &bytes, rights, flags, None))?;
        Ok(())
    }

    /// Takes a message; `None` once the other end is gone. `waits`: for the next one, if none is
    /// there.
    pub(super) fn receive(&self, waits: bool) -> io::Result<Option<Received>> {
        let mut bytes = vec![0; MESSAGE_MAX];
        let mut space = cmsg_space!([RawFd; DESCRIPTORS]);
        let mut flags = MsgFlags::MSG_CMSG_CLOEXEC;
        if !waits {
            flags |= MsgFlags::MSG_DONTWAIT;
        }
        let (len, descriptors, whole) = {
            let mut into = [IoSliceMut::new(&mut bytes)];
            let socket = self.0.as_raw_fd();
            let message = loop {
                match recvmsg::<()>(socket, &mut into, Some(&mut space), flags) {
                    Err(Errno::EINTR) => {}
                    Err(errno) => return Err(errno.into()),
                    Ok(message) => break (message.bytes, owned(&message), message.flags),
                }
            };
            let cut = MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC;
            (message.0, message.1, !message.2.intersects(cut))
        };
        if !whole {
            return Err(io::ErrorKind::InvalidData.into());
        }
        bytes.truncate(len);
        Ok((len > 0).then_some(Received { bytes, descriptors }))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The descriptors of a message.
fn owned(message: &nix::sys::socket::RecvMsg<'_, '_, ()>) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    for control in message.cmsgs().into_iter().flatten() {
        let ControlMessageOwned::ScmRights(raw) = control else {
            continue;
        };
        for raw in raw {
            // SAFETY: the kernel has just made the descriptor for this message alone.
            descriptors.push(unsafe { OwnedFd::from_raw_fd(raw) });
        }
    }
    descriptors
}

fn retried<T>(mut call: impl FnMut() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            done => return done,
        }
    }
}

/// A socket that clients connect to.
pub(super) struct Listener(OwnedFd);

impl Listener {
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        // A client that has gone again is not waited for.
        let socket = unconnected(SockFlag::SOCK_NONBLOCK)?;
        // The file has no more rights from its first moment on.
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        let backlog = Backlog::new(BACKLOG).unwrap_or(Backlog::MAXCONN);
        listen(&socket, backlog)?;
        Ok(Self(socket))
    }

    /// A client that has connected.
    pub(super) fn accept(&self) -> io::Result<ControlSocket> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let raw = retried(|| accept4(self.0.as_raw_fd(), flags))?;
        // SAFETY: the kernel has just made the descriptor for this caller alone.
        Ok(ControlSocket(unsafe { OwnedFd::from_raw_fd(raw) }))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

//! Packet sockets, by which guests' network cards and recorders exchange frames with an interface.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, recv, setsockopt,
    socket, sockopt,
};

/// Bytes of frames that may wait: more than every window of a test together.
const BUFFER: usize = 16 << 20;

/// A packet socket that receives every frame of an interface of the calling thread's namespace, and
/// sends on it.
///
/// A tap would be the usual way, but one without offloads needs a system call that is not safe.
pub(crate) fn packet_socket(interface: &str) -> OwnedFd {
    let frames = socket(
        AddressFamily::Packet,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::EthAll,
    );
    let frames = frames.expect("a packet socket needs root");
    setsockopt(&frames, sockopt::RcvBufForce, &BUFFER).expect("root may");
    bind(frames.as_raw_fd(), &address_of(interface)).expect("our own interface");
    // Until now it received what came to any interface.
    drain(&frames, |_| ());
    frames
}

/// Hands everything that has been received to `take`.
pub(crate) fn drain(frames: &OwnedFd, mut take: impl FnMut(&[u8])) {
    let mut frame = vec![0; 1 << 16];
    loop {
        match recv(frames.as_raw_fd(), &mut frame, MsgFlags::MSG_DONTWAIT) {
            Ok(bytes) => take(&frame[..bytes]),
            Err(Errno::EAGAIN) => return,
            // The interface is down for a moment while the lab is made.
            Err(Errno::ENETDOWN | Errno::EINTR) => {}
            Err(errno) => panic!("receiving frames: {errno}"),
        }
    }
}

fn address_of(interface: &str) -> LinkAddr {
    let mut addresses = getifaddrs().expect("interfaces");
    let found = addresses.find_map(|one| {
        let same = one.interface_name == interface;
        one.address
            .filter(|_| same)
            .and_then(|address| address.as_link_addr().copied())
    });
    found.unwrap_or_else(|| panic!("there is no interface {interface}"))
}

//! How many receive queues a driver uses, by the ethtool ioctl: netlink only tells how many it allocated.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// "Get channels" (linux/ethtool.h).
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels` (linux/ethtool.h).
#[derive(Default)]
#[repr(C)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}
const _: () = assert!(size_of::<Channels>() == 36);

/// The number of receive queues of `interface` in use now.
///
/// `EOPNOTSUPP` if its driver cannot tell, as with loopback and ifb. Veth tells them as `rx_count`, tun and most
/// NICs as `combined_count`.
pub(super) fn rx_queues(interface: &str) -> Result<u32, Errno> {
    let mut channels = Channels {
        cmd: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    let mut request = libc::ifreq {
        ifr_name: ifr_name(interface)?,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: ptr::from_mut(&mut channels).cast(),
        },
    };
    // The kernel asks the network namespace in which the socket was made.
    let socket = any_socket()?;
    // SAFETY: SIOCETHTOOL reads an `ifreq` whose `ifru_data` points to a command; for ETHTOOL_GCHANNELS that is
    // a `struct ethtool_channels`, which the kernel fills. Both live until the call has returned.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    Errno::result(result)?;
    Ok(channels.rx_count.saturating_add(channels.combined_count))
}

fn any_socket() -> Result<OwnedFd, Errno> {
    socket(
        AddressFamily::Inet,
        SockType::Datagram,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
}

/// The name as `ifreq` has it: padded with at least one zero.
fn ifr_name(interface: &str) -> Result<[libc::c_char; libc::IFNAMSIZ], Errno> {
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(Errno::ENODEV);
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Ok(name)
}

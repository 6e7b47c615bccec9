//! Receive queues in use, by the ethtool ioctl. Netlink tells how many were allocated, and only the driver knows how many are used.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

/// Commands that ask (linux/ethtool.h).
#[derive(Clone, Copy)]
#[repr(u32)]
enum Question {
    /// `ETHTOOL_GFLAGS`, answered by a `struct ethtool_value`.
    Flags = 0x25,
    /// `ETHTOOL_GCHANNELS`, answered by a `struct ethtool_channels`.
    Channels = 0x3c,
}

/// The words of the largest answer, `struct ethtool_channels`. All answers begin with the command.
type Answer = [u32; 9];
/// `data` of `struct ethtool_value`.
const DATA: usize = 1;
/// `rx_count` and `combined_count` of `struct ethtool_channels`.
const RX_COUNT: usize = 5;
const COMBINED_COUNT: usize = 8;
/// `ETH_FLAG_RXVLAN`, rx-vlan-offload: tags are taken off received frames.
const RXVLAN: u32 = 1 << 8;

/// The number of receive queues of `interface` in use now.
///
/// `EOPNOTSUPP` if its driver cannot tell, as with loopback and ifb. Veth tells them as `rx_count`, tun and most
/// NICs as `combined_count`.
pub(super) fn rx_queues(interface: &str) -> Result<u32, Errno> {
    let channels = ask(interface, Question::Channels)?;
    Ok(channels[RX_COUNT].saturating_add(channels[COMBINED_COUNT]))
}

/// True if `interface` takes the tags of VLANs off the frames that it receives, before an XDP program sees them (rx-vlan-offload).
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver cannot tell, `ENODEV` if there is no such interface, or what else the kernel says.
pub fn strips_vlan_tags(interface: &str) -> Result<bool, Errno> {
    Ok(ask(interface, Question::Flags)?[DATA] & RXVLAN != 0)
}

fn ask(interface: &str, question: Question) -> Result<Answer, Errno> {
    let mut answer = Answer::default();
    answer[0] = question as u32;
    let mut request = libc::ifreq {
        ifr_name: ifr_name(interface)?,
        ifr_ifru: libc::__c_anonymous_ifr_ifru {
            ifru_data: ptr::from_mut(&mut answer).cast(),
        },
    };
    // The kernel asks the network namespace in which the socket was made.
    let socket = any_socket()?;
    // SAFETY: SIOCETHTOOL reads an `ifreq` whose `ifru_data` points to a command, here one of `Question`. The kernel fills that
    // command's structure, whose fields are all `u32` and at most as many as an `Answer` has. Both live until the call has returned.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    Errno::result(result)?;
    Ok(answer)
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

//! ICMP messages about packets that were too large for a router. The XDP program redirects TCP
//! only, so ICMP goes to the kernel, which does not know xwarp's connections but gives a copy to
//! raw sockets.
//!
//! TCP reads the sockets only after a retransmission, so they cost no system call without loss. It
//! accepts a message only about bytes in flight, and never below 576 or 1280 bytes (RFC 5927).
//! Redirecting ICMP in the XDP program would withhold it from the kernel.
#![allow(unsafe_code)]

use std::ffi::OsString;
use std::mem::size_of_val;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket, sockopt,
};

use crate::packet_io::Icmp;

/// ICMP's Destination Unreachable, of which one code says that fragmentation was needed, and
/// `ICMPv6`'s Packet Too Big.
const UNREACHABLE: usize = 3;
const PACKET_TOO_BIG: usize = 2;
/// Linux: which types of messages a raw socket is not given, a bit each (`linux/icmp.h`,
/// `linux/icmpv6.h`).
const ICMP_FILTER: libc::c_int = 1;
const ICMP6_FILTER: libc::c_int = 1;
/// Bytes of a message that are looked at: headers, and those of the packet that was too large.
const LONGEST: usize = 256;

/// Raw sockets for both protocols, on one interface.
pub(crate) struct IcmpSockets {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl IcmpSockets {
    /// Opens them in the network namespace of the calling thread. Needs `CAP_NET_RAW`.
    pub(crate) fn open(interface: &str) -> nix::Result<Self> {
        let v4 = raw(AddressFamily::Inet, SockProtocol::Icmp, interface)?;
        let blocked = !(1_u32 << UNREACHABLE);
        filter(&v4, (libc::SOL_RAW, ICMP_FILTER), &[blocked])?;
        let v6 = raw(AddressFamily::Inet6, SockProtocol::IcmpV6, interface)?;
        let mut blocked = [u32::MAX; 8];
        blocked[0] &= !(1 << PACKET_TOO_BIG);
        filter(&v6, (libc::IPPROTO_ICMPV6, ICMP6_FILTER), &blocked)?;
        Ok(Self { v4, v6 })
    }

    /// The oldest message that was not taken yet.
    pub(crate) fn next(&self) -> Option<Icmp> {
        if let Some(packet) = take(&self.v4) {
            // The IPv4 header comes along, and says how long it is in units of four bytes.
            let header = packet.first().map_or(0, |byte| usize::from(byte & 15) * 4);
            return Some(Icmp::V4(packet.get(header..).unwrap_or_default().to_vec()));
        }
        take(&self.v6).map(Icmp::V6)
    }
}

fn raw(family: AddressFamily, protocol: SockProtocol, interface: &str) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Raw, flags, protocol)?;
    setsockopt(&fd, sockopt::BindToDevice, &OsString::from(interface))?;
    Ok(fd)
}

/// Sets the types that a socket is not given.
fn filter(
    fd: &OwnedFd,
    (level, name): (libc::c_int, libc::c_int),
    blocked: &[u32],
) -> nix::Result<()> {
    let len = libc::socklen_t::try_from(size_of_val(blocked)).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the descriptor is open as `fd` is borrowed; the kernel reads `len` bytes, which are
    // those of `blocked`, a borrowed slice of plain integers, and keeps no pointer.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, blocked.as_ptr().cast(), len) };
    Errno::result(result).map(drop)
}

/// The oldest message of a socket, cut to what is looked at.
fn take(fd: &OwnedFd) -> Option<Vec<u8>> {
    let mut message = vec![0; LONGEST];
    // Whatever else the kernel says than that there is none, the socket is of no use, and TCP goes
    // on without it.
    let len = recv(fd.as_raw_fd(), &mut message, MsgFlags::MSG_DONTWAIT).ok()?;
    message.truncate(len);
    Some(message)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use xwarp_test_kit::{eventually, needs_root};

    use crate::net::testbed::{NEAR, Testbed};

    fn route_through_a_narrow_link(bed: &Testbed) {
        bed.far.sh(
            "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
             ip link add narrow mtu 1400 type veth peer name end mtu 1400
             ip link set narrow up
             ip link set end up
             ip addr add fd77::2/64 dev xwn1 nodad 2>/dev/null || true
             ip route add 10.99.0.0/24 dev narrow
             ip route add fd99::/64 dev narrow",
        );
        bed.near.sh("ip route add 10.99.0.0/24 via 10.77.0.2
             ip route add fd99::/64 via fd77::2");
    }

    /// Packets of 2000 bytes from near, whose MTU is 3000, to nets behind a link of far's that
    /// takes 1400.
    #[test]
    fn router_tells_that_a_packet_was_too_large_and_nothing_else_is_heard() {
        needs_root!();
        let bed = Testbed::new();
        route_through_a_narrow_link(&bed);
        let sockets = bed.near.run(|| IcmpSockets::open(NEAR)).unwrap();
        bed.near
            .sh("ping -q -c 2 -i 0.2 10.77.0.2 >/dev/null; ping -q -c 2 -i 0.2 fd77::2 >/dev/null");
        assert_eq!(sockets.next(), None, "no echo replies");
        bed.near
            .sh("ping -q -c 1 -W 1 -M do -s 1972 10.99.0.1 >/dev/null || true");
        eventually("fragmentation needed", || match sockets.next() {
            Some(Icmp::V4(message)) => {
                assert_eq!(message[..2], [3, 4]);
                assert_eq!(message[6..8], 1400_u16.to_be_bytes());
                assert_eq!((message[8], &message[24..28]), (0x45, &[10, 99, 0, 1][..]));
                true
            }
            None => false,
            other => panic!("{other:?}"),
        });
        bed.near
            .sh("ping -q -c 1 -W 1 -M do -s 1952 fd99::1 >/dev/null || true");
        eventually("packet too big", || match sockets.next() {
            Some(Icmp::V6(message)) => {
                assert_eq!(message[..2], [2, 0]);
                assert_eq!(message[4..8], 1400_u32.to_be_bytes());
                assert_eq!(message[8] >> 4, 6);
                true
            }
            None => false,
            other => panic!("{other:?}"),
        });
    }
}

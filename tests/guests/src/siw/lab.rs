//! The Ethernet of a test: namespace `xwiop-net` with a bridge, `xwiop-a` with the interface for
//! xwarp, and cables for guests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use xwarp_system_tests::impair::Rule;
use xwarp_system_tests::{DEV, Exclusive, Host, WorkDir};

use crate::siw::impaired::Impaired;
use crate::siw::packet_socket::packet_socket;
use crate::siw::recorder::Recorder;

/// Held while a lab exists.
const LOCK: &str = "/run/xwarp-interop-tests.lock";
/// Guests that a lab has cables for.
pub(crate) const GUESTS: u8 = 2;
/// The address of the host that xwarp runs on.
pub const XWARP_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 100));
/// The same host's address of IPv6.
pub const XWARP_ADDRESS_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, 0x100));

/// The largest IP packet at either end, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mtus {
    /// Of xwarp's interface.
    pub xwarp: u32,
    /// Of the guests'.
    pub guests: u32,
}

impl Mtus {
    /// The same everywhere.
    pub fn all(mtu: u32) -> Self {
        Self {
            xwarp: mtu,
            guests: mtu,
        }
    }
}

impl Default for Mtus {
    /// Ethernet's.
    fn default() -> Self {
        Self::all(1500)
    }
}

/// The namespaces. They go with the value, and so do the files in `work`.
pub struct Lab {
    /// Where xwarp runs: its interface is [`DEV`].
    pub xwarp: Host,
    /// For files.
    pub work: WorkDir,
    switch: Host,
    mtus: Mtus,
    _lock: Exclusive,
}

impl Lab {
    /// A lab with an MTU of 1500.
    pub fn new() -> Self {
        Self::with_mtus(Mtus::default())
    }

    /// A lab with these MTUs. Waits until no other test has any, and removes what a killed one
    /// left.
    pub fn with_mtus(mtus: Mtus) -> Self {
        let lock = Exclusive::wait_for(LOCK);
        let [switch, xwarp] = ["xwiop-net", "xwiop-a"].map(Host::new);
        let lab = Self {
            xwarp,
            work: WorkDir::new("xwiop"),
            switch,
            mtus,
            _lock: lock,
        };
        lab.make_bridge();
        for guest in 1..=GUESTS {
            lab.make_cable(guest);
        }
        lab.connect_xwarp();
        lab
    }

    fn make_bridge(&self) {
        self.switch.ip("link add br0 type bridge mcast_snooping 0");
        let largest = self.mtus.xwarp.max(self.mtus.guests);
        enable(&self.switch, "br0", largest);
    }

    /// A cable whose far end becomes the network card of a guest.
    fn make_cable(&self, guest: u8) {
        let (port, card) = (port(guest), card(guest));
        self.switch
            .ip(&format!("link add {port} type veth peer name {card}"));
        self.switch.ip(&format!("link set {port} master br0"));
        enable(&self.switch, &port, self.mtus.guests);
        enable(&self.switch, &card, self.mtus.guests);
    }

    fn connect_xwarp(&self) {
        let far = self.xwarp.name();
        self.switch.ip(&format!(
            "link add port0 type veth peer name {DEV} netns {far}"
        ));
        self.switch.ip("link set port0 master br0");
        enable(&self.switch, "port0", self.mtus.xwarp);
        enable(&self.xwarp, DEV, self.mtus.xwarp);
        self.xwarp.ip("link set lo up");
        self.xwarp.ip(&format!("addr add 10.78.0.100/24 dev {DEV}"));
        self.xwarp
            .ip(&format!("addr add fd78::100/64 dev {DEV} nodad"));
    }

    /// The largest IP packets.
    pub fn mtus(&self) -> Mtus {
        self.mtus
    }

    /// Pulls a guest's cable out at the bridge; [`Lab::plug_in`] puts it back. The guest's card
    /// sees nothing of it.
    pub fn pull_out(&self, guest: u8) {
        self.switch
            .ip(&format!("link set {} nomaster", port(guest)));
    }

    /// Puts a cable back.
    pub fn plug_in(&self, guest: u8) {
        self.switch
            .ip(&format!("link set {} master br0", port(guest)));
    }

    /// The namespace that guests' processes are in.
    pub(crate) fn switch(&self) -> &Host {
        &self.switch
    }

    /// Impairs what xwarp and guest 1 send, as long as the value lives.
    pub fn impair(&self, rule: &Rule) -> Impaired<'_> {
        Impaired::new(&self.switch, ["port0", &port(1)], rule)
    }

    /// The frames of a guest's network card.
    pub(crate) fn network_card(&self, guest: u8) -> OwnedFd {
        self.switch.run(|| packet_socket(&card(guest)))
    }

    /// Records what passes a guest's cable, both ways.
    pub fn record(&self, guest: u8) -> Recorder {
        let frames = self.switch.run(|| packet_socket(&port(guest)));
        Recorder::start(frames, self.work.file(&format!("guest{guest}.pcap")))
    }
}

/// Brings an interface up, so that it carries what a wire would. That is complete checksums, no
/// packet above the MTU, and nothing of this machine's own making.
pub(crate) fn enable(host: &Host, interface: &str, mtu: u32) {
    host.switch_off(interface, &["tx", "sg", "tso", "gso", "gro"]);
    host.ip(&format!("link set {interface} addrgenmode none"));
    host.ip(&format!("link set {interface} mtu {mtu} up"));
}

impl Default for Lab {
    fn default() -> Self {
        Self::new()
    }
}

/// The bridge's port for a guest.
pub(crate) fn port(guest: u8) -> String {
    format!("port{guest}")
}

fn card(guest: u8) -> String {
    format!("card{guest}")
}

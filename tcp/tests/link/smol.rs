//! smoltcp's socket as a peer: an independent implementation of TCP.

use std::time::Duration;

use smoltcp::iface::{self, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::wire::{HardwareAddress, IpCidr, IpEndpoint};
use xwarp_driver::{MemoryIo, PacketIo, RxFrame, TxFrame, Wire};
use xwarp_tcp::{Instant, StackConfig};
use xwarp_test_kit::netsim::{Link, Seed};
use xwarp_test_kit::{Side, pattern_of};

use crate::pair::{FRAMES, StackTransfer, Transfer, address, run};

/// Bytes of an untagged Ethernet header.
const ETHERNET: usize = 14;

/// The packet interface as smoltcp sees it.
struct Port {
    io: MemoryIo,
    side: Side,
}

struct RxToken(Vec<u8>);

struct TxToken<'a>(&'a mut Port);

impl Device for Port {
    type RxToken<'a> = RxToken;
    type TxToken<'a> = TxToken<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(RxToken, TxToken<'_>)> {
        let mut frames: Vec<RxFrame> = Vec::new();
        self.io.receive(1, &mut frames);
        let frame = frames.pop()?;
        let packet = frame[ETHERNET..].to_vec();
        self.io.recycle(frame);
        Some((RxToken(packet), TxToken(self)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<TxToken<'_>> {
        Some(TxToken(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

impl phy::RxToken for RxToken {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame: TxFrame = self.0.io.tx_frame().expect("it keeps none");
        frame.set_len(ETHERNET + len);
        let (header, packet) = frame.split_at_mut(ETHERNET);
        header[..6].copy_from_slice(&self.0.side.other().mac());
        header[6..12].copy_from_slice(&self.0.side.mac());
        header[12..].copy_from_slice(&[0x08, 0x00]);
        let result = f(packet);
        self.0.io.send(frame);
        result
    }
}

/// A side that uses smoltcp's socket.
struct SmolTransfer {
    port: Port,
    iface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    outbox: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    now: Instant,
}

fn to_smoltcp(now: Instant) -> smoltcp::time::Instant {
    let micros = i64::try_from(now.since_origin().as_micros()).unwrap();
    smoltcp::time::Instant::from_micros(micros)
}

impl SmolTransfer {
    fn new(side: Side, outbox: Vec<u8>, now: Instant) -> (Self, Wire) {
        let (io, wire) = MemoryIo::new(FRAMES).unwrap();
        let mut port = Port { io, side };
        let config = iface::Config::new(HardwareAddress::Ip);
        let mut iface = Interface::new(config, &mut port, to_smoltcp(now));
        let own = IpEndpoint::from(address(side)).addr;
        iface.update_ip_addrs(|addrs| addrs.extend([IpCidr::new(own, 8)]));
        let ring = || SocketBuffer::new(vec![0; 65_536]);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(Socket::new(ring(), ring()));
        let end = Self {
            port,
            iface,
            sockets,
            socket,
            outbox,
            sent: 0,
            received: Vec::new(),
            now,
        };
        (end, wire)
    }

    fn tcp(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    fn listen(&mut self) {
        self.tcp()
            .listen(IpEndpoint::from(address(Side::B)))
            .unwrap();
    }

    fn connect(&mut self) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let (remote, local) = (address(Side::B), address(Side::A));
        let context = self.iface.context();
        socket
            .connect(context, IpEndpoint::from(remote), IpEndpoint::from(local))
            .unwrap();
    }
}

impl SmolTransfer {
    /// Reads all readable bytes and writes what has room. Returns the number of bytes moved.
    fn exchange(&mut self) -> usize {
        let (sent, before) = (self.sent, self.received.len());
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let received = &mut self.received;
        while socket.can_recv() {
            let taken = socket.recv(|ring| {
                received.extend_from_slice(ring);
                (ring.len(), ())
            });
            taken.unwrap();
        }
        if socket.can_send() && sent < self.outbox.len() {
            self.sent += socket.send_slice(&self.outbox[sent..]).unwrap();
        }
        if self.sent == self.outbox.len() && socket.may_send() {
            socket.close();
        }
        self.sent - sent + self.received.len() - before
    }
}

impl Transfer for SmolTransfer {
    fn step(&mut self, now: Instant) -> usize {
        self.now = now;
        let moved = self
            .iface
            .poll(to_smoltcp(now), &mut self.port, &mut self.sockets);
        let bytes = self.exchange();
        bytes + usize::from(moved == iface::PollResult::SocketStateChanged)
    }

    fn next_deadline(&self) -> Option<Instant> {
        // `poll_at` needs `&mut self`. A tick that is short compared with smoltcp's timers serves
        // as well.
        Some(self.now + Duration::from_millis(1))
    }

    fn received(&self) -> &[u8] {
        &self.received
    }

    fn is_done(&self) -> bool {
        let state = self.sockets.get::<Socket<'_>>(self.socket).state();
        self.sent == self.outbox.len() && matches!(state, State::Closed | State::TimeWait)
    }

    fn report(&self) -> String {
        let state = self.sockets.get::<Socket<'_>>(self.socket).state();
        format!(
            "smoltcp: sent {} of {}, received {}, {state}",
            self.sent,
            self.outbox.len(),
            self.received.len()
        )
    }
}

/// Carries bytes both ways between a stack and smoltcp, which connects or listens.
fn both_ways(seed: Seed, smol_connects: bool, conditions: impl FnOnce(Link) -> Link) {
    let data = [pattern_of(1, 80_000), pattern_of(2, 60_000)];
    let now = Instant::ORIGIN + Duration::from_secs(1);
    let side = if smol_connects { Side::B } else { Side::A };
    let config = StackConfig::default();
    let (mut ours, wire) = StackTransfer::new(side, data[0].clone(), &config);
    let (mut smol, smol_wire) = SmolTransfer::new(side.other(), data[1].clone(), now);
    if smol_connects {
        ours.listen();
        smol.connect();
    } else {
        smol.listen();
        ours.connect(now);
    }
    run(&mut ours, &mut smol, [wire, smol_wire], seed, conditions);
    let intact = ours.received() == &data[1][..] && smol.received() == &data[0][..];
    assert!(intact, "{seed:?}: {} | {}", ours.report(), smol.report());
}

#[test]
fn smoltcp_is_understood_on_a_clean_link_in_both_roles() {
    for smol_connects in [true, false] {
        both_ways(Seed(1), smol_connects, |link| {
            link.one_way_delay(Duration::from_micros(200))
        });
    }
}

#[test]
fn smoltcp_is_understood_on_a_rough_link_in_both_roles() {
    for seed in 0..8 {
        for smol_connects in [true, false] {
            both_ways(Seed(seed), smol_connects, |link| {
                link.one_way_delay(Duration::from_micros(200))
                    .loss(0.02)
                    .reorder(0.02, Duration::from_millis(1))
                    .duplicate(0.02)
            });
        }
    }
}

//! Frames by a software switch, from one client's file into another's: what the switch does between
//! them is counted, and not what the clients do.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use xwarp_driver::switch::{Attached, Reply, Request, Server, ServerConfig, SwitchClient};
use xwarp_driver::{PacketIo, Signal};
use xwarp_test_kit::WorkDir;

use crate::cases::FPDUS;

/// The names of what is counted, [`FPDUS`] frames each, by bytes of TCP's payload.
pub(crate) const NAMES: [&str; 2] = ["switch_64", "switch_1448"];
/// Frames in a turn of the switch.
const BURST: usize = 50;
/// Bytes of Ethernet, IPv4 and TCP headers.
const HEADERS: usize = 54;
const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A client with a port.
struct Client {
    attached: Attached,
    at: SocketAddr,
}

impl Client {
    fn attach(path: &Path) -> Self {
        let attached = SwitchClient::attach(path, None).expect("a switch");
        let any = SocketAddr::new(IpAddr::V4(ADDRESS), 0);
        let opened = attached.client.ask(Request::OpenPort(any));
        let Ok(Reply::Port(at)) = opened else {
            panic!("no port: {opened:?}")
        };
        Self { attached, at }
    }

    fn send_burst(&mut self, to: SocketAddr, payload: usize) {
        let io = &mut self.attached.io;
        for _ in 0..BURST {
            let mut frame = io.tx_frame().expect("a frame");
            frame.set_len(HEADERS + payload);
            write_headers(&mut frame, self.at, to);
            io.send(frame);
        }
        io.flush().expect("it never fails");
    }

    fn receive_burst(&mut self) {
        let mut frames = Vec::new();
        self.attached.io.receive(BURST, &mut frames);
        assert_eq!(frames.len(), BURST);
        for frame in frames {
            self.attached.io.recycle(frame);
        }
        self.attached.io.flush().expect("it never fails");
    }
}

/// Headers of a segment with ACK. The switch looks at no checksum.
fn write_headers(frame: &mut [u8], from: SocketAddr, to: SocketAddr) {
    let total = u16::try_from(frame.len() - 14).expect("a packet");
    frame[..HEADERS].fill(0);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = 6;
    frame[26..30].copy_from_slice(&ADDRESS.octets());
    frame[30..34].copy_from_slice(&ADDRESS.octets());
    frame[34..36].copy_from_slice(&from.port().to_be_bytes());
    frame[36..38].copy_from_slice(&to.port().to_be_bytes());
    frame[46..48].copy_from_slice(&[0x50, 0x10]);
}

/// Two clients, whose frames all go by the switch that is returned and runs no longer.
fn attach(path: &Path) -> (Server, [Client; 2]) {
    let config = ServerConfig::new("bench", vec![IpAddr::V4(ADDRESS)]);
    let mut server = Server::bind(path, config).expect("a socket");
    let stop = Signal::new().expect("a descriptor");
    let stopped: OwnedFd = stop.as_fd().try_clone_to_owned().expect("a descriptor");
    let runs = std::thread::spawn(move || {
        server.run(stopped.as_fd()).expect("it runs");
        server
    });
    let clients = [Client::attach(path), Client::attach(path)];
    stop.raise();
    (runs.join().expect("no panic"), clients)
}

#[inline(never)]
fn switch_64(server: &mut Server) {
    black_box("64");
    assert_eq!(server.turn(), BURST);
}

#[inline(never)]
fn switch_1448(server: &mut Server) {
    black_box("1448");
    assert_eq!(server.turn(), BURST);
}

type Work = fn(&mut Server);

pub(crate) fn count() {
    let folder = WorkDir::new("xwarp-bench-switch");
    let (mut server, [mut a, mut b]) = attach(&folder.file("s.sock"));
    let works: [(usize, Work); 2] = [(64, switch_64), (1448, switch_1448)];
    for (payload, work) in works {
        // The first burst makes what is made once, and is counted under no name.
        a.send_burst(b.at, payload);
        assert_eq!(server.turn(), BURST);
        b.receive_burst();
        for _ in 0..FPDUS / BURST {
            a.send_burst(b.at, payload);
            work(&mut server);
            b.receive_burst();
        }
    }
}

//! What a switch has of clients that have gone: nothing. The only test of its program, whose
//! descriptors and mappings it counts.
#![cfg(not(miri))]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use xwarp_driver::switch::{Reply, Request, Server, ServerConfig, SwitchClient};
use xwarp_test_kit::{WorkDir, eventually};

/// Descriptors and mappings of this process.
fn taken() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
    (descriptors, maps.matches("memfd:").count())
}

#[test]
fn nothing_is_left_of_1000_clients_that_have_gone() {
    let folder = WorkDir::new("xwarp-attaches");
    let path = folder.file("s.sock");
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut server =
        Server::bind(&path, ServerConfig::new("xw0", vec![address])).expect("a socket");
    let (stop, stopped) = UnixStream::pair().expect("a pair");
    let stopped: OwnedFd = stopped.into();
    let switch = std::thread::spawn(move || server.run(stopped.as_fd()));
    let attach = |count: usize| {
        let clients: Vec<_> = (0..count)
            .map(|_| {
                let attached = SwitchClient::attach(&path, None).expect("a place");
                let any = Request::OpenPort(SocketAddr::new(address, 0));
                (attached.client.ask(any).expect("a port"), attached)
            })
            .collect();
        let Reply::Port(at) = clients[0].0 else {
            panic!("another reply");
        };
        // Each but the first has a pair with the first.
        for (_, attached) in &clients {
            attached.client.ask(Request::Hop(at)).expect("a hop");
        }
    };
    let before = taken();
    for _ in 0..500 {
        attach(2);
    }
    // Each has a place of its own.
    attach(64);
    eventually("descriptors and memory are free", || taken() == before);
    drop(stop);
    switch.join().expect("no panic").expect("it runs");
}

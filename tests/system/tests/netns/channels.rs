//! Frames that arrive on queues that no engine serves, as after `ethtool -L` or `ethtool -X`.

use std::net::SocketAddr;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;
use xwarp::config::{NicConfig, Progress, Queues, XdpMode};
use xwarp::{CompletionQueue, Opcode, QpConfig, Rnic, RnicConfig};
use xwarp_system_tests::{DEV, Host, Hosts, Shape, TIMEOUT, eventually};
use xwarp_test_kit::{End, needs_root, next_success, pattern_of};

/// Receive queues of each interface.
const MOST: u32 = 4;
/// Those that the server's RNIC serves.
const SERVED: u32 = 2;
/// Connections. Each has its queue by chance, and is served with a chance of one half: all are once
/// in 2^16 times.
const CONNECTIONS: u64 = 16;
/// Bytes of each message, which takes several segments.
const LEN: u32 = 20_000;

/// Two hosts with a switch between them, which spreads frames over the queues that the server
/// serves.
fn hosts() -> Hosts {
    let hosts = Hosts::shaped(Shape {
        queues: MOST,
        switched: true,
        ..Shape::default()
    });
    hosts.spread_over(SERVED);
    hosts
}

fn open_client(host: &Host) -> Rnic {
    open(host, NicConfig::default().engines(Some(2)))
}

fn open(host: &Host, nic: NicConfig) -> Rnic {
    let config = RnicConfig::default().nic(nic).progress(Progress::Thread);
    host.run(|| Rnic::open(DEV, &config)).expect("an RNIC")
}

fn end(rnic: &Rnic, cq: &CompletionQueue, which: u64) -> End {
    let pd = rnic.allocate_pd().expect("a protection domain");
    let mut end = End::new(&pd, cq, &QpConfig::default(), LEN as usize);
    let bytes = pattern_of(which, LEN as usize);
    end.source.bytes().write(0, &bytes).expect("its length");
    end.post_recv(which, LEN);
    end
}

/// Connected ends, those of the client first.
fn connect(hosts: &Hosts, rnics: &[Rnic; 2], cqs: &[CompletionQueue; 2]) -> [Vec<End>; 2] {
    let server = SocketAddr::new(Hosts::SERVER, 7471);
    let mut listener = hosts.b.run(|| rnics[1].listen(server)).expect("a port");
    let ends = |side: usize| (0..CONNECTIONS).map(move |id| end(&rnics[side], &cqs[side], id));
    let [mut near, mut far]: [Vec<End>; 2] = [0, 1].map(|side| ends(side).collect());
    for (initiator, responder) in near.iter_mut().zip(&mut far) {
        thread::scope(|scope| {
            scope.spawn(|| responder.accept(&mut listener, b""));
            let connected = hosts.a.run(|| initiator.qp.connect(server, b"", TIMEOUT));
            connected.expect("a connection");
        });
    }
    [near, far]
}

/// Frames that arrived on queues that no engine serves, as `xwarp status` counts them.
fn unserved(host: &Host) -> u64 {
    let told = host.xwarp(&format!("status {DEV} --json")).succeeded();
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let count = &told["counters"]["drop_unserved_queue"];
    count.as_u64().expect("a count")
}

/// Messages arrive on all connections, although frames arrive on queues that no engine serves from
/// `spread` until `gather`. The kernel must not get these frames: it does not know the connections,
/// and would reset them.
fn outlive(hosts: &Hosts, rnics: &[Rnic; 2], spread: impl FnOnce(), gather: impl FnOnce()) {
    let mut cqs = rnics
        .each_ref()
        .map(|rnic| rnic.create_cq(256).expect("a queue"));
    let [mut near, far] = connect(hosts, rnics, &cqs);
    spread();
    for (id, end) in (0..).zip(&mut near) {
        end.post(end.send(id, LEN));
    }
    eventually("frames come to a queue that nobody serves", || {
        unserved(&hosts.b) > 0
    });
    gather();
    for _ in 0..CONNECTIONS {
        assert_eq!(next_success(&mut cqs[1]).opcode, Opcode::Receive);
        assert_eq!(next_success(&mut cqs[0]).opcode, Opcode::Send);
    }
    for (id, end) in (0..).zip(&far) {
        let same = end.sink.bytes().to_vec() == pattern_of(id, LEN as usize);
        assert!(same, "connection {id}");
    }
}

#[test]
fn connections_outlive_frames_at_queues_that_nobody_serves() {
    needs_root!();
    let hosts = hosts();
    let served = Queues::Some {
        first: 0,
        count: SERVED,
    };
    let nic = NicConfig::default().queues(served).engines(Some(2));
    let rnics = [open_client(&hosts.a), open(&hosts.b, nic)];
    outlive(
        &hosts,
        &rnics,
        || hosts.spread_over(MOST),
        || hosts.spread_over(SERVED),
    );
}

/// In generic mode, as with the drivers of most NICs, queues that are added have the program. Those
/// of veth in native mode do not. A frame that leaves the switch by queue 2 or 3 comes to queue 1
/// or 2 then, and any other one to queue 0.
#[test]
fn connections_outlive_queues_that_are_added_under_them() {
    needs_root!();
    let hosts = hosts();
    hosts.b.set_channels("rx 1");
    let nic = NicConfig::default().mode(Some(XdpMode::Generic));
    let rnics = [open_client(&hosts.a), open(&hosts.b, nic)];
    let spread = || {
        hosts.b.set_channels(&format!("rx {MOST}"));
        hosts.spread_over(MOST);
    };
    let gather = || {
        hosts.spread_over(1);
        hosts.b.set_channels("rx 1");
    };
    outlive(&hosts, &rnics, spread, gather);
}

#[test]
fn change_of_the_queues_is_said_and_traffic_goes_on() {
    needs_root!();
    let hosts = hosts();
    hosts.b.set_channels(&format!("rx {SERVED}"));
    let mut server = hosts
        .b
        .start(&format!("ping --dev {DEV} --persistent --quiet"));
    server.line("waiting for a client at ");
    let mut client = hosts
        .a
        .start("ping 10.77.0.2 --count 1000000 --interval 5ms");
    let mut pinged = 0;
    for (channels, says) in [
        (MOST, "eth1 now has 4 receive queues instead of 2: "),
        (SERVED, "eth1 now has 2 receive queues instead of 4: "),
    ] {
        hosts.b.set_channels(&format!("rx {channels}"));
        eventually(says, || server.complained().contains(says));
        pinged += 100;
        client.line(&format!("ping {pinged:5}  verified "));
    }
    assert!(server.complained().contains("`ethtool -L eth1 rx 2`"));
    client.signal(Signal::SIGINT);
    client.finish().exited(130);
    server.signal(Signal::SIGINT);
    server.finish().exited(130);
}

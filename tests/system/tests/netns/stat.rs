//! `xwarp stat`.

use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use xwarp::RnicConfig;
use xwarp::config::Progress;
use xwarp_system_tests::{Case, DEV, Hosts, Mode, Setup, Way, eventually};
use xwarp_test_kit::needs_root;

/// A port of the server's.
const PORT: u16 = 7471;
const NONE: &str = "no RNIC runs on eth1: start a program that opens one there";
/// Default number of chunks to receive into, and of frames to send.
const EACH: u64 = 2048;
/// Counters that every transfer raises.
const RISING: [&str; 4] = ["rx_frames", "segments_in", "fpdus_in", "placed_bytes"];
/// How long an RNIC's end may take to be seen.
const END_LIMIT: Duration = Duration::from_secs(5);

/// A run that goes on until it is ended.
fn endless() -> Case {
    Case {
        client: "--duration 600s".to_owned(),
        size: 4096,
        ..Case::new("write-bw")
    }
}

/// What the one engine of the server's host shows.
fn shown(hosts: &Hosts) -> Value {
    let asked = hosts.b.xwarp(&format!("stat {DEV} --once --json"));
    let told: Value = serde_json::from_str(&asked.succeeded().stdout).expect("JSON");
    assert_eq!(told["dev"], DEV, "{told}");
    let queues = told["queues"].as_array().expect("a list");
    assert_eq!(queues.len(), 1, "{told}");
    queues[0].clone()
}

fn number(told: &Value, group: &str, name: &str) -> u64 {
    let value = told[group][name].as_u64();
    value.unwrap_or_else(|| panic!("no {group} {name}: {told}"))
}

fn has_none(hosts: &Hosts) {
    hosts
        .b
        .xwarp(&format!("stat {DEV} --once"))
        .refused(&[NONE]);
}

/// Every chunk and every frame is somewhere.
fn adds_up(told: &Value) {
    let chunks = ["rx_chunks_lent", "rx_chunks_spare", "rx_chunks_held"];
    let frames = ["tx_frames_free", "tx_frames_in_flight", "tx_frames_kept"];
    for names in [chunks, frames] {
        let there: u64 = names.iter().map(|name| number(told, "levels", name)).sum();
        assert_eq!(there, EACH, "{names:?}: {told}");
    }
    assert!(number(told, "levels", "rx_chunks_lent") > 0, "{told}");
}

#[test]
fn running_rnic_shows_its_counters_rings_and_verdicts() {
    needs_root!();
    let hosts = Hosts::new();
    for way in [Way::Itself, Way::IpLink] {
        let setup = Setup::new(&hosts, way, Mode::Native);
        let (mut server, client) = setup.begin(&endless());
        let first = shown(&hosts);
        assert_eq!(first["queue"], 0, "{first}");
        assert_eq!(first["process"], server.id(), "{first}");
        eventually("counters rise", || {
            let now = shown(&hosts);
            let rises = |name| number(&now, "counters", name) > number(&first, "counters", name);
            RISING.into_iter().all(rises)
        });
        let told = shown(&hosts);
        assert!(number(&told, "verdicts", "redirected") > 0, "{told}");
        adds_up(&told);
        server.signal(Signal::SIGTERM);
        server
            .finish_within(END_LIMIT)
            .interrupted_by(Signal::SIGTERM);
        client.finish_within(END_LIMIT).refused(&[]);
        has_none(&hosts);
    }
}

/// What it shows at rest is what it has counted, to the last frame.
#[test]
fn idle_rnic_shows_all_that_it_has_counted() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    let config = RnicConfig::default().progress(Progress::Thread);
    let rnic = hosts.b.open(config);
    let listen = || rnic.listen((Hosts::SERVER, PORT).into());
    let _listener = hosts.b.run(listen).expect("a port");
    let connect = || TcpStream::connect((Hosts::SERVER, PORT));
    drop(hosts.a.run(connect).expect("a listener"));
    eventually("all is shown", || {
        let counted = rnic.counters().expect("an engine");
        let told = shown(&hosts);
        counted.io.rx_frames > 0
            && number(&told, "counters", "rx_frames") == counted.io.rx_frames
            && number(&told, "counters", "tx_frames") == counted.io.tx_frames
    });
    rnic.close().expect("open");
    has_none(&hosts);
}

#[test]
fn tables_come_until_the_rnic_ends() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let (mut server, client) = setup.begin(&endless());
    let mut stat = hosts.b.start(&format!("stat {DEV}"));
    let heading = stat.line("queue");
    let line = stat.line("    0 ");
    let rate: u64 = heading
        .split_whitespace()
        .zip(line.split_whitespace())
        .find_map(|(name, value)| (name == "rx/s").then(|| value.parse().expect("a number")))
        .expect("the column");
    assert!(rate > 0, "{heading}\n{line}");
    server.signal(Signal::SIGTERM);
    stat.finish_within(END_LIMIT).refused(&[NONE]);
    server
        .finish_within(END_LIMIT)
        .interrupted_by(Signal::SIGTERM);
    client.finish_within(END_LIMIT).refused(&[]);
}

/// A program that stays keeps the board of a process that was killed. `xwarp stat` ignores this
/// board.
#[test]
fn killed_rnic_shows_nothing() {
    needs_root!();
    let hosts = Hosts::new();
    for way in [Way::Itself, Way::IpLink] {
        let setup = Setup::new(&hosts, way, Mode::Native);
        let (mut server, client) = setup.begin(&endless());
        eventually("frames are shown", || {
            number(&shown(&hosts), "counters", "rx_frames") > 0
        });
        server.signal(Signal::SIGKILL);
        server.finish().killed_by(Signal::SIGKILL);
        has_none(&hosts);
        drop(client);
    }
}

#[test]
fn interface_without_an_rnic_is_said_so() {
    needs_root!();
    let hosts = Hosts::new();
    has_none(&hosts);
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    has_none(&hosts);
    hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
    let pass = hosts.pass_object();
    hosts.b.ip(&format!(
        "link set dev {DEV} xdp obj {} sec xdp",
        pass.display()
    ));
    hosts
        .b
        .xwarp(&format!("stat {DEV}"))
        .refused(&["which is not xwarp's"]);
    hosts
        .b
        .xwarp("stat nope")
        .refused(&["no interface is named"]);
}

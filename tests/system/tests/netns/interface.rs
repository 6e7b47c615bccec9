//! The interface changes, or is taken away, under a server and a client: both notice, say what has
//! happened, and go on or end.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xwarp_system_tests::{
    Case, DEV, Finished, Host, Hosts, Mode, Running, Setup, Way, eventually, eventually_within,
};
use xwarp_test_kit::needs_root;

/// Within which an RNIC is to notice: a second, which a busy machine may make longer. What notices
/// nothing goes on for longer, or says something else.
const NOTICE: Duration = Duration::from_secs(10);
/// How long a run may take to end by itself afterwards, on a busy machine.
const END: Duration = Duration::from_secs(10);

fn serve(hosts: &Hosts, options: &str) -> Running {
    let mut server = hosts
        .b
        .start(&format!("ping --dev {DEV} --persistent --quiet {options}"));
    server.line("waiting for a client at ");
    server
}

fn ping(hosts: &Hosts, address: &str) -> Finished {
    hosts.a.xwarp(&format!("ping {address} --count 2 --quiet"))
}

/// A client that pings until it is ended.
fn endless(hosts: &Hosts) -> Running {
    let mut client = hosts
        .a
        .start("ping 10.77.0.2 --count 1000000 --interval 5ms");
    client.line("ping     9  verified ");
    client
}

/// Fails unless `says` is on the standard error within the time in which an RNIC is to notice.
fn notices(running: &Running, says: &str) {
    let since = Instant::now();
    let noticed = eventually_within(NOTICE, || running.complained().contains(says));
    assert!(
        noticed,
        "{says:?} not within {NOTICE:?}: {}",
        running.complained()
    );
    println!("{says:?} after {:?}", since.elapsed());
}

/// Fails unless it ends by itself and says why, within the time in which an RNIC is to notice and a
/// moment.
fn fails_saying(mut running: Running, says: &str) {
    let since = Instant::now();
    let ended = eventually_within(NOTICE, || running.has_ended());
    println!("ended after {:?}", since.elapsed());
    assert!(ended, "{says:?}: it has not ended within {NOTICE:?}");
    let finished = running.finish().exited(1);
    let last = finished.stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("xwarp: ") && last.contains(says),
        "{says:?}: {finished}"
    );
}

fn link(host: &Host, what: &str) {
    host.ip(&format!("link set {DEV} {what}"));
}

fn address(host: &Host, what: &str) {
    host.ip(&format!("addr {what} dev {DEV}"));
}

/// What takes the interface of B away, and what is said of it.
type Removal = (&'static str, fn(&Hosts), &'static str);

const REMOVALS: [Removal; 2] = [
    (
        "deleted",
        |hosts| drop(hosts.b.ip(&format!("link delete {DEV}"))),
        "the RNIC has failed: eth1 was deleted",
    ),
    (
        "moved",
        |hosts| link(&hosts.b, &format!("name other9 netns {}", hosts.a.name())),
        "the RNIC has failed: eth1 was moved to another network namespace",
    ),
];

#[test]
fn idle_server_whose_interface_is_taken_away_ends_and_says_so() {
    needs_root!();
    for (what, remove, says) in REMOVALS {
        for engine in ["inline", "thread"] {
            let hosts = Hosts::new();
            let server = hosts.b.serve(&format!("write-bw --engine {engine}"));
            println!("{what}, {engine}");
            remove(&hosts);
            fails_saying(server, says);
        }
        let hosts = Hosts::new();
        let server = serve(&hosts, "");
        ping(&hosts, "10.77.0.2").succeeded();
        remove(&hosts);
        fails_saying(server, says);
    }
}

#[test]
fn transfer_ends_when_the_interface_is_taken_away() {
    needs_root!();
    for (what, remove, says) in REMOVALS {
        let hosts = Hosts::new();
        let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
        let case = Case {
            client: "--duration 600s".to_owned(),
            ..Case::new("write-bw")
        };
        let (server, client) = setup.begin(&case);
        println!("{what}");
        remove(&hosts);
        fails_saying(server, says);
        drop(client);
    }
}

/// The program of a server is replaced by another, or detached. The server, which may be busy with
/// a client, fails and says so.
fn assert_server_fails(hosts: &Hosts, engine: &str, busy: bool, replacement: Option<&Path>) {
    let program = Setup::new(hosts, Way::IpLink, Mode::Native);
    let case = Case {
        client: "--duration 600s".to_owned(),
        both: format!("--engine {engine}"),
        ..Case::new("write-bw")
    };
    let (server, client) = if busy {
        let (server, client) = program.begin(&case);
        (server, Some(client))
    } else {
        (hosts.b.serve(&format!("write-bw --engine {engine}")), None)
    };
    println!("{engine}, busy {busy}, replaced by {replacement:?}");
    let says = if let Some(object) = replacement {
        let object = object.display();
        hosts.b.ip(&format!(
            "-force link set dev {DEV} xdp obj {object} sec xdp"
        ));
        "the RNIC has failed: the XDP program on eth1 was replaced by pass (id "
    } else {
        hosts.b.ip_link_detach(Mode::Native);
        "the RNIC has failed: the XDP program was detached from eth1"
    };
    fails_saying(server, says);
    if let Some(client) = client {
        // It is reset at once by the server, or later by the server's kernel.
        client.finish_within(END).exited(1);
    }
    hosts.b.ip(&format!("link set dev {DEV} xdp off"));
    hosts.a.ip(&format!("link set dev {DEV} xdp off"));
}

#[test]
fn server_whose_program_is_detached_or_replaced_ends_and_says_so() {
    needs_root!();
    let hosts = Hosts::new();
    let foreign = hosts.pass_object();
    for engine in ["inline", "thread"] {
        for busy in [false, true] {
            for replacement in [None, Some(foreign.as_path())] {
                assert_server_fails(&hosts, engine, busy, replacement);
            }
        }
    }
    Setup::new(&hosts, Way::Itself, Mode::Native).measure(&Case::new("write-bw"));
}

#[test]
fn program_in_use_is_not_detached_unless_by_force() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    let server = serve(&hosts, "");
    hosts
        .b
        .xwarp(&format!("detach {DEV}"))
        .refused(&["a process uses the XDP program on eth1", "--force"]);
    ping(&hosts, "10.77.0.2").succeeded();
    hosts.b.xwarp(&format!("detach {DEV} --force")).succeeded();
    fails_saying(server, "the XDP program was detached from eth1");
    hosts.b.xwarp(&format!("attach {DEV}")).succeeded();
    hosts.b.xwarp(&format!("detach {DEV}")).succeeded();
    assert_eq!(hosts.b.program(), None);
}

#[test]
fn nothing_is_attached_where_no_rnic_can_be_opened() {
    needs_root!();
    let hosts = Hosts::new();
    hosts
        .b
        .xwarp("attach lo")
        .refused(&["lo is the loopback interface, which has no Ethernet frames"]);
    assert!(!hosts.b.ip("link show lo").contains("xdp"));
}

#[test]
fn link_that_is_down_for_three_seconds_costs_only_time() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = serve(&hosts, "");
    // Idle: nothing ends, and it serves afterwards.
    link(&hosts.b, "down");
    notices(&server, "eth1 is down");
    link(&hosts.b, "up");
    notices(&server, "eth1 is up again");
    ping(&hosts, "10.77.0.2").succeeded();
    server.signal(Signal::SIGINT);
    server.finish_within(END).exited(130);
    // During a transfer that is verified. The user timeout of `perf` is 10 s.
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    for down in [&hosts.a, &hosts.b] {
        let case = Case {
            client: "--duration 5s".to_owned(),
            ..Case::new("write-bw")
        };
        let (server, client) = setup.begin(&case);
        link(down, "down");
        // One end is set down, the other has lost its carrier.
        notices(&server, "eth1 is down");
        notices(&client, "eth1 is down");
        std::thread::sleep(Duration::from_secs(3)); // the outage itself
        link(down, "up");
        notices(&client, "eth1 is up again");
        let client = client.finish_within(3 * END).succeeded();
        assert!(client.stdout.contains("verified"), "{client}");
        server.finish_within(END).succeeded();
    }
    assert_eq!((hosts.a.program(), hosts.b.program()), (None, None));
}

/// As if the link went down while the RNIC was being opened.
#[test]
fn link_that_is_down_from_the_beginning_is_noticed_and_costs_only_time() {
    needs_root!();
    let hosts = Hosts::new();
    link(&hosts.a, "down");
    let mut server = serve(&hosts, "");
    notices(&server, "eth1 is down");
    link(&hosts.a, "up");
    notices(&server, "eth1 is up again");
    ping(&hosts, "10.77.0.2").succeeded();
    server.signal(Signal::SIGINT);
    server.finish_within(END).exited(130);
}

/// The user timeout of `perf` is 10 s. The engine runs in its own thread, so no application polls
/// it.
#[test]
fn outage_of_most_of_the_user_timeout_costs_only_time() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let case = Case {
        client: "--duration 9s".to_owned(),
        both: "--engine thread".to_owned(),
        ..Case::new("write-bw")
    };
    let (server, client) = setup.begin(&case);
    link(&hosts.b, "down");
    notices(&server, "eth1 is down");
    std::thread::sleep(Duration::from_secs(7)); // the outage itself
    link(&hosts.b, "up");
    notices(&client, "eth1 is up again");
    let client = client.finish_within(3 * END).succeeded();
    assert!(client.stdout.contains("verified"), "{client}");
    server.finish_within(END).succeeded();
}

#[test]
fn link_that_is_down_for_longer_than_the_user_timeout_ends_connections_and_no_server() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = serve(&hosts, "");
    let client = endless(&hosts);
    link(&hosts.b, "down");
    notices(&server, "eth1 is down");
    // The user timeout of `ping` is 10 s, the keepalive 3 s.
    client.finish_within(Duration::from_secs(25)).exited(1);
    let lost = "the connection is lost: the peer no longer answers";
    let ended = eventually_within(Duration::from_secs(25), || {
        server.complained().contains(lost)
    });
    assert!(ended, "{}", server.complained());
    server.still_runs();
    link(&hosts.b, "up");
    notices(&server, "eth1 is up again");
    ping(&hosts, "10.77.0.2").succeeded();
    server.still_runs();
    assert!(
        !server.complained().contains("RNIC has failed"),
        "{}",
        server.complained()
    );
}

#[test]
fn removed_address_ends_its_connections_and_is_served_again_when_it_is_back() {
    needs_root!();
    let hosts = Hosts::new();
    address(&hosts.b, "add 10.78.0.2/24");
    let mut server = serve(&hosts, "");
    let client = endless(&hosts);
    address(&hosts.b, "del 10.77.0.2/24");
    let lost = "the connection is lost: this host has lost the connection's address";
    notices(&server, lost);
    assert!(server.complained().contains("eth1 has lost 10.77.0.2"));
    drop(client);
    address(&hosts.b, "add 10.77.0.2/24");
    let pinged = eventually_within(END, || ping(&hosts, "10.77.0.2").succeeds());
    assert!(pinged, "{}", server.complained());
    address(&hosts.a, "del 10.77.0.1/24");
    address(&hosts.a, "add 10.77.0.1/24");
    ping(&hosts, "10.77.0.2").succeeded();
    server.still_runs();
}

#[test]
fn client_whose_own_address_is_removed_says_so() {
    needs_root!();
    let hosts = Hosts::new();
    let _server = serve(&hosts, "");
    let client = endless(&hosts);
    address(&hosts.a, "del 10.77.0.1/24");
    fails_saying(client, "this host has lost the connection's address");
    assert_eq!(hosts.a.program(), None);
}

#[test]
fn address_that_is_added_later_is_listened_on() {
    needs_root!();
    let hosts = Hosts::new();
    let _server = serve(&hosts, "");
    address(&hosts.b, "add 10.77.0.22/24");
    address(&hosts.b, "add fd77::22/64 nodad");
    for later in ["10.77.0.22", "fd77::22"] {
        let served = eventually_within(END, || ping(&hosts, later).succeeds());
        assert!(served, "{later}");
    }
}

/// Packets that a host receives next, and their bytes. Waits for `least` packets.
fn received_next(host: &Host, least: u64) -> (u64, u64) {
    let before = host.received();
    let since = || {
        let now = host.received();
        (now.0 - before.0, now.1 - before.1)
    };
    let mut received = since();
    eventually("packets come", || {
        received = since();
        received.0 >= least
    });
    received
}

#[test]
fn mtu_that_is_lowered_in_a_transfer_is_kept_to_and_one_that_is_raised_does_no_harm() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let case = Case {
        client: "--duration 3s".to_owned(),
        ..Case::new("write-bw")
    };
    let (server, client) = setup.begin(&case);
    link(&hosts.a, "mtu 600");
    notices(&client, "eth1 now has an MTU of 600 instead of 1500");
    // From here on what the client sends is no larger. What was sent before is still on its way.
    let small = |(packets, bytes): (u64, u64)| bytes <= packets * (600 + 14);
    eventually("what was sent before is here", || {
        small(received_next(&hosts.b, 100))
    });
    let (packets, bytes) = received_next(&hosts.b, 1000);
    assert!(
        small((packets, bytes)),
        "{bytes} bytes in {packets} packets"
    );
    client.finish_within(3 * END).succeeded();
    server.finish_within(END).succeeded();
    let (server, client) = setup.begin(&case);
    link(&hosts.a, "mtu 1500");
    notices(&client, "eth1 now has an MTU of 1500 instead of 600");
    client.finish_within(3 * END).succeeded();
    server.finish_within(END).succeeded();
}

#[test]
fn new_ethernet_address_is_used_at_once() {
    needs_root!();
    let hosts = Hosts::new();
    let setup = Setup::new(&hosts, Way::Itself, Mode::Native);
    let case = Case {
        client: "--duration 2s".to_owned(),
        ..Case::new("write-bw")
    };
    let (server, client) = setup.begin(&case);
    link(&hosts.a, "address 02:11:22:33:44:55");
    notices(
        &client,
        "eth1 now has the Ethernet address 02:11:22:33:44:55",
    );
    client.finish_within(3 * END).succeeded();
    server.finish_within(END).succeeded();
}

#[test]
fn idle_server_costs_less_than_a_hundredth_of_a_processor() {
    needs_root!();
    let hosts = Hosts::new();
    let mut server = hosts.b.serve("write-bw --engine thread --wait blocking");
    let before = server.processor_time();
    // Long enough for what IPv6 does after the start to matter little.
    std::thread::sleep(Duration::from_secs(10));
    let spent = server.processor_time().saturating_sub(before);
    println!("{spent:?} of processor time in 10 s");
    assert!(spent < Duration::from_millis(100), "{spent:?}");
    server.still_runs();
}

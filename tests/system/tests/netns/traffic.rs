//! All other traffic of the interface stays with the kernel, also while a test runs.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use xwarp_system_tests::{Case, Host, Hosts, Mode, PERF_PORT, Running, Setup, TIMEOUT, Way};
use xwarp_test_kit::{needs_root, pattern_of};

const OTHER_PORT: u16 = 5201;
/// Bytes of a transfer, each way.
const BYTES: usize = 4 << 20;

/// Starts 20 pings to the server in one second, of `size` bytes.
fn ping(host: &Host, size: u32) -> Running {
    let mut command = host.command("ping");
    let size = size.to_string();
    command.args(["-n", "-c", "20", "-i", "0.05", "-W", "5", "-s", &size]);
    command.arg(Hosts::SERVER.to_string());
    Running::start(command)
}

/// Sends one pattern and expects another, at the same time.
fn exchange(mut stream: TcpStream, ours: u64, theirs: u64) {
    stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
    stream.set_write_timeout(Some(TIMEOUT)).expect("a timeout");
    let mut writer = stream.try_clone().expect("a second handle");
    let sending = thread::spawn(move || writer.write_all(&pattern_of(ours, BYTES)));
    let mut received = vec![0; BYTES];
    stream
        .read_exact(&mut received)
        .expect("the kernel's TCP delivers");
    assert!(
        received == pattern_of(theirs, BYTES),
        "bytes were changed on their way"
    );
    sending
        .join()
        .expect("a thread")
        .expect("the kernel's TCP takes all");
}

/// A connection of the kernels of both hosts that moves data both ways.
fn transfer(hosts: &Hosts) {
    let listener = hosts
        .b
        .run(|| TcpListener::bind((Hosts::SERVER, OTHER_PORT)))
        .expect("a port");
    let client = connect(&hosts.a, Hosts::SERVER, OTHER_PORT).expect("a connection");
    let (server, _) = listener.accept().expect("the connection");
    let far = thread::spawn(move || exchange(server, 1, 2));
    exchange(client, 2, 1);
    far.join().expect("the server's side");
}

fn connect(from: &Host, to: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    from.run(|| TcpStream::connect_timeout(&SocketAddr::new(to, port), TIMEOUT))
}

fn other_traffic_goes_on(way: Way, mode: Mode) {
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    hosts.b.compute_checksums();
    let setup = Setup::new(&hosts, way, mode);
    let (server, client) = setup.begin(&Case {
        client: "--duration 3s".to_owned(),
        size: 16 << 10,
        ..Case::new("write-bw")
    });
    let pings = [ping(&hosts.a, 56), ping(&hosts.a, 4000)];
    transfer(&hosts);
    // The RNIC's port is the RNIC's: its engine completes the handshake. The kernel still answers
    // for all others.
    drop(connect(&hosts.a, Hosts::SERVER, PERF_PORT).expect("the RNIC listens"));
    let refused = connect(&hosts.a, Hosts::SERVER, PERF_PORT + 1).map(drop);
    assert_eq!(
        refused.map_err(|error| error.kind()),
        Err(ErrorKind::ConnectionRefused)
    );
    for ping in pings {
        let printed = ping.finish().succeeded().stdout;
        // A veth's queue of 256 packets is full now and then beside a flow that takes all there is.
        let lost = (18..=20).all(|n| !printed.contains(&format!(" {n} received")));
        assert!(!lost, "{printed}");
    }
    let measured = client.finish().succeeded().stdout;
    assert!(measured.contains("every byte as sent"), "{measured}");
    server.finish().succeeded();
    setup.check_as_found();
}

#[test]
fn other_traffic_goes_on_beside_native_xdp() {
    needs_root!();
    other_traffic_goes_on(Way::IpLink, Mode::Native);
}

#[test]
fn other_traffic_goes_on_beside_generic_xdp() {
    needs_root!();
    other_traffic_goes_on(Way::Itself, Mode::Generic);
}

/// The kernel cannot be given a port that is the RNIC's, and has it again afterwards.
#[test]
fn port_of_a_server_is_taken_from_the_kernel_and_given_back() {
    needs_root!();
    let hosts = Hosts::new();
    let server = hosts.b.serve("write-bw");
    let bind = || {
        hosts
            .b
            .run(|| TcpListener::bind((Hosts::SERVER, PERF_PORT)))
    };
    assert_eq!(
        bind().map(drop).map_err(|error| error.kind()),
        Err(ErrorKind::AddrInUse)
    );
    drop(server);
    let listener = bind().expect("the port is free again");
    hosts.a.compute_checksums();
    let client = connect(&hosts.a, Hosts::SERVER, PERF_PORT).expect("the kernel answers again");
    let (_, peer) = listener.accept().expect("the connection");
    assert_eq!(Ok(peer), client.local_addr().map_err(|error| error.kind()));
}

/// A client's own ports are the RNIC's only while it runs.
#[test]
fn program_without_an_xwarp_passes_everything() {
    needs_root!();
    let hosts = Hosts::new();
    hosts.a.compute_checksums();
    hosts.b.compute_checksums();
    let setup = Setup::new(&hosts, Way::IpLink, Mode::Native);
    transfer(&hosts);
    let pinged = ping(&hosts.a, 1400)
        .finish_within(TIMEOUT + Duration::from_secs(1))
        .succeeded()
        .stdout;
    assert!(pinged.contains(" 0% packet loss"), "{pinged}");
    setup.check_as_found();
}

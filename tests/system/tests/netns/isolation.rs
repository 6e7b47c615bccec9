//! Frames that are not for a server, or not from where they say, on a real link. A makes them byte
//! by byte, and B is an RNIC that listens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use xwarp::config::{NicConfig, XdpMode};
use xwarp::{Rnic, RnicConfig};
use xwarp_bpf::Verdict;
use xwarp_driver::attach::{self, Status};
use xwarp_driver::{Nic, PacketIo};
use xwarp_system_tests::{DEV, Hosts, TIMEOUT, eventually};
use xwarp_tcp::StackCounters;
use xwarp_test_kit::needs_root;

const PORT: u16 = 7471;
/// Where A asks from; each question has a port of its own.
const FIRST_PORT: u16 = 40_000;
/// How often a frame is sent that the kernel is to have.
const COPIES: u64 = 16;
const A4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const B4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const A6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
const B6: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const TCP: u8 = 6;

/// What becomes of a SYN.
#[derive(Clone)]
enum Fate {
    /// A SYN, ACK answers it, behind this Ethernet header's tags.
    Served(&'static [u8]),
    /// The program leaves it to the kernel, which drops it.
    Passed(Verdict),
    /// The stack drops it, by this counter.
    Dropped(fn(&StackCounters) -> u64),
}

/// A SYN to the server.
#[derive(Clone, Copy)]
struct Syn {
    station: Option<[u8; 6]>,
    tags: &'static [u8],
    source: IpAddr,
    /// Options of IPv4; or extension headers of IPv6, and the kind of the first.
    extra: (u8, &'static [u8]),
}

const V4: Syn = Syn {
    station: None,
    tags: &[],
    source: IpAddr::V4(A4),
    extra: (TCP, &[]),
};
const V6: Syn = Syn {
    source: IpAddr::V6(A6),
    ..V4
};

impl Syn {
    fn tagged(self, tags: &'static [u8]) -> Self {
        Self { tags, ..self }
    }

    fn to(self, station: [u8; 6]) -> Self {
        let station = Some(station);
        Self { station, ..self }
    }

    fn of(self, source: [u8; 4]) -> Self {
        let source = IpAddr::from(source);
        Self { source, ..self }
    }

    fn of_v6(self, source: &str) -> Self {
        let source = source.parse().expect("an address");
        Self { source, ..self }
    }

    fn with(self, first: u8, extra: &'static [u8]) -> Self {
        let extra = (first, extra);
        Self { extra, ..self }
    }

    /// The frame.
    fn frame(&self, port: u16, server: [u8; 6], client: [u8; 6]) -> Vec<u8> {
        let (ethertype, packet) = match self.source {
            IpAddr::V4(source) => ([0x08, 0x00], self.ipv4(source, port)),
            IpAddr::V6(source) => ([0x86, 0xdd], self.ipv6(source, port)),
        };
        let to = self.station.unwrap_or(server);
        [&to[..], &client, self.tags, &ethertype, &packet].concat()
    }

    fn ipv4(&self, source: Ipv4Addr, port: u16) -> Vec<u8> {
        let (_, options) = self.extra;
        let words = u8::try_from(5 + options.len() / 4).expect("15 at most");
        let len = [0, words * 4 + 20];
        let fixed = [
            0x40 | words,
            0,
            len[0],
            len[1],
            0,
            1,
            0x40,
            0,
            64,
            TCP,
            0,
            0,
        ];
        let addresses = [source.octets(), B4.octets()].concat();
        let mut header = [&fixed[..], &addresses, options].concat();
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum);
        [header, segment(port, &addresses)].concat()
    }

    fn ipv6(&self, source: Ipv6Addr, port: u16) -> Vec<u8> {
        let (first, extensions) = self.extra;
        let len = u8::try_from(extensions.len() + 20).expect("a short packet");
        let fixed = [0x60, 0, 0, 0, 0, len, first, 64];
        let addresses = [source.octets(), B6.octets()].concat();
        [
            &fixed[..],
            &addresses,
            extensions,
            &segment(port, &addresses),
        ]
        .concat()
    }
}

/// A SYN of 20 bytes.
fn segment(port: u16, addresses: &[u8]) -> Vec<u8> {
    let ports = [port.to_be_bytes(), PORT.to_be_bytes()].concat();
    let mut segment = [
        &ports[..],
        &[0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 0xff, 0xff, 0, 0, 0, 0],
    ]
    .concat();
    let sum = checksum(&[addresses, &[0, TCP, 0, 20], &segment].concat());
    segment[16..18].copy_from_slice(&sum);
    segment
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (!u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded")).to_be_bytes()
}

/// A's interface, and B.
struct SynSender<'a> {
    hosts: &'a Hosts,
    near: Nic,
    far: Rnic,
    port: u16,
}

impl<'a> SynSender<'a> {
    fn open(hosts: &'a Hosts, mode: XdpMode) -> Self {
        Self::open_from(hosts, DEV, mode)
    }

    /// With another interface of A's.
    fn open_from(hosts: &'a Hosts, interface: &str, mode: XdpMode) -> Self {
        let nic = NicConfig::default().mode(Some(mode));
        let config = RnicConfig::default().nic(nic.clone());
        let far = hosts.b.run(|| Rnic::open(DEV, &config)).expect("an RNIC");
        let near = hosts.a.run(|| Nic::open(interface, &nic));
        let near = near.expect("an interface");
        let port = FIRST_PORT;
        Self {
            hosts,
            near,
            far,
            port,
        }
    }

    /// Sends it, and returns the port that it came from.
    fn send(&mut self, syn: &Syn) -> u16 {
        self.port += 1;
        for address in [IpAddr::from(A4), IpAddr::from(A6)] {
            let local = SocketAddr::new(address, self.port);
            self.near.steering.add(local).expect("room in the map");
        }
        let server = self.far.info().expect("an interface").mac.0;
        let bytes = syn.frame(self.port, server, self.near.info.mac.0);
        let mut frame = self.near.ios[0].tx_frame().expect("a frame");
        frame.set_len(bytes.len());
        frame.copy_from_slice(&bytes);
        self.near.ios[0].send(frame);
        self.near.ios[0].flush().expect("a sane kernel");
        self.port
    }

    fn tcp(&self) -> StackCounters {
        self.far.counters().expect("an engine").tcp
    }

    fn verdicts(&self, verdict: Verdict) -> u64 {
        let index = self.far.info().expect("an interface").index;
        match self.hosts.b.run(|| attach::status(index)) {
            Ok(Status::Ours { counters, .. }) => counters.get(verdict),
            other => panic!("{other:?}"),
        }
    }

    /// The first frame to `port`.
    fn answer(&mut self, port: u16) -> Vec<u8> {
        let began = Instant::now();
        loop {
            if let Some(frame) = take(self.near.ios[0].as_mut(), port) {
                return frame;
            }
            assert!(began.elapsed() < TIMEOUT, "no answer: {:?}", self.tcp());
            std::thread::yield_now();
        }
    }

    fn check(&mut self, what: &str, syn: &Syn, fate: &Fate) {
        match fate {
            Fate::Served(tags) => {
                let port = self.send(syn);
                let answer = self.answer(port);
                assert_eq!(answer[..6], self.near.info.mac.0, "{what}");
                assert_eq!(answer[12..12 + tags.len()], **tags, "{what}: tags");
                let headers = if syn.source.is_ipv4() { 20 } else { 40 };
                let ip = 12 + tags.len() + 2;
                assert_eq!(answer[ip] >> 4 == 4, syn.source.is_ipv4(), "{what}");
                assert_eq!(answer[ip + headers + 13], 0x12, "{what}: SYN, ACK");
            }
            Fate::Passed(verdict) => {
                // The kernels send frames of these kinds, too, but few: they look for routers, and
                // say which groups they are in.
                let before = self.verdicts(*verdict);
                for _ in 0..COPIES {
                    self.send(syn);
                }
                eventually(what, || self.verdicts(*verdict) >= before + COPIES);
            }
            Fate::Dropped(counter) => {
                let before = counter(&self.tcp());
                self.send(syn);
                eventually(what, || counter(&self.tcp()) == before + 1);
            }
        }
    }
}

/// The next frame for `port`, whatever comes before it.
fn take(io: &mut dyn PacketIo, port: u16) -> Option<Vec<u8>> {
    let mut frames = Vec::new();
    io.receive(64, &mut frames);
    let mut found = None;
    for frame in frames {
        let ours = frame
            .windows(4)
            .any(|word| word == [PORT.to_be_bytes(), port.to_be_bytes()].concat());
        if ours && found.is_none() {
            found = Some(frame.to_vec());
        }
        io.recycle(frame);
    }
    found
}

/// To whom nothing is answered, as it is not for B.
#[rustfmt::skip]
fn for_others() -> Vec<(&'static str, Syn, Fate)> {
    let vlan = || Fate::Passed(Verdict::Vlan);
    vec![
        ("another station", V4.to([2, 0xde, 0xad, 0xbe, 0xef, 0]), Fate::Dropped(|it| it.drop_other_station)),
        ("another station, IPv6", V6.to([2, 0xde, 0xad, 0xbe, 0xef, 0]), Fate::Dropped(|it| it.drop_other_station)),
        ("all stations", V4.to([0xff; 6]), Fate::Passed(Verdict::GroupMac)),
        ("a group of stations", V6.to([0x33, 0x33, 0, 0, 0, 1]), Fate::Passed(Verdict::GroupMac)),
        ("VLAN 5", V4.tagged(&[0x81, 0, 0, 5]), vlan()),
        ("VLAN 4095", V4.tagged(&[0x81, 0, 0x0f, 0xff]), vlan()),
        ("a provider's VLAN", V6.tagged(&[0x88, 0xa8, 0, 5]), vlan()),
        ("VLAN 6 in 5", V4.tagged(&[0x81, 0, 0, 5, 0x81, 0, 0, 6]), vlan()),
        ("VLAN 6 behind a priority", V4.tagged(&[0x81, 0, 0, 0, 0x81, 0, 0, 6]), vlan()),
    ]
}

/// Source addresses that no host sends from.
#[rustfmt::skip]
fn from_nobody() -> Vec<(&'static str, Syn, Fate)> {
    let dropped = || Fate::Dropped(|it| it.drop_bad_source);
    vec![
        ("0.0.0.0", V4.of([0; 4]), dropped()),
        ("loopback", V4.of([127, 0, 0, 1]), dropped()),
        ("a group", V4.of([224, 0, 0, 1]), dropped()),
        ("reserved", V4.of([240, 0, 0, 1]), dropped()),
        ("broadcast", V4.of([255; 4]), dropped()),
        ("broadcast of the network", V4.of([10, 77, 0, 255]), dropped()),
        ("the server itself", V4.of(B4.octets()), dropped()),
        ("IPv6: nobody", V6.of_v6("::"), dropped()),
        ("IPv6: loopback", V6.of_v6("::1"), dropped()),
        ("IPv6: a group", V6.of_v6("ff02::1"), dropped()),
        ("IPv6: IPv4-mapped", V6.of_v6("::ffff:10.77.0.1"), dropped()),
        ("IPv6: the server itself", V6.of_v6("fd77::2"), dropped()),
    ]
}

/// Behind headers that are not stepped over.
#[rustfmt::skip]
fn behind_headers() -> Vec<(&'static str, Syn, Fate)> {
    let route = || Fate::Dropped(|it| it.drop_source_route);
    let extension = || Fate::Dropped(|it| it.drop_bad_extension);
    vec![
        ("loose source route", V4.with(0, &[0x83, 7, 4, 10, 77, 0, 1, 0]), route()),
        ("strict source route", V4.with(0, &[0x89, 7, 4, 10, 77, 0, 1, 0]), route()),
        ("garbage options", V4.with(0, &[0xff; 40]), Fate::Dropped(|it| it.drop_bad_ip_option)),
        ("routing header", V6.with(43, &[TCP, 0, 0, 1, 0, 0, 0, 0]), Fate::Passed(Verdict::Extensions)),
        ("AH", V6.with(51, &[TCP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]), Fate::Passed(Verdict::NotTcp)),
        ("unknown option", V6.with(60, &[TCP, 0, 0x80, 4, 0, 0, 0, 0]), extension()),
        ("home address", V6.with(60, &[TCP, 2, 0xc9, 16, 0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 0, 0]), extension()),
    ]
}

/// What is served.
#[rustfmt::skip]
fn served() -> Vec<(&'static str, Syn, Fate)> {
    let untagged = || Fate::Served(&[]);
    vec![
        ("IPv4", V4, untagged()),
        ("IPv6", V6, untagged()),
        ("priority", V4.tagged(&[0x81, 0, 0xe0, 0]), Fate::Served(&[0x81, 0, 0xe0, 0])),
        ("router alert", V4.with(0, &[148, 4, 0, 0]), untagged()),
        ("hop-by-hop options", V6.with(0, &[TCP, 0, 0, 0, 0, 0, 0, 0]), untagged()),
        ("router alert, IPv6", V6.with(0, &[TCP, 0, 5, 2, 0, 0, 1, 0]), untagged()),
        ("destination options", V6.with(60, &[TCP, 0, 0x1e, 4, 1, 2, 3, 4]), untagged()),
        ("routing header that has arrived", V6.with(43, &[TCP, 0, 0, 0, 0, 0, 0, 0]), untagged()),
        ("the only fragment", V6.with(44, &[TCP, 0, 0, 0, 0, 0, 0, 7]), untagged()),
    ]
}

#[test]
fn only_what_the_kernel_would_serve_is_answered() {
    needs_root!();
    for mode in [XdpMode::Native, XdpMode::Generic] {
        let hosts = Hosts::new();
        let mut syns = SynSender::open(&hosts, mode);
        let listen = |address| {
            hosts
                .b
                .run(|| syns.far.listen(SocketAddr::new(address, PORT)))
        };
        let listeners = [listen(B4.into()), listen(B6.into())].map(|it| it.expect("a port"));
        let refused = [for_others(), from_nobody(), behind_headers()].concat();
        for (what, syn, fate) in refused {
            syns.check(&format!("{mode}: {what}"), &syn, &fate);
        }
        let counters = syns.tcp();
        assert_eq!(counters.segments_out, 0, "{mode}: {counters:?}");
        for (what, syn, fate) in served() {
            syns.check(&format!("{mode}: {what}"), &syn, &fate);
        }
        drop(listeners);
    }
}

/// A bridge takes tags off and keeps them beside the frame; so does B's driver.
#[test]
fn vlan_whose_tag_is_beside_the_frame_is_not_served() {
    let hosts = Hosts::new();
    hosts.a.ip("link add inner type veth peer name outer");
    hosts
        .a
        .ip("link add bridge type bridge stp_state 0 forward_delay 0");
    for port in ["outer", DEV] {
        hosts.a.ip(&format!("link set {port} master bridge"));
    }
    for link in ["inner", "outer", "bridge"] {
        hosts.a.ip(&format!("link set {link} up"));
    }
    let mut syns = SynSender::open_from(&hosts, "inner", XdpMode::Native);
    let at = SocketAddr::new(B4.into(), PORT);
    let _listener = hosts.b.run(|| syns.far.listen(at)).expect("a port");
    let untagged = Fate::Served(&[]);
    syns.check("no VLAN", &V4, &untagged);
    syns.check("a priority", &V4.tagged(&[0x81, 0, 0xe0, 0]), &untagged);
    for tag in [&[0x81, 0, 0, 5], &[0x81, 0, 0x0f, 0xff]] {
        syns.check("a VLAN", &V4.tagged(tag), &Fate::Passed(Verdict::Vlan));
    }
}

//! The rule in the kernel, frame by frame, and two kernels' TCP over an impaired link. Needs root.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use libbpf_rs::ProgramInput;
use xwarp_system_tests::impair::{Bridged, Fates, Impairment, Rule, Side};
use xwarp_test_kit::needs_root;
use xwarp_test_kit::netsim::{Rng, Seed};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;
/// The loopback interface, which every namespace has.
const SOME_INTERFACE: u32 = 1;

/// A frame of this Ethernet type whose IP packet, of version 4 or 6, has this protocol.
fn frame(kind: u16, protocol: u8) -> Vec<u8> {
    let mut frame = vec![0; 64];
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    let at = if kind == 0x86dd { 14 + 6 } else { 14 + 9 };
    frame[at] = protocol;
    frame
}

fn run(impairment: &Impairment, frame: &[u8]) -> u32 {
    let program = impairment.program().expect("the program");
    let input = ProgramInput {
        data_in: Some(frame),
        ..ProgramInput::default()
    };
    program.test_run(input).expect("a run").return_value
}

fn rule(seed: u64) -> Rule {
    Rule {
        loss: 0.1,
        duplicate: 0.02,
        reorder: 0.03,
        ..Rule::new(Seed(seed))
    }
}

#[test]
fn segment_is_lost_by_its_number_alone() {
    needs_root!();
    let tcp = frame(0x0800, 6);
    let rule = Rule {
        lost_number: 3,
        ..Rule::new(Seed(1))
    };
    let impairment = Impairment::load(&rule, SOME_INTERFACE).expect("root");
    run(&impairment, &frame(0x0806, 0)); // no segment: it does not count
    for _ in 0..2 {
        let fates: Vec<u32> = (0..5).map(|_| run(&impairment, &tcp)).collect();
        assert_eq!(fates, [XDP_PASS, XDP_PASS, XDP_DROP, XDP_PASS, XDP_PASS]);
        impairment.set_rule(&rule).expect("root"); // the count begins anew
    }
}

/// What the program makes of a frame that it passes.
fn passed(impairment: &Impairment, frame: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame.len()];
    let input = ProgramInput {
        data_in: Some(frame),
        data_out: Some(&mut out),
        ..ProgramInput::default()
    };
    let program = impairment.program().expect("the program");
    let verdict = program.test_run(input).expect("a run").return_value;
    assert_eq!(verdict, XDP_PASS);
    out
}

#[test]
fn what_may_be_marked_is_marked_and_its_checksum_follows() {
    needs_root!();
    let all_marked = Rule {
        mark: 1.0,
        ..Rule::new(Seed(1))
    };
    let impairment = Impairment::load(&all_marked, SOME_INTERFACE).expect("root");
    let marked = |frame: &[u8]| passed(&impairment, frame);
    #[rustfmt::skip]
    let classes = [(0x02, 0xb85f_u16), (0x01, 0xb860), (0x03, 0xb85e), (0x02, 0)];
    for (class, check) in classes {
        let mut ipv4 = frame(0x0800, 6);
        ipv4[15] = class;
        ipv4[24..26].copy_from_slice(&check.to_be_bytes());
        let out = marked(&ipv4);
        // One more in the header is one less in the checksum, of which -0 is 0 (RFC 1624 §3).
        let expected = if check == 0 { 0xfffe } else { 0xb85e_u16 };
        assert_eq!((out[15], &out[24..26]), (0x03, &expected.to_be_bytes()[..]));
    }
    for codepoint in [0x10, 0x20] {
        let mut ipv6 = frame(0x86dd, 6);
        ipv6[15] = codepoint;
        assert_eq!(marked(&ipv6)[15], 0x30);
    }
    for unmarkable in [frame(0x0800, 6), frame(0x86dd, 6)] {
        assert_eq!(marked(&unmarkable), unmarkable);
    }
    let fates = Fates {
        marked: 6,
        passed: 2,
        ..Fates::default()
    };
    assert_eq!(impairment.fates().expect("counters"), fates);
}

#[test]
fn seed_says_which_frames_are_lost_and_diverted() {
    needs_root!();
    let tcp = frame(0x0800, 6);
    let draws = |seed| -> Vec<u32> {
        let impairment = Impairment::load(&rule(seed), SOME_INTERFACE).expect("root");
        (0..2000).map(|_| run(&impairment, &tcp)).collect()
    };
    let first = draws(7);
    assert_eq!(first, draws(7));
    assert_ne!(first, draws(8));
    let share = |action| first.iter().filter(|&&drawn| drawn == action).count();
    // The mean is 200 and 100, the standard deviation 13 and 10.
    assert!((140..260).contains(&share(XDP_DROP)), "{}", share(XDP_DROP));
    assert!(
        (50..150).contains(&share(XDP_REDIRECT)),
        "{}",
        share(XDP_REDIRECT)
    );
    assert_eq!(
        share(XDP_DROP) + share(XDP_REDIRECT) + share(XDP_PASS),
        2000
    );
}

#[test]
fn only_tcp_is_impaired() {
    needs_root!();
    let all_lost = Rule {
        loss: 1.0,
        ..Rule::new(Seed(1))
    };
    let impairment = Impairment::load(&all_lost, SOME_INTERFACE).expect("root");
    let udp = [frame(0x0800, 17), frame(0x86dd, 17), frame(0x0806, 6)];
    for other in udp {
        assert_eq!(run(&impairment, &other), XDP_PASS);
    }
    assert_eq!(impairment.fates().expect("counters"), Fates::default());
    for kind in [0x0800, 0x86dd] {
        assert_eq!(run(&impairment, &frame(kind, 6)), XDP_DROP);
    }
    let fates = Fates {
        lost: 2,
        ..Fates::default()
    };
    assert_eq!(impairment.fates().expect("counters"), fates);
}

/// Sends `data` from one host to the other by the kernels' TCP; what arrives.
fn transfer(hosts: &Bridged, data: Vec<u8>) -> Vec<u8> {
    let address: SocketAddr = "10.0.0.2:5001".parse().expect("an address");
    let listener = hosts
        .b
        .call(move || TcpListener::bind(address).expect("a free port"));
    let receiving = hosts.b.begin(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("data");
        received
    });
    hosts.a.call(move || {
        let mut stream = TcpStream::connect(address).expect("a listener");
        stream.write_all(&data).expect("a receiver");
    });
    receiving.recv().expect("what came")
}

#[test]
fn tcp_gets_through_loss_repetition_and_disorder() {
    needs_root!();
    let data = Rng::new(Seed(3), 0).bytes(2 << 20);
    let rule = Rule {
        loss: 0.01,
        duplicate: 0.02,
        reorder: 0.02,
        delay: Duration::from_millis(2),
        ..Rule::new(Seed(5))
    };
    let hosts = Bridged::new();
    let port = hosts.impair(Side::A, rule);
    assert!(transfer(&hosts, data.clone()) == data);
    let fates = port.fates();
    assert!(fates.lost > 0 && fates.diverted > 0, "{fates:?}");
    // The receiver's kernel has seen segments twice, and segments before their time.
    let seen = hosts.b.tcp_counter("TCPDSACKOldSent") + hosts.b.tcp_counter("TCPDSACKOfoSent");
    assert!(seen > 0, "no segment arrived twice");
    assert!(
        hosts.b.tcp_counter("TCPOFOQueue") > 0,
        "none arrived before its time"
    );
}

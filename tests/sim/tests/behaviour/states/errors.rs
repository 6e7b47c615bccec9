//! Asynchronous events of the verbs draft for what a peer sends (§8.3.3, §9.5.3). Each has its name
//! and its code. The queue pair is in Terminate, then in Error.

use xwarp::error::{InboundError, ProtectionError, TermCode};
use xwarp::event::{AsyncEventKind, ConnectionEnd};
use xwarp::{Access, Opcode, QpConfig, QpState, RemoteAddress, Stag};
use xwarp_sim_tests::Done;
use xwarp_sim_tests::wire::{Tagged, Untagged, fpdu, read_request};

use crate::hostile::Dut;

/// A region that the DUT has, besides one that is only its own.
const LEN: usize = 100;

/// What a peer that is sent `bytes` to gets, and the DUT's application.
fn assert_reported(
    what: &str,
    config: &QpConfig,
    bytes: impl FnOnce(&mut Dut) -> Vec<u8>,
    error: InboundError,
    code: TermCode,
) {
    let expected = [
        "drop_refused_segment",
        "drop_bad_fpdu",
        "drop_after_failure",
    ];
    let mut dut = Dut::with(config).expecting(&expected);
    dut.sim.run_until_idle();
    let bytes = bytes(&mut dut);
    dut.peer.send(&bytes);
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    assert_eq!(dut.end.state(), QpState::Terminate, "{what}");
    let kept = dut.end.qp.query().unwrap().terminate.unwrap();
    assert_eq!(kept.code, code, "{what}");
    let events = dut.end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { error: e, code: c, .. }] if (e, c) == (error, code)),
        "{what}: {events:?}"
    );
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.state(), QpState::Error, "{what}");
    assert_eq!(dut.end.events(), [], "{what}");
    let why = events.into_iter().next().map(ConnectionEnd::Event);
    assert_eq!(dut.end.qp.why_ended(), why, "{what}");
}

fn reported(
    what: &str,
    bytes: impl FnOnce(&mut Dut) -> Vec<u8>,
    error: InboundError,
    code: TermCode,
) {
    assert_reported(what, &QpConfig::default(), bytes, error, code);
}

/// The address of a region with these rights, for the peer.
fn place(dut: &mut Dut, access: Access) -> RemoteAddress {
    let region = dut.end.region(LEN, access);
    let place = region.remote(0);
    // The test needs no more than that it is there.
    std::mem::forget(region);
    place
}

fn write(at: RemoteAddress) -> Vec<u8> {
    Tagged::write(at.stag, at.to).fpdu(b"bytes!")
}

fn read(request: Untagged, at: RemoteAddress) -> Vec<u8> {
    request.fpdu(&read_request(Stag(0x100), 0, 6, at.stag, at.to))
}

fn nowhere() -> RemoteAddress {
    RemoteAddress {
        stag: Stag(0x1234_5600),
        to: 0,
    }
}

#[test]
fn integrity_errors() {
    let short = |_: &mut Dut| fpdu(&[0x41]);
    reported(
        "size",
        short,
        InboundError::SegmentSize,
        TermCode::ddp_local(),
    );
    let flipped = |_: &mut Dut| {
        let mut bytes = Untagged::default().fpdu(b"bytes!");
        *bytes.last_mut().unwrap() ^= 1;
        bytes
    };
    reported("CRC", flipped, InboundError::Crc, TermCode::mpa(2));
}

#[test]
fn remote_operation_errors() {
    let send = Untagged::default();
    #[rustfmt::skip]
    let cases = [
        ("DDP version", Untagged { control: 0x42, ..send }, InboundError::DdpVersion, TermCode::ddp_untagged(6)),
        ("RDMA version", Untagged { rdmap: 0x83, ..send }, InboundError::RdmapVersion, TermCode::rdmap_operation(5)),
        ("opcode", Untagged { rdmap: 0x4f, ..send }, InboundError::UnexpectedOpcode, TermCode::rdmap_operation(6)),
        ("queue", Untagged { qn: 7, ..send }, InboundError::QueueNumber, TermCode::ddp_untagged(1)),
        ("L bit", Untagged { control: 0x01, ..Untagged::read_request() }, InboundError::NotLast, TermCode::rdmap_operation(7)),
        ("offset", Untagged { mo: 4, ..Untagged::read_request() }, InboundError::ReadRequestFormat, TermCode::ddp_untagged(4)),
    ];
    for (what, header, error, code) in cases {
        reported(what, |_| read(header, nowhere()), error, code);
    }
    let short = |_: &mut Dut| Untagged::read_request().fpdu(b"short");
    let error = InboundError::ReadRequestFormat;
    reported("short request", short, error, TermCode::ddp_local());
}

#[test]
fn read_and_write_that_are_not_enabled_are_reported() {
    let no_reads = QpConfig::default().ird(0);
    let no_writes = QpConfig::default().inbound_write(false);
    let reads = |dut: &mut Dut| read(Untagged::read_request(), place(dut, Access::all()));
    let code = TermCode::ddp_untagged(1);
    assert_reported("Read", &no_reads, reads, InboundError::ReadNotEnabled, code);
    let writes = |dut: &mut Dut| write(place(dut, Access::all()));
    let code = TermCode::ddp_tagged(2);
    assert_reported(
        "Write",
        &no_writes,
        writes,
        InboundError::WriteNotEnabled,
        code,
    );
}

/// A place for which an access is refused for this reason; `right` is the one that it lacks.
fn refusing(dut: &mut Dut, error: ProtectionError, right: Access) -> RemoteAddress {
    let open = place(dut, Access::all());
    match error {
        ProtectionError::InvalidStag => nowhere(),
        ProtectionError::BaseBounds => RemoteAddress {
            to: open.to + LEN as u64 - 5,
            ..open
        },
        ProtectionError::AccessRights => place(dut, Access::all().difference(right)),
        ProtectionError::InvalidPd => {
            let host = dut.end.host().clone();
            let other = host.rnic().allocate_pd().unwrap();
            let region = host.region_in(&other, LEN, Access::all());
            let place = region.remote(0);
            std::mem::forget(region);
            place
        }
        ProtectionError::Wrap => RemoteAddress {
            to: u64::MAX - 2,
            ..open
        },
    }
}

const PROTECTION: [ProtectionError; 5] = [
    ProtectionError::InvalidStag,
    ProtectionError::BaseBounds,
    ProtectionError::AccessRights,
    ProtectionError::InvalidPd,
    ProtectionError::Wrap,
];

#[test]
fn protection_errors_of_tagged_segments() {
    for (error, code) in PROTECTION.into_iter().zip([0, 1, 2, 2, 3]) {
        let bytes = |dut: &mut Dut| write(refusing(dut, error, Access::REMOTE_WRITE));
        let (told, code) = (InboundError::Tagged(error), TermCode::ddp_tagged(code));
        reported(&format!("{error:?}"), bytes, told, code);
    }
    let zero = RemoteAddress {
        stag: Stag(0),
        to: 0,
    };
    let error = InboundError::Tagged(ProtectionError::InvalidStag);
    reported("STag 0", |_| write(zero), error, TermCode::ddp_tagged(0));
}

#[test]
fn protection_errors_of_read_requests() {
    for (error, code) in PROTECTION.into_iter().zip(0..) {
        let bytes = |dut: &mut Dut| {
            let at = refusing(dut, error, Access::REMOTE_READ);
            read(Untagged::read_request(), at)
        };
        let (told, code) = (
            InboundError::Request(error),
            TermCode::rdmap_protection(code),
        );
        reported(&format!("{error:?}"), bytes, told, code);
    }
}

#[test]
fn message_numbers_of_the_receive_queue() {
    let none = |_: &mut Dut| Untagged::default().fpdu(b"bytes!");
    let code = TermCode::ddp_untagged(2);
    reported("no buffer", none, InboundError::ReceiveRange, code);
    for (msn, error) in [
        (3, InboundError::ReceiveGap),
        (0, InboundError::ReceiveRange),
    ] {
        let bytes = |dut: &mut Dut| {
            dut.end.post_recv(1, LEN);
            let send = Untagged::default();
            Untagged { msn, ..send }.fpdu(b"bytes!")
        };
        reported("MSN", bytes, error, TermCode::ddp_untagged(3));
    }
}

#[test]
fn message_numbers_of_read_requests() {
    for (msn, error) in [
        (3, InboundError::RequestGap),
        (0, InboundError::RequestRange),
    ] {
        let bytes = |dut: &mut Dut| {
            let header = Untagged::read_request();
            read(Untagged { msn, ..header }, place(dut, Access::all()))
        };
        reported("MSN", bytes, error, TermCode::ddp_untagged(3));
    }
}

#[test]
fn more_read_requests_than_there_may_be() {
    let one = QpConfig::default().ird(1);
    let two = |dut: &mut Dut| {
        let at = place(dut, Access::all());
        let first = Untagged::read_request();
        let second = Untagged { msn: 2, ..first };
        [read(first, at), read(second, at)].concat()
    };
    let code = TermCode::ddp_untagged(3);
    assert_reported("two", &one, two, InboundError::TooManyRequests, code);
}

#[test]
fn fin_that_leaves_a_read_unanswered_is_a_bad_close_of_the_peer() {
    let mut dut = Dut::new();
    let sink = dut.end.target(8);
    dut.end.post_read(1, sink.local(0, 8), nowhere());
    dut.sim.run_until_idle();
    dut.peer.close();
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    let code = TermCode::rdmap_operation(7);
    let kept = dut.end.qp.query().unwrap().terminate.unwrap();
    assert_eq!((kept.code, &kept.message[..]), (code, &[0x02, 7, 0, 0][..]));
    let events = dut.end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::BadPeerClose { .. }]),
        "{events:?}"
    );
    dut.sim.run_until_idle();
    assert_eq!(dut.end.state(), QpState::Error);
    let flushed = Done::flushed(1, Opcode::Read);
    assert_eq!(dut.end.sends(), [flushed]);
}

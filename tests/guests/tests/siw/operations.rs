//! Sends and Writes, each way, in both roles.

use ::xwarp::work::Operation;
use ::xwarp::{Opcode, SendRequest, Stag, WrId};
use xwarp_system_tests::{Capture, check_nothing_dropped};

use crate::xwarp::Setup;
use crate::{PORT, Pair, Role, with_guest};

#[test]
fn sends_of_many_lengths_arrive_each_way() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &Setup::default());
            for len in [0, 1, 7, 1000, 1448, 20_000, 32_768] {
                pair.exchange(role, len);
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

#[test]
fn solicited_sends_are_marked_each_way() {
    with_guest(|lab, guest| {
        let recorder = lab.record(1);
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &Setup::default());
        let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
        siw.ask("recv name=s id=1 region=r offset=0 length=100");
        let send = SendRequest::send(WrId(1), xwarp.end.source.local(0, 100));
        xwarp.end.post(send.solicited());
        xwarp.done(1, Opcode::SendSolicited);
        siw.poll("s", 1);
        for (id, flags, solicited) in [(2, "flags=solicited", true), (3, "", false)] {
            xwarp.end.post_recv(id, 100);
            siw.ask(&format!(
                "send name=s id={id} region=r offset=0 length=100 {flags}"
            ));
            let received = xwarp.done(id, Opcode::Receive);
            assert_eq!(received.solicited, solicited, "{received:?}");
            siw.poll("s", 1);
        }
        let capture = Capture::dissect_port(&recorder.finish(), PORT);
        let opcodes = capture.count("iwarp_rdma.opcode");
        assert_eq!(opcodes.get("0x05"), Some(&2), "{opcodes:?}");
    });
}

#[test]
fn send_invalidates_a_region_of_the_other_side() {
    with_guest(|lab, guest| {
        for solicited in [false, true] {
            let mut pair = Pair::connect(lab, guest, Role::Initiator, &Setup::default());
            let remote = pair.remote;
            let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
            siw.ask("region region=inbox size=4096 rights=local-write");
            siw.ask("recv name=s id=1 region=inbox offset=0 length=100");
            let operation = Operation::Send {
                payload: xwarp.end.source.local(0, 100).into(),
                solicited,
                invalidate: Some(remote.stag),
            };
            xwarp.end.post(SendRequest::new(WrId(1), operation));
            let done = if solicited {
                Opcode::SendSolicitedInvalidate
            } else {
                Opcode::SendInvalidate
            };
            xwarp.done(1, done);
            assert_eq!(siw.poll("s", 1)[0].status, "success");

            let Stag(ours) = xwarp.end.sink.stag();
            let buffer = xwarp.pd.allocate(100, ::xwarp::Access::LOCAL_WRITE);
            let buffer = buffer.expect("memory");
            let receive = ::xwarp::RecvRequest::new(WrId(2), buffer.local(0, 100));
            xwarp.end.qp.post_recv(receive).expect("room");
            let flags = if solicited { "flags=solicited" } else { "" };
            siw.ask(&format!(
                "send name=s id=2 region=inbox offset=0 length=100 invalidate={ours} {flags}"
            ));
            let received = xwarp.done(2, Opcode::Receive);
            assert_eq!(received.invalidated, Some(Stag(ours)));
            assert_eq!(received.solicited, solicited);
        }
    });
}

/// Writes `len` bytes each way at an odd place, followed by a Send, which says that they are there.
pub(crate) fn write_each_way(pair: &mut Pair<'_>, len: u32) {
    const AT: u64 = 3;
    let to = pair.remote.to + AT;
    let remote = ::xwarp::RemoteAddress { to, ..pair.remote };
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    siw.ask("recv name=s id=1 region=r offset=0 length=0");
    let write = SendRequest::write(WrId(1), xwarp.end.source.local(0, len), remote);
    xwarp.end.post(write.unsignaled());
    xwarp.send(2, 0);
    xwarp.done(2, Opcode::Send);
    assert_eq!(siw.poll("s", 1)[0].status, "success");
    siw.ask(&format!("check region=r offset={AT} length={len} seed=1"));

    let sink = xwarp.end.sink.remote(0);
    let Stag(stag) = sink.stag;
    xwarp.end.post_recv(3, 0);
    siw.ask(&format!("fill region=r offset={AT} length={len} seed=7"));
    siw.ask(&format!(
        "write name=s id=4 region=r offset={AT} length={len} stag={stag} to={}",
        sink.to
    ));
    siw.ask("send name=s id=5 region=r offset=0 length=0");
    xwarp.done(3, Opcode::Receive);
    let done = siw.poll("s", 2);
    assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
    xwarp.assert_received(len as usize, 7);
}

#[test]
fn writes_of_many_lengths_arrive_each_way() {
    with_guest(|lab, guest| {
        let setup = Setup {
            bytes: (1 << 20) + 4096,
            ..Setup::default()
        };
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &setup);
            if role == Role::Responder {
                pair.exchange(role, 1);
            }
            for len in [0, 1, 4095, 4096, 65_536, 1 << 20] {
                write_each_way(&mut pair, len);
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

#[test]
#[ignore = "only in the set of all"]
fn writes_of_64_mib_arrive_each_way() {
    with_guest(|lab, guest| {
        let setup = Setup {
            bytes: (64 << 20) + 4096,
            ..Setup::default()
        };
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &setup);
        for len in [16 << 20, 64 << 20] {
            write_each_way(&mut pair, len);
        }
        check_nothing_dropped(&pair.xwarp.rnic);
    });
}

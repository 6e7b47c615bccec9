//! A Terminate of the peer's that appears to be about one of our work requests (verbs draft §9.5.2,
//! Remote Termination Error).

use xwarp::attr::TerminateOrigin;
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::work::Operation;
use xwarp::{Access, Opcode, QpState, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_sim_tests::wire::{Untagged, read_request};
use xwarp_sim_tests::{Done, MIB, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

use super::sim;
use crate::hostile::Dut;

const NOWHERE: RemoteAddress = RemoteAddress {
    stag: Stag(0x1234_5678),
    to: 0,
};

fn assert_told(end: &SimEnd, code: TermCode) {
    assert_eq!(end.events(), [AsyncEventKind::TerminateReceived(code)]);
    let kept = end.qp.query().unwrap().terminate.unwrap();
    assert_eq!((kept.origin, kept.code), (TerminateOrigin::Peer, code));
    assert_eq!(end.state(), QpState::Error);
}

#[test]
fn read_that_the_peer_refuses_says_so_and_no_other_does() {
    for opcode in [Opcode::Read, Opcode::ReadInvalidate] {
        let mut sim = sim().expecting(&["drop_refused_segment", "drop_after_failure"]);
        let (mut a, b) = sim.connected_pair();
        let (source, sink) = (b.target(8), a.target(8));
        let own_sink = a.region(8, Access::all());
        a.post_read(1, sink.local(0, 8), source.remote(0));
        sim.run_until_idle();
        let refused = SendRequest::read(WrId(2), own_sink.local(0, 8), NOWHERE);
        a.post(match opcode {
            Opcode::ReadInvalidate => refused.invalidating_sink(),
            _ => refused,
        });
        a.post_read(3, sink.local(0, 8), source.remote(0));
        sim.run_until_idle();
        let flushed = Done::flushed(3, Opcode::Read);
        assert_eq!(
            a.sends(),
            [Done::read(1, 8), Done::refused(2, opcode), flushed]
        );
        assert_told(&a, TermCode::rdmap_protection(0));
        assert!(own_sink.query().unwrap().is_valid());
    }
}

/// A message that takes a while to send.
fn long(kind: usize, end: &mut SimEnd) -> (Operation, Opcode) {
    let source = end.source(&vec![7; MIB]);
    let send = |solicited, invalidate: Option<Stag>| Operation::Send {
        payload: source.into(),
        solicited,
        invalidate,
    };
    match kind {
        0 => (send(false, None), Opcode::Send),
        1 => (send(true, None), Opcode::SendSolicited),
        2 => (send(false, Some(Stag(7))), Opcode::SendInvalidate),
        3 => (send(true, Some(Stag(7))), Opcode::SendSolicitedInvalidate),
        _ => {
            let (sgl, remote) = (source.into(), NOWHERE);
            (
                Operation::Write {
                    payload: sgl,
                    remote,
                },
                Opcode::Write,
            )
        }
    }
}

#[test]
fn send_of_each_kind_and_a_write_that_are_refused_midway_say_so() {
    for kind in 0..5 {
        let sim = Sim::new(Seed(43)).rate(100_000_000);
        let mut sim = sim.expecting(&["drop_refused_segment", "drop_after_failure"]);
        let (mut a, _b) = sim.connected_pair();
        a.post_write(1, b"", NOWHERE);
        let (operation, opcode) = long(kind, &mut a);
        a.post(SendRequest::new(WrId(2), operation).unsignaled());
        a.post_send(3, b"never sent");
        sim.run_until_idle();
        let flushed = Done::flushed(3, Opcode::Send);
        assert_eq!(
            a.sends(),
            [Done::write(1, 0), Done::refused(2, opcode), flushed]
        );
        let code = match opcode {
            Opcode::Write => TermCode::ddp_tagged(0),
            _ => TermCode::ddp_untagged(2), // no receive
        };
        assert_told(&a, code);
    }
}

/// A Terminate that returns the header of this segment, and perhaps of this Read Request.
fn returning(header: Untagged, read_request: &[u8]) -> Vec<u8> {
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    let flags = if read_request.is_empty() {
        0xc0 // M and D
    } else {
        0xe0 // and R
    };
    let control = [0x01, 0x00, flags, 0x00, 0, 46];
    terminate.fpdu(&[&control[..], &header.ulpdu(read_request)].concat())
}

#[test]
fn terminate_that_names_no_work_request_blames_none() {
    let read = Untagged::read_request();
    #[rustfmt::skip]
    let cases = [
        ("the first Read", read, [true, false]),
        ("the second", Untagged { msn: 2, ..read }, [false, true]),
        ("the second, whole", Untagged { msn: 2, ..read }, [false, true]),
        ("another Read", Untagged { msn: 2, ..read }, [false; 2]),
        ("the one before", Untagged { msn: 0, ..read }, [false; 2]),
        ("one to come", Untagged { msn: 3, ..read }, [false; 2]),
        ("a Send", Untagged::default(), [false; 2]),
    ];
    for (what, header, guilty) in cases {
        let mut dut = Dut::new();
        dut.sim.run_until_idle();
        let sink = dut.end.target(8);
        for wr_id in 0..2 {
            dut.end.post_read(wr_id, sink.local(0, 8), NOWHERE);
        }
        dut.sim.run_until_idle();
        let of_sink = |stag: Stag| read_request(stag, 0, 8, NOWHERE.stag, 0);
        let returned = match what {
            "another Read" => of_sink(Stag(0x100)),
            "the second, whole" => of_sink(sink.remote(0).stag),
            _ => Vec::new(),
        };
        dut.peer.send(&returning(header, &returned));
        dut.sim.run_until("the FIN", || dut.peer.saw_fin());
        dut.peer.close();
        dut.sim.run_until_idle();
        let how = |guilty| if guilty { Done::refused } else { Done::flushed };
        let [first, second] = guilty.map(how);
        let done = [first(0, Opcode::Read), second(1, Opcode::Read)];
        assert_eq!(dut.end.sends(), done, "{what}");
        assert_told(&dut.end, TermCode::rdmap_protection(0));
    }
}

#[test]
fn work_that_has_ended_is_not_blamed_any_more() {
    let mut dut = Dut::new();
    dut.sim.run_until_idle();
    dut.end.post_send(1, b"all sent");
    dut.sim.run_until_idle();
    dut.peer.send(&returning(Untagged::default(), b""));
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    assert_eq!(dut.end.sends(), [Done::send(1, 8)]);
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_told(&dut.end, TermCode::rdmap_protection(0));
}

//! Connections that end in the middle of an FPDU or a message: rows of wire.md §9 that TCP and the
//! engine decide.

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{Access, Opcode, QpState, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_sim_tests::wire::{Tagged, Untagged, fpdu, read_request, ulpdus};
use xwarp_sim_tests::{Done, MIB, SimEnd, pattern};
use xwarp_tcp::CloseReason;

use super::Dut;

const FAR: RemoteAddress = RemoteAddress {
    stag: Stag(0x100),
    to: 0,
};

fn assert_bad_close(what: &str, end: &SimEnd) {
    let events = end.events();
    assert!(
        matches!(events[..], [AsyncEventKind::BadClose { .. }]),
        "{what}: {events:?}"
    );
    assert_eq!(end.state(), QpState::Error, "{what}");
}

/// MPA error 1: wherever the FPDU is cut, nothing of it is placed or received, and the connection
/// is aborted. Row 41.
#[test]
fn fin_inside_an_fpdu_aborts_and_nothing_of_it_counts() {
    for cut in [1, 2, 3, 15, 16, 17, 60, 116, 119] {
        let mut dut = Dut::new();
        dut.end.post_recv(1, 100);
        dut.end.post_write(2, b"8 bytes!", FAR);
        let target = dut.end.target(100);
        let place = target.remote(0);
        let whole = Tagged::write(place.stag, place.to).fpdu(&pattern(100));
        assert_eq!(whole.len(), 120, "length, header, payload and CRC");
        dut.peer.send(&whole[..cut]);
        dut.sim.run_until_idle();
        dut.peer.close();
        dut.sim.run_until_idle();
        assert_bad_close(&format!("{cut} bytes"), &dut.end);
        assert_eq!(target.to_vec(), [0; 100]);
        let flushed = Done::flushed(1, Opcode::Receive);
        assert_eq!(dut.end.receives(), [flushed]);
        assert_eq!(dut.end.sends(), [Done::write(2, 8)]);
        assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
        let answer = ulpdus(&dut.answer());
        assert_eq!(answer.len(), 1, "the Write and no Terminate");
    }
}

/// For MPA the stream ends properly, but in the middle of a message of the ULP. The work that waits
/// for the message is flushed.
/// Row 42.
#[test]
fn fin_before_a_messages_last_segment_is_an_error_of_that_message() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let begin = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    dut.peer.send(&begin.fpdu(b"to be continued"));
    dut.sim.run_until_idle();
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_bad_close("a Send", &dut.end);
    let flushed = Done::flushed(1, Opcode::Receive);
    assert_eq!(dut.end.receives(), [flushed]);

    let mut dut = Dut::new();
    let sink = dut.end.target(100);
    let place = sink.remote(0);
    dut.end.post_read(1, sink.local(0, 100), FAR);
    dut.sim.run_until_idle();
    let begin = Tagged {
        control: 0x81,
        ..Tagged::read_response(place.stag, place.to)
    };
    dut.peer.send(&begin.fpdu(&pattern(60)));
    dut.sim.run_until_idle();
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_bad_close("a Read Response", &dut.end);
    assert_eq!(dut.end.sends(), [Done::flushed(1, Opcode::Read)]);
    assert_eq!(sink.to_vec()[..60], pattern(60), "what was right stays");
}

/// The target of a Write gets no completion, so a FIN before the Write's end is a close like any
/// other (RFC 5040 section 5.1).
/// Row 42.
#[test]
fn fin_before_a_writes_last_segment_is_a_close() {
    let mut dut = Dut::new();
    let target = dut.end.target(100);
    let place = target.remote(0);
    let begin = Tagged {
        control: 0x81,
        ..Tagged::write(place.stag, place.to)
    };
    dut.peer.send(&begin.fpdu(&pattern(60)));
    dut.sim.run_until_idle();
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.events(), [AsyncEventKind::Closed]);
    assert_eq!(target.to_vec()[..60], pattern(60));
}

fn terminate_fpdu() -> Vec<u8> {
    let header = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    header.fpdu(&[0x11, 0x01, 0, 0])
}

/// Row 104.
#[test]
fn segments_after_a_terminate_are_dropped() {
    type Later = fn(RemoteAddress) -> Vec<u8>;
    #[rustfmt::skip]
    let cases: [(&str, Later); 6] = [
        ("the same Terminate", |_| terminate_fpdu()),
        ("another Terminate", |_| Untagged { rdmap: 0x47, qn: 2, msn: 2, ..Untagged::default() }.fpdu(&[0x20, 0x02, 0, 0])),
        ("a Write", |place| Tagged::write(place.stag, place.to).fpdu(&[7; 8])),
        ("a Send", |_| Untagged::default().fpdu(b"too late")),
        ("a Read Request", |place| Untagged::read_request().fpdu(&read_request(Stag(1), 0, 8, place.stag, place.to))),
        ("rubbish", |_| vec![0xff; 100]),
    ];
    for together in [true, false] {
        for (what, later) in cases {
            let mut dut = Dut::new().expecting(&["drop_after_failure"]);
            dut.end.post_recv(1, 100);
            let target = dut.end.target(8);
            let later = later(target.remote(0));
            if together {
                dut.peer.send(&[terminate_fpdu(), later.clone()].concat());
            } else {
                dut.peer.send(&terminate_fpdu());
                dut.sim.run_until("the FIN", || dut.peer.saw_fin());
                dut.peer.send(&later);
            }
            dut.sim.run_until("the FIN", || dut.peer.saw_fin());
            dut.sim.run_for(Duration::from_millis(1));
            dut.peer.close();
            dut.sim.run_until_idle();
            let told = [AsyncEventKind::TerminateReceived(TermCode::ddp_tagged(1))];
            assert_eq!(dut.end.events(), told, "{what}: one event");
            assert_eq!(target.to_vec(), [0; 8], "{what}");
            let flushed = Done::flushed(1, Opcode::Receive);
            assert_eq!(dut.end.receives(), [flushed], "{what}");
            assert_eq!(dut.end.buffer(1), [0; 100], "{what}");
            assert!(dut.answer().is_empty(), "{what}: no answer");
            let dropped = dut.end.host().drops()["drop_after_failure"];
            assert_eq!(dropped, later.len() as u64, "{what}");
        }
    }
}

/// All work is flushed. The RNIC does not try to send a Terminate.
/// Row 107.
#[test]
fn reset_in_the_middle_flushes_all_work() {
    let mut dut = Dut::new().expecting(&["drop_no_flow"]);
    dut.end.post_recv(1, 100);
    dut.end.post_recv(2, 100);
    let sink = dut.end.target(8);
    let source = dut.end.region(MIB, Access::all());
    dut.end.post_read(3, sink.local(0, 8), FAR);
    let swap = SendRequest::swap(WrId(4), 7, FAR);
    dut.end.post(swap.result_into(sink.local(0, 8)));
    dut.end.post_write(5, &pattern(MIB), FAR);
    dut.end.post_send(6, b"behind it");
    let header = read_request(Stag(1), 0, 1 << 20, source.stag(), 0);
    dut.peer.send(&Untagged::read_request().fpdu(&header));
    let begin = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    dut.peer.send(&begin.fpdu(b"half a message"));
    dut.sim.run_for(Duration::from_micros(120));
    dut.peer.abort();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.events(), [AsyncEventKind::ConnectionReset]);
    #[rustfmt::skip]
    assert_eq!(dut.end.sends(), [
        Done::flushed(3, Opcode::Read), Done::flushed(4, Opcode::CompareSwap),
        Done::flushed(5, Opcode::Write), Done::flushed(6, Opcode::Send),
    ]);
    let flushed = [1, 2].map(|i| Done::flushed(i, Opcode::Receive));
    assert_eq!(dut.end.receives(), flushed);
    let counters = dut.end.host().rnic().counters().unwrap();
    assert_eq!(counters.rdma.terminates_out, 0);
    assert_eq!(sink.to_vec(), [0; 8]);
}

/// However the window came to be closed: the Terminate is waited for, then the connection is reset.
/// Row 108.
#[test]
fn terminate_before_a_closed_window_is_given_up_after_a_while() {
    for responding in [true, false] {
        let drops = &["drop_refused_segment", "drop_after_failure", "drop_no_flow"];
        let mut dut = Dut::new().expecting(drops);
        dut.sim.run_until_idle();
        dut.peer.set_reading(false);
        let source = dut.end.region(MIB, Access::all());
        if responding {
            let header = read_request(Stag(1), 0, 1 << 20, source.stag(), 0);
            dut.peer.send(&Untagged::read_request().fpdu(&header));
        } else {
            dut.end.post_write(1, &pattern(MIB), FAR);
        }
        dut.sim.run_for(Duration::from_secs(1));
        let before = dut.sim.now();
        dut.peer.send(&fpdu(&[0xc1; 5]));
        dut.sim.run_for(Duration::from_secs(1));
        assert_eq!(dut.end.state(), QpState::Terminate, "it waits");
        dut.sim
            .run_until("the end", || dut.end.state() == QpState::Error);
        assert!(dut.sim.now() < before + Duration::from_secs(5));
        dut.sim.run_until_idle();
        assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
    }
}

/// A window that opens in time lets the Terminate out.
/// Row 108.
#[test]
fn terminate_leaves_when_the_window_opens() {
    let drops = &["drop_refused_segment", "drop_after_failure"];
    let mut dut = Dut::new().expecting(drops);
    dut.sim.run_until_idle();
    dut.peer.set_reading(false);
    dut.end.post_write(1, &pattern(MIB), FAR);
    dut.sim.run_for(Duration::from_secs(1));
    dut.peer.send(&fpdu(&[0xc1; 5]));
    dut.sim.run_for(Duration::from_secs(1));
    dut.peer.set_reading(true);
    dut.sim.run_until("the FIN", || dut.peer.saw_fin());
    dut.peer.close();
    dut.sim.run_until_idle();
    let (code, _) = xwarp_sim_tests::wire::terminate(&dut.answer());
    assert_eq!(code, TermCode::ddp_local());
    assert_eq!(dut.peer.ended(), Some(CloseReason::Graceful));
}

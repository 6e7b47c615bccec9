//! Whole streams: unusual ones that must be understood, and ones that end where they must not.

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::{QpState, Stag};
use xwarp_sim_tests::wire::{Tagged, Untagged, fpdu, read_request, ulpdus};
use xwarp_sim_tests::{Done, MIB, pattern};
use xwarp_tcp::CloseReason;

use super::Dut;

const REFUSED: &[&str] = &["drop_refused_segment", "drop_after_failure"];

#[test]
fn segments_of_one_byte_are_as_good_as_any() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let target = dut.end.target(50);
    let place = target.remote(0);
    let write = Tagged::write(place.stag, place.to).fpdu(&pattern(50));
    let send = Untagged::default().fpdu(b"in small pieces");
    dut.peer.send_pieces(&[write, send].concat(), 1);
    dut.sim.run_until_idle();
    assert_eq!(target.to_vec(), pattern(50));
    assert_eq!(dut.end.receives(), [Done::receive(1, 15)]);
}

#[test]
fn fpdu_of_the_largest_size_is_taken_whatever_the_mtu() {
    let mut dut = Dut::new();
    let target = dut.end.target(64_768 - 14);
    let place = target.remote(0);
    dut.peer
        .send(&Tagged::write(place.stag, place.to).fpdu(&pattern(64_768 - 14)));
    dut.sim.run_until_idle();
    assert!(target.to_vec() == pattern(64_768 - 14));
    assert_eq!(dut.end.state(), QpState::Rts);
}

#[test]
fn hundred_fpdus_in_few_segments_are_taken_in_order() {
    let mut dut = Dut::new();
    let mut stream = Vec::new();
    for i in 0..100_u32 {
        dut.end.post_recv(u64::from(i), 8);
        let send = Untagged {
            msn: i + 1,
            ..Untagged::default()
        };
        stream.extend(send.fpdu(&i.to_be_bytes()));
    }
    dut.peer.send(&stream);
    dut.sim.run_until_idle();
    assert_eq!(
        dut.end.receives(),
        (0..100).map(|i| Done::receive(i, 4)).collect::<Vec<Done>>()
    );
    for i in 0..100_u32 {
        assert_eq!(dut.end.buffer(u64::from(i))[..4], i.to_be_bytes());
    }
}

#[test]
fn reserved_bits_and_a_plain_sends_invalidate_stag_mean_nothing() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let send = Untagged {
        control: 0x41 | 0x3c,
        rdmap: 0x43 | 0x30,
        stag: 0xdead_beef,
        ..Untagged::default()
    };
    dut.peer.send(&send.fpdu(b"fine"));
    dut.sim.run_until_idle();
    assert_eq!(dut.end.receives(), [Done::receive(1, 4)]);
}

#[test]
fn write_between_the_segments_of_a_send_is_placed() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let target = dut.end.target(4);
    let place = target.remote(0);
    let first = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    let last = Untagged {
        mo: 6,
        ..Untagged::default()
    };
    dut.peer.send(&first.fpdu(b"first,"));
    dut.peer
        .send(&Tagged::write(place.stag, place.to).fpdu(b"mid!"));
    dut.peer.send(&last.fpdu(b"last"));
    dut.sim.run_until_idle();
    assert_eq!(target.to_vec(), b"mid!");
    assert_eq!(dut.end.receives(), [Done::receive(1, 10)]);
    assert_eq!(dut.end.buffer(1)[..10], *b"first,last");
}

#[test]
fn read_of_nothing_is_answered_without_a_look_at_any_region() {
    let mut dut = Dut::new();
    let (sink, source) = (xwarp::Stag(0xdead), xwarp::Stag(0xbeef));
    let request = Untagged::read_request().fpdu(&read_request(sink, 5, 0, source, u64::MAX));
    dut.peer.send(&request);
    dut.sim.run_until_idle();
    let answer = ulpdus(&dut.answer());
    assert_eq!(
        answer,
        [[0xc1, 0x42, 0, 0, 0xde, 0xad, 0, 0, 0, 0, 0, 0, 0, 5]]
    );
}

#[test]
fn faults_within_a_message_of_several_segments_are_found() {
    let first = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    let next = Untagged {
        mo: 4,
        ..Untagged::default()
    };
    #[rustfmt::skip]
    let cases: [(&str, Untagged, &[u8], TermCode); 6] = [
        ("gap", Untagged { mo: 5, ..next }, b"abcd", TermCode::ddp_untagged(4)),
        ("overlap", Untagged { mo: 3, ..next }, b"abcd", TermCode::ddp_untagged(4)),
        ("next message early", Untagged { msn: 2, mo: 0, ..next }, b"abcd", TermCode::ddp_untagged(3)),
        ("other opcode", Untagged { rdmap: 0x45, ..next }, b"abcd", TermCode::rdmap_operation(6)),
        ("too long", next, &[7; 97], TermCode::ddp_untagged(5)),
        ("other RsvdULP", Untagged { stag: 9, ..next }, b"abcd", TermCode::rdmap_operation(6)),
    ];
    for (what, second, payload, code) in cases {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        dut.peer.send(&first.fpdu(b"good"));
        dut.sim.run_until_idle();
        dut.assert_terminates(what, &second.fpdu(payload), code);
        assert_eq!(
            dut.end.buffer(1)[..5],
            *b"good\0",
            "{what}: what was right stays"
        );
        assert!(dut.end.receives()[0].outcome.is_err(), "{what}");
    }
}

#[test]
fn repeated_message_number_is_refused() {
    let mut dut = Dut::new().expecting(REFUSED);
    dut.end.post_recv(1, 100);
    dut.end.post_recv(2, 100);
    dut.peer.send(&Untagged::default().fpdu(b"once"));
    dut.sim.run_until_idle();
    dut.assert_terminates(
        "MSN 1 again",
        &Untagged::default().fpdu(b"twice"),
        TermCode::ddp_untagged(3),
    );
}

#[test]
fn nothing_after_a_bad_fpdu_is_acted_upon() {
    let mut dut = Dut::new().expecting(&["drop_bad_fpdu", "drop_after_failure"]);
    dut.end.post_recv(1, 100);
    let target = dut.end.target(4);
    let place = target.remote(0);
    let mut stream = Untagged::default().fpdu(b"bad");
    stream[8] ^= 0xff;
    stream.extend(Tagged::write(place.stag, place.to).fpdu(b"good"));
    stream.extend(Untagged::default().fpdu(b"good"));
    dut.assert_terminates("a bad FPDU before good ones", &stream, TermCode::mpa(2));
    assert_eq!(target.to_vec(), [0; 4]);
}

/// Writes of one TCP segment are placed in order, and each names its region with its key.
#[test]
fn write_with_another_key_than_the_one_before_it_is_refused() {
    let mut dut = Dut::new().expecting(REFUSED);
    let target = dut.end.target(4);
    let place = target.remote(0);
    target.fill(b"same");
    let write = |stag| Tagged::write(stag, place.to).fpdu(b"same");
    let wrong = Stag(place.stag.0 ^ 1);
    let stream = [write(place.stag), write(place.stag), write(wrong)].concat();
    dut.assert_terminates("another key", &stream, TermCode::ddp_tagged(0));
    let placed = dut.end.host().rnic().counters().unwrap().rdma.placed_bytes;
    assert_eq!(placed, 8, "what came before it");
}

#[test]
fn terminate_is_reported_and_answered_with_a_fin() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let header = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    dut.peer.send(&header.fpdu(&[0x11, 0x01, 0, 0]));
    dut.sim.run_until("the RNIC's FIN", || dut.peer.saw_fin());
    dut.peer.close();
    dut.sim.run_until_idle();
    assert!(dut.answer().is_empty(), "no Terminate in answer to one");
    let events = dut.end.events();
    assert_eq!(
        events,
        [AsyncEventKind::TerminateReceived(TermCode::ddp_tagged(1))]
    );
    assert_eq!(dut.end.state(), QpState::Error);
}

#[test]
fn terminates_that_are_too_short_or_unknown_end_the_stream_all_the_same() {
    for payload in [
        &[][..],
        &[0x11],
        &[0x11, 1, 0],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x11, 1, 0xe0, 0, 0, 9, 1],
    ] {
        let mut dut = Dut::new();
        let header = Untagged {
            rdmap: 0x47,
            qn: 2,
            ..Untagged::default()
        };
        dut.peer.send(&header.fpdu(payload));
        dut.sim.run_until("the RNIC's FIN", || dut.peer.saw_fin());
        dut.peer.close();
        dut.sim.run_until_idle();
        assert!(dut.answer().is_empty(), "{payload:?}");
        assert_eq!(dut.end.events().len(), 1, "{payload:?}");
        assert_eq!(dut.end.state(), QpState::Error, "{payload:?}");
    }
}

#[test]
fn fin_inside_an_fpdu_or_a_message_is_a_bad_close() {
    let whole = Untagged::default().fpdu(b"cut in the middle");
    let open = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    for cut in [
        whole[..1].to_vec(),
        whole[..20].to_vec(),
        open.fpdu(b"to be continued"),
    ] {
        let mut dut = Dut::new();
        dut.end.post_recv(1, 100);
        dut.peer.send(&cut);
        dut.sim.run_until_idle();
        dut.peer.close();
        dut.sim.run_until_idle();
        let events = dut.end.events();
        assert!(
            matches!(events[..], [AsyncEventKind::BadClose { .. }]),
            "{events:?}"
        );
        assert_eq!(dut.end.state(), QpState::Error);
        assert!(dut.end.receives()[0].outcome.is_err());
    }
}

#[test]
fn fin_between_fpdus_is_a_clean_close() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    dut.peer.send(&Untagged::default().fpdu(b"bye"));
    dut.sim.run_until_idle();
    dut.peer.close();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.events(), [AsyncEventKind::Closed]);
    assert_eq!(dut.end.state(), QpState::Idle);
    assert_eq!(dut.end.receives(), [Done::receive(1, 3)]);
    assert_eq!(dut.peer.ended(), Some(CloseReason::Graceful));
}

/// RFC 5041 §6.2.1 lets the Read finish; a peer that only acknowledges must not hold the queue pair
/// for ever.
#[test]
fn close_does_not_wait_for_ever_for_a_read_that_is_never_answered() {
    let mut dut = Dut::new();
    let sink = dut.end.target(8);
    let far = xwarp::RemoteAddress {
        stag: xwarp::Stag(0x100),
        to: 0,
    };
    dut.end.post_read(1, sink.local(0, 8), far);
    dut.sim.run_until_idle();
    dut.end.qp.begin_disconnect().unwrap();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.state(), QpState::Error);
    let flushed = Done::flushed(1, xwarp::Opcode::Read);
    assert_eq!(dut.end.sends(), [flushed]);
}

#[test]
fn reset_in_the_middle_of_everything_is_a_lost_connection() {
    let mut dut = Dut::new();
    dut.end.post_recv(1, 100);
    let whole = Untagged::default().fpdu(b"cut in the middle");
    dut.peer.send(&whole[..20]);
    dut.sim.run_until_idle();
    dut.peer.abort();
    dut.sim.run_until_idle();
    assert_eq!(dut.end.events(), [AsyncEventKind::ConnectionReset]);
    assert_eq!(dut.end.state(), QpState::Error);
}

#[test]
fn peer_that_never_closes_after_a_terminate_is_reset() {
    let mut dut = Dut::new().expecting(REFUSED);
    dut.peer.send(&fpdu(&[0xc1; 5]));
    dut.sim.run_until("the end of the queue pair", || {
        dut.end.state() == QpState::Error
    });
    assert!(dut.sim.now().as_secs() < 10, "after {:?}", dut.sim.now());
    dut.sim.run_until_idle();
    assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
}

fn write_to_a_peer_that_does_not_read(dut: &mut Dut) {
    dut.sim.run_until_idle();
    dut.peer.set_reading(false);
    let far = xwarp::RemoteAddress {
        stag: xwarp::Stag(0x100),
        to: 0,
    };
    dut.end.post_write(1, &pattern(MIB), far);
}

#[test]
fn peer_that_does_not_read_for_a_while_gets_everything_later() {
    let mut dut = Dut::new();
    write_to_a_peer_that_does_not_read(&mut dut);
    dut.sim.run_for(Duration::from_mins(2));
    assert_eq!(dut.end.sends(), [], "the window is closed, and probed");
    dut.peer.set_reading(true);
    dut.sim.run_until_idle();
    assert_eq!(dut.end.sends(), [Done::write(1, MIB)]);
    let payload: Vec<u8> = ulpdus(&dut.answer())
        .iter()
        .flat_map(|ulpdu| ulpdu[14..].to_vec())
        .collect();
    assert!(payload == pattern(MIB));
}

#[test]
fn terminate_that_finds_the_window_closed_is_not_waited_for_long() {
    let mut dut = Dut::new().expecting(&["drop_bad_fpdu", "drop_after_failure", "drop_no_flow"]);
    write_to_a_peer_that_does_not_read(&mut dut);
    dut.sim.run_for(Duration::from_secs(1));
    let before = dut.sim.now();
    dut.peer.send(&[0xff; 8]);
    dut.sim
        .run_until("the end", || dut.end.state() == QpState::Error);
    assert!(dut.sim.now() < before + Duration::from_secs(10));
    dut.sim.run_until_idle();
    assert_eq!(dut.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(dut.end.sends(), [Done::flushed(1, xwarp::Opcode::Write)]);
}

#[test]
fn terminates_that_cross_are_not_answered() {
    let mut dut = Dut::new().expecting(REFUSED);
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    // The second comes while the Terminate for the first is on its way.
    dut.peer.send(&fpdu(&[0xc1; 5]));
    dut.sim.run_for(Duration::from_micros(60));
    let captured = dut.assert_terminates(
        "crossing",
        &terminate.fpdu(&[0x02, 0x07, 0, 0]),
        TermCode::ddp_local(),
    );
    assert_eq!(captured, [0, 0]);
}

/// Only the message that a receive was taken for can be too long for it.
#[test]
fn request_that_is_too_long_is_no_fault_of_the_receive_that_is_being_filled() {
    let begin = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    let requests = [
        Untagged::read_request().fpdu(&[0; 29]),
        Untagged::atomic_request().fpdu(&[0; 53]),
    ];
    for request in requests {
        let mut dut = Dut::new().expecting(REFUSED);
        dut.end.post_recv(1, 100);
        dut.peer.send(&begin.fpdu(b"begun"));
        dut.sim.run_until_idle();
        dut.assert_terminates("too long", &request, TermCode::ddp_untagged(5));
        let flushed = Done::flushed(1, xwarp::Opcode::Receive);
        assert_eq!(dut.end.receives(), [flushed]);
    }
}

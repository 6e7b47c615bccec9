//! Whole streams: unusual ones that must be understood, and ones that end where they must not.

use std::time::Duration;

use xwarp::{AsyncEventKind, QpState, TermCode};
use xwarp_sim_tests::wire::{Tagged, Untagged, fpdu, read_request, ulpdus};
use xwarp_sim_tests::{Done, MIB, pattern};
use xwarp_tcp::CloseReason;

use super::Victim;

const REFUSED: &[&str] = &["drop_refused_segment", "drop_after_failure"];

#[test]
fn segments_of_one_byte_are_as_good_as_any() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    let target = victim.end.target(50);
    let place = target.remote(0);
    let write = Tagged::write(place.stag, place.to).fpdu(&pattern(50));
    let send = Untagged::default().fpdu(b"in small pieces");
    victim.peer.send_pieces(&[write, send].concat(), 1);
    victim.sim.run_until_idle();
    assert_eq!(target.to_vec(), pattern(50));
    assert_eq!(victim.end.receives(), [Done::receive(1, 15)]);
}

#[test]
fn fpdu_of_the_largest_size_is_taken_whatever_the_mtu() {
    let mut victim = Victim::new();
    let target = victim.end.target(64_768 - 14);
    let place = target.remote(0);
    victim
        .peer
        .send(&Tagged::write(place.stag, place.to).fpdu(&pattern(64_768 - 14)));
    victim.sim.run_until_idle();
    assert!(target.to_vec() == pattern(64_768 - 14));
    assert_eq!(victim.end.state(), QpState::Rts);
}

#[test]
fn hundred_fpdus_in_few_segments_are_taken_in_order() {
    let mut victim = Victim::new();
    let mut stream = Vec::new();
    for i in 0..100_u32 {
        victim.end.post_recv(u64::from(i), 8);
        let send = Untagged {
            msn: i + 1,
            ..Untagged::default()
        };
        stream.extend(send.fpdu(&i.to_be_bytes()));
    }
    victim.peer.send(&stream);
    victim.sim.run_until_idle();
    assert_eq!(
        victim.end.receives(),
        (0..100).map(|i| Done::receive(i, 4)).collect::<Vec<Done>>()
    );
    for i in 0..100_u32 {
        assert_eq!(victim.end.buffer(u64::from(i))[..4], i.to_be_bytes());
    }
}

#[test]
fn reserved_bits_and_a_plain_sends_invalidate_stag_mean_nothing() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    let send = Untagged {
        control: 0x41 | 0x3c,
        rdmap: 0x43 | 0x30,
        stag: 0xdead_beef,
        ..Untagged::default()
    };
    victim.peer.send(&send.fpdu(b"fine"));
    victim.sim.run_until_idle();
    assert_eq!(victim.end.receives(), [Done::receive(1, 4)]);
}

#[test]
fn write_between_the_segments_of_a_send_is_placed() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    let target = victim.end.target(4);
    let place = target.remote(0);
    let first = Untagged {
        control: 0x01,
        ..Untagged::default()
    };
    let last = Untagged {
        mo: 6,
        ..Untagged::default()
    };
    victim.peer.send(&first.fpdu(b"first,"));
    victim
        .peer
        .send(&Tagged::write(place.stag, place.to).fpdu(b"mid!"));
    victim.peer.send(&last.fpdu(b"last"));
    victim.sim.run_until_idle();
    assert_eq!(target.to_vec(), b"mid!");
    assert_eq!(victim.end.receives(), [Done::receive(1, 10)]);
    assert_eq!(victim.end.buffer(1)[..10], *b"first,last");
}

#[test]
fn read_of_nothing_is_answered_without_a_look_at_any_region() {
    let mut victim = Victim::new();
    let (sink, source) = (xwarp::Stag(0xdead), xwarp::Stag(0xbeef));
    let request = Untagged::read_request().fpdu(&read_request(sink, 5, 0, source, u64::MAX));
    victim.peer.send(&request);
    victim.sim.run_until_idle();
    let answer = ulpdus(&victim.answer());
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
        let mut victim = Victim::new().expecting(REFUSED);
        victim.end.post_recv(1, 100);
        victim.peer.send(&first.fpdu(b"good"));
        victim.sim.run_until_idle();
        victim.assert_terminates(what, &second.fpdu(payload), code);
        assert_eq!(
            victim.end.buffer(1)[..5],
            *b"good\0",
            "{what}: what was right stays"
        );
        assert!(victim.end.receives()[0].outcome.is_err(), "{what}");
    }
}

#[test]
fn repeated_message_number_is_refused() {
    let mut victim = Victim::new().expecting(REFUSED);
    victim.end.post_recv(1, 100);
    victim.end.post_recv(2, 100);
    victim.peer.send(&Untagged::default().fpdu(b"once"));
    victim.sim.run_until_idle();
    victim.assert_terminates(
        "MSN 1 again",
        &Untagged::default().fpdu(b"twice"),
        TermCode::ddp_untagged(3),
    );
}

#[test]
fn nothing_after_a_bad_fpdu_is_acted_upon() {
    let mut victim = Victim::new().expecting(&["drop_bad_fpdu", "drop_after_failure"]);
    victim.end.post_recv(1, 100);
    let target = victim.end.target(4);
    let place = target.remote(0);
    let mut stream = Untagged::default().fpdu(b"bad");
    stream[8] ^= 0xff;
    stream.extend(Tagged::write(place.stag, place.to).fpdu(b"good"));
    stream.extend(Untagged::default().fpdu(b"good"));
    victim.assert_terminates("a bad FPDU before good ones", &stream, TermCode::mpa(2));
    assert_eq!(target.to_vec(), [0; 4]);
}

#[test]
fn terminate_is_reported_and_answered_with_a_fin() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    let header = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    victim.peer.send(&header.fpdu(&[0x11, 0x01, 0, 0]));
    victim
        .sim
        .run_until("the RNIC's FIN", || victim.peer.saw_fin());
    victim.peer.close();
    victim.sim.run_until_idle();
    assert!(victim.answer().is_empty(), "no Terminate in answer to one");
    let events = victim.end.events();
    assert_eq!(
        events,
        [AsyncEventKind::TerminateReceived(TermCode::ddp_tagged(1))]
    );
    assert_eq!(victim.end.state(), QpState::Error);
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
        let mut victim = Victim::new();
        let header = Untagged {
            rdmap: 0x47,
            qn: 2,
            ..Untagged::default()
        };
        victim.peer.send(&header.fpdu(payload));
        victim
            .sim
            .run_until("the RNIC's FIN", || victim.peer.saw_fin());
        victim.peer.close();
        victim.sim.run_until_idle();
        assert!(victim.answer().is_empty(), "{payload:?}");
        assert_eq!(victim.end.events().len(), 1, "{payload:?}");
        assert_eq!(victim.end.state(), QpState::Error, "{payload:?}");
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
        let mut victim = Victim::new();
        victim.end.post_recv(1, 100);
        victim.peer.send(&cut);
        victim.sim.run_until_idle();
        victim.peer.close();
        victim.sim.run_until_idle();
        let events = victim.end.events();
        assert!(
            matches!(events[..], [AsyncEventKind::BadClose { .. }]),
            "{events:?}"
        );
        assert_eq!(victim.end.state(), QpState::Error);
        assert!(victim.end.receives()[0].outcome.is_err());
    }
}

#[test]
fn fin_between_fpdus_is_a_clean_close() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    victim.peer.send(&Untagged::default().fpdu(b"bye"));
    victim.sim.run_until_idle();
    victim.peer.close();
    victim.sim.run_until_idle();
    assert_eq!(victim.end.events(), [AsyncEventKind::Closed]);
    assert_eq!(victim.end.state(), QpState::Idle);
    assert_eq!(victim.end.receives(), [Done::receive(1, 3)]);
    assert_eq!(victim.peer.ended(), Some(CloseReason::Graceful));
}

/// RFC 5041 §6.2.1 lets the Read finish; a peer that only acknowledges must not hold the queue pair for ever.
#[test]
fn close_does_not_wait_for_ever_for_a_read_that_is_never_answered() {
    let mut victim = Victim::new();
    let sink = victim.end.target(8);
    let far = xwarp::RemoteAddress {
        stag: xwarp::Stag(0x100),
        to: 0,
    };
    victim.end.post_read(1, sink.local(0, 8), far);
    victim.sim.run_until_idle();
    victim.end.qp.begin_disconnect().unwrap();
    victim.sim.run_until_idle();
    assert_eq!(victim.end.state(), QpState::Error);
    let flushed = Done::flushed(1, xwarp::Opcode::Read);
    assert_eq!(victim.end.sends(), [flushed]);
}

#[test]
fn reset_in_the_middle_of_everything_is_a_lost_connection() {
    let mut victim = Victim::new();
    victim.end.post_recv(1, 100);
    let whole = Untagged::default().fpdu(b"cut in the middle");
    victim.peer.send(&whole[..20]);
    victim.sim.run_until_idle();
    victim.peer.abort();
    victim.sim.run_until_idle();
    assert_eq!(victim.end.events(), [AsyncEventKind::ConnectionReset]);
    assert_eq!(victim.end.state(), QpState::Error);
}

#[test]
fn peer_that_never_closes_after_a_terminate_is_reset() {
    let mut victim = Victim::new().expecting(REFUSED);
    victim.peer.send(&fpdu(&[0xc1; 5]));
    victim.sim.run_until("the end of the queue pair", || {
        victim.end.state() == QpState::Error
    });
    assert!(
        victim.sim.now().as_secs() < 10,
        "after {:?}",
        victim.sim.now()
    );
    victim.sim.run_until_idle();
    assert_eq!(victim.peer.ended(), Some(CloseReason::Reset));
}

#[test]
fn peer_that_does_not_read_for_a_while_gets_everything_later() {
    let mut victim = Victim::new();
    victim.sim.run_until_idle();
    victim.peer.set_reading(false);
    let far = xwarp::RemoteAddress {
        stag: xwarp::Stag(0x100),
        to: 0,
    };
    victim.end.post_write(1, &pattern(MIB), far);
    victim.sim.run_for(Duration::from_mins(2));
    assert_eq!(victim.end.sends(), [], "the window is closed, and probed");
    victim.peer.set_reading(true);
    victim.sim.run_until_idle();
    assert_eq!(victim.end.sends(), [Done::write(1, MIB)]);
    let payload: Vec<u8> = ulpdus(&victim.answer())
        .iter()
        .flat_map(|ulpdu| ulpdu[14..].to_vec())
        .collect();
    assert!(payload == pattern(MIB));
}

#[test]
fn terminate_that_finds_the_window_closed_is_not_waited_for_long() {
    let mut victim =
        Victim::new().expecting(&["drop_bad_fpdu", "drop_after_failure", "drop_no_flow"]);
    victim.sim.run_until_idle();
    victim.peer.set_reading(false);
    let far = xwarp::RemoteAddress {
        stag: xwarp::Stag(0x100),
        to: 0,
    };
    victim.end.post_write(1, &pattern(MIB), far);
    victim.sim.run_for(Duration::from_secs(1));
    let before = victim.sim.now();
    victim.peer.send(&[0xff; 8]);
    victim
        .sim
        .run_until("the end", || victim.end.state() == QpState::Error);
    assert!(victim.sim.now() < before + Duration::from_secs(10));
    victim.sim.run_until_idle();
    assert_eq!(victim.peer.ended(), Some(CloseReason::Reset));
    assert_eq!(victim.end.sends(), [Done::flushed(1, xwarp::Opcode::Write)]);
}

#[test]
fn terminates_that_cross_are_not_answered() {
    let mut victim = Victim::new().expecting(REFUSED);
    let terminate = Untagged {
        rdmap: 0x47,
        qn: 2,
        ..Untagged::default()
    };
    // The second comes while the Terminate for the first is on its way.
    victim.peer.send(&fpdu(&[0xc1; 5]));
    victim.sim.run_for(Duration::from_micros(60));
    let captured = victim.assert_terminates(
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
        let mut victim = Victim::new().expecting(REFUSED);
        victim.end.post_recv(1, 100);
        victim.peer.send(&begin.fpdu(b"begun"));
        victim.sim.run_until_idle();
        victim.assert_terminates("too long", &request, TermCode::ddp_untagged(5));
        let flushed = Done::flushed(1, xwarp::Opcode::Receive);
        assert_eq!(victim.end.receives(), [flushed]);
    }
}

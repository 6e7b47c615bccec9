//! Frames that leave, and their completions.

use super::*;

#[test]
fn frames_leave_at_a_flush_and_are_free_when_they_are_completed() {
    let mut bed = Bed::new();
    for round in 0..3 {
        let bytes = [[round; 60], [round + 9; 60]];
        for bytes in &bytes {
            bed.send(bytes);
        }
        assert!(bed.kernel.take_pieces(9).is_empty(), "not before the flush");
        assert!(bed.io.backlog());
        bed.io.flush().unwrap();
        let pieces = bed.kernel.take_pieces(9);
        let sent = pieces
            .iter()
            .map(|it| bed.kernel.bytes(it.addr(), it.len()));
        assert_eq!(sent.collect::<Vec<_>>(), bytes);
        assert!(pieces.iter().all(|it| !it.more() && !it.is_described()));
        assert_eq!(
            (bed.io.tx_free(), bed.io.levels().tx_frames_in_flight),
            (6, 2)
        );
        bed.kernel.complete(pieces[1].addr());
        bed.io.flush().unwrap();
        assert_eq!((bed.io.tx_free(), bed.io.backlog()), (7, true));
        bed.kernel.complete(pieces[0].addr());
        bed.io.flush().unwrap();
        assert_eq!((bed.io.tx_free(), bed.io.backlog()), (8, false));
    }
    let counters = bed.io.counters();
    assert_eq!((counters.tx_frames, counters.tx_bytes), (6, 360));
}

#[test]
fn kept_frame_is_its_senders_again_once_it_is_completed() {
    let mut bed = Bed::new();
    let frame = bed.frame(b"to be sent twice");
    let mut sent = bed.io.send_kept(frame);
    for _ in 0..2 {
        bed.io.flush().unwrap();
        sent = bed.io.reclaim(sent).unwrap_err();
        bed.complete_all();
        // It is had without a flush.
        let frame = bed.io.reclaim(sent).unwrap();
        assert_eq!(frame[..], *b"to be sent twice");
        sent = bed.io.send_kept(frame);
    }
    bed.io.release(sent);
    bed.io.flush().unwrap();
    assert_eq!(bed.io.tx_free(), 7, "it was not completed");
    bed.complete_all();
    bed.io.flush().unwrap();
    assert_eq!(bed.io.tx_free(), 8);
    let frame = bed.frame(b"not wanted again");
    let sent = bed.io.send_kept(frame);
    bed.io.flush().unwrap();
    bed.complete_all();
    bed.io.flush().unwrap();
    assert_eq!(
        bed.io.levels().tx_frames_kept,
        1,
        "its sender has the token"
    );
    bed.io.release(sent);
    assert_eq!(bed.io.tx_free(), 8);
    let levels = bed.io.levels();
    assert_eq!((levels.tx_frames_kept, levels.tx_frames_in_flight), (0, 0));
}

#[test]
fn frame_sent_by_other_means_and_one_that_is_not_sent_are_free_again() {
    let mut bed = Bed::new();
    let frame = bed.frame(b"elsewhere");
    let sent = bed.io.keep(frame);
    assert_eq!((sent.len(), bed.io.levels().tx_frames_kept), (9, 1));
    let frame = bed.io.reclaim(sent).unwrap();
    assert_eq!((bed.io.backlog(), &frame[..]), (false, &b"elsewhere"[..]));
    bed.io.discard(frame);
    assert_eq!(bed.io.tx_free(), 8);
    bed.io.flush().unwrap();
    assert!(bed.take_sent().is_empty());
    assert_eq!(bed.io.counters().tx_frames, 0);
}

/// A caller that asks for a frame when none is free gets those that were completed meanwhile,
/// without a flush.
#[test]
fn frames_are_completed_when_they_run_out() {
    let mut bed = Bed::new();
    (0..8).for_each(|number| bed.send(&[number; 60]));
    bed.io.flush().unwrap();
    assert!(bed.io.tx_frame().is_none());
    assert_eq!(bed.io.counters().tx_exhausted, 1);
    let sent = bed.take_sent();
    sent[..3].iter().for_each(|addr| bed.kernel.complete(*addr));
    assert_eq!(bed.io.tx_free(), 0, "it has not looked");
    let frames: Vec<_> = std::iter::from_fn(|| bed.io.tx_frame()).collect();
    assert_eq!(frames.len(), 3);
    assert_eq!(bed.io.counters().tx_exhausted, 2);
    assert_eq!(bed.io.levels().tx_frames_in_flight, 5);
    for frame in frames {
        bed.io.discard(frame);
    }
    assert_eq!(bed.io.tx_free(), 3);
}

#[test]
fn what_the_transmit_ring_has_no_room_for_waits_in_order() {
    let many = UmemSpec {
        transmit: 100,
        ring: 64,
        ..wanted()
    };
    let mut bed = Bed::of(&many);
    (0..100).for_each(|number| bed.send(&[number; 60]));
    bed.io.flush().unwrap();
    let mut sent = Vec::new();
    for (taken, then) in [(1, 64), (10, 64), (64, 25), (25, 0)] {
        let pieces = bed.kernel.take_pieces(taken);
        assert_eq!(pieces.len(), taken);
        sent.extend(pieces.iter().map(|it| bed.kernel.bytes(it.addr(), 1)[0]));
        bed.io.flush().unwrap();
        assert_eq!(bed.io.levels().tx_ring, then, "after {}", sent.len());
        for piece in pieces {
            bed.kernel.complete(piece.addr());
        }
        bed.io.flush().unwrap();
    }
    assert_eq!(sent, (0..100).collect::<Vec<_>>());
    assert_eq!((bed.io.tx_free(), bed.io.backlog()), (100, false));
}

/// A frame of three chunks takes three entries, and goes as a whole. It is free when its last chunk
/// is back.
#[test]
fn frames_of_several_chunks_leave_whole() {
    let large = UmemSpec {
        frame_bytes: LARGE,
        ring: 16,
        ..wanted()
    };
    let mut bed = Bed::of(&large);
    let all = bed.io.tx_free();
    (0..7).for_each(|number| bed.send(&[number; LARGE]));
    bed.io.flush().unwrap();
    let pieces = bed.kernel.take_pieces(99);
    assert_eq!(pieces.len(), 15, "the sixth has no room");
    let more: Vec<_> = pieces.iter().map(Descriptor::more).collect();
    assert_eq!(more, [true, true, false].repeat(5));
    for (number, frame) in (0..).zip(pieces.chunks(3)) {
        let bytes = frame
            .iter()
            .flat_map(|it| bed.kernel.bytes(it.addr(), it.len()));
        assert!(bytes.collect::<Vec<u8>>() == [number; LARGE]);
    }
    for (number, piece) in (1..).zip(pieces.iter().rev()) {
        bed.kernel.complete(piece.addr());
        bed.io.flush().unwrap();
        assert_eq!(bed.io.tx_free(), all - 7 + number / 3);
    }
    bed.complete_all();
    bed.io.flush().unwrap();
    assert_eq!(bed.io.tx_free(), all);
}

/// A kernel that is wrong makes no frame free that is not, and takes none away.
#[test]
fn completion_of_what_is_not_in_flight_changes_nothing() {
    let mut bed = Bed::new();
    bed.send(&[1; 60]);
    bed.io.flush().unwrap();
    let sent = bed.take_sent()[0];
    let chunk = CHUNK as u64;
    for wrong in [
        0,
        bed.kernel.take_chunks(1)[0],
        sent + chunk,
        sent - chunk,
        u64::MAX,
    ] {
        bed.kernel.complete(wrong);
        bed.io.flush().unwrap();
        assert_eq!(
            (bed.io.tx_free(), bed.io.backlog()),
            (7, true),
            "{wrong:#x}"
        );
    }
    bed.kernel.complete(sent);
    bed.kernel.complete(sent);
    bed.io.flush().unwrap();
    assert_eq!((bed.io.tx_free(), bed.io.backlog()), (8, false));
    let frames: Vec<_> = std::iter::from_fn(|| bed.io.tx_frame()).collect();
    assert_eq!(frames.len(), 8);
}

#[test]
fn frame_or_token_of_another_queue_is_counted_and_not_sent() {
    let (mut bed, mut other) = (Bed::new(), Bed::new());
    let frames = [1, 2, 3].map(|number| other.frame(&[number; 60]));
    let [first, second, third] = frames;
    bed.io.send(first);
    let token = bed.io.send_kept(second);
    assert!(bed.io.reclaim(token).is_err());
    bed.io.discard(third);
    let kept = other.frame(&[4; 60]);
    let token = other.io.send_kept(kept);
    bed.io.release(token);
    bed.io.flush().unwrap();
    assert!(bed.take_sent().is_empty() && !bed.io.backlog());
    let counters = bed.io.counters();
    assert_eq!((counters.drop_foreign, counters.tx_frames), (4, 0));
    assert_eq!(bed.io.tx_free(), 8);
}

/// Only a kernel that knows of requests gets any, in front of the frame and marked in its
/// descriptor.
#[test]
fn checksum_is_left_to_the_nic_where_the_kernel_takes_requests() {
    let metadata = TxMetadata {
        bytes: 24,
        computes: Computes::Nic,
    };
    for metadata in [None, Some(metadata)] {
        let takes = metadata.is_some();
        let mut bed = Bed::of(&UmemSpec {
            metadata,
            ..wanted()
        });
        assert_eq!(bed.io.offers_checksums(), takes);
        for left in [true, false] {
            let mut frame = bed.frame(&[1; 60]);
            if left {
                frame.leave_checksum(34, 16);
            }
            bed.io.send(frame);
        }
        bed.io.flush().unwrap();
        let pieces = bed.kernel.take_pieces(2);
        let described = pieces.iter().map(Descriptor::is_described);
        assert_eq!(described.collect::<Vec<_>>(), [takes, false]);
        let front = bed.kernel.bytes(pieces[0].addr() - 24, 24);
        assert_eq!(front.iter().any(|byte| *byte != 0), takes);
    }
}

//! Frames that arrive, and the chunks that they arrive in.

use super::*;

/// The bytes of frame number `number`.
fn bytes_of(number: usize) -> Vec<u8> {
    let byte = u8::try_from(number % 251).unwrap();
    vec![byte; 60 + number % 7]
}

#[test]
fn kernel_has_chunks_to_receive_into_from_the_start() {
    for (receive, posted, zero_copy, expected) in [
        (1024, 0, false, 320),
        (100, 0, false, 100),
        (1024, 64, false, 320),
        (1024, 64, true, 384),
    ] {
        let wanted = UmemSpec {
            receive,
            posted,
            ..wanted()
        };
        let prepare = |kernel: &Kernel| {
            if zero_copy {
                kernel.set_zero_copy();
            }
        };
        let mut bed = Bed::open(&target(), &wanted, prepare).ok().unwrap();
        assert_eq!(bed.io.has_zero_copy(), zero_copy);
        assert_eq!(bed.fill(), expected);
        let mut chunks = bed.chunks.clone();
        chunks.sort_unstable();
        chunks.dedup();
        assert_eq!(chunks.len(), expected, "each is another one");
        assert!(chunks.iter().all(|addr| addr % CHUNK as u64 == 0));
        assert!(
            chunks
                .iter()
                .all(|addr| *addr < u64::from(receive) * CHUNK as u64)
        );
    }
}

#[test]
fn frames_come_in_order_with_their_bytes_as_many_as_are_wanted() {
    let mut bed = Bed::new();
    for round in 0..3 {
        (0..200).for_each(|number| bed.deliver(&bytes_of(round * 200 + number)));
        assert_eq!(bed.io.levels().rx_ring, 200);
        let mut frames = Vec::new();
        for (budget, there) in [(0, 0), (1, 1), (64, 65), (85, 150), (1000, 200)] {
            bed.io.receive(budget, &mut frames);
            assert_eq!(frames.len(), there, "at most {budget}");
        }
        assert_eq!(bed.io.levels().rx_ring, 0, "the kernel has its room again");
        for (number, frame) in frames.into_iter().enumerate() {
            assert_eq!(frame[..], bytes_of(round * 200 + number));
            assert!(bed.io.owns(&frame));
            bed.io.recycle(frame);
        }
        bed.io.flush().unwrap();
        bed.assert_held(0);
    }
    let (counters, all) = (bed.io.counters(), 0..600);
    let bytes: usize = all.map(|number| bytes_of(number).len()).sum();
    assert_eq!((counters.rx_frames, counters.rx_bytes), (600, bytes as u64));
}

/// The receive ring has fewer entries than the frames that pass.
#[test]
fn room_of_what_was_received_is_the_kernels_again() {
    let small = UmemSpec {
        ring: 64,
        receive: 64,
        ..wanted()
    };
    let mut bed = Bed::of(&small);
    for _ in 0..5 {
        (0..64).for_each(|number| bed.deliver(&bytes_of(number)));
        assert_eq!(bed.pass(), 64);
    }
}

#[test]
fn chunks_given_back_are_shown_to_the_kernel_by_batches_and_at_each_flush() {
    let mut bed = Bed::new();
    assert_eq!(bed.fill(), 320);
    (0..79).for_each(|number| bed.deliver(&bytes_of(number)));
    let mut frames = bed.receive().into_iter();
    bed.assert_held(79);
    let mut give_back = |bed: &mut Bed, count| {
        let frames = frames.by_ref().take(count);
        frames.for_each(|frame| bed.io.recycle(frame));
        bed.kernel.take_chunks(usize::MAX).len()
    };
    assert_eq!(give_back(&mut bed, 63), 0);
    assert_eq!(give_back(&mut bed, 1), 64);
    assert_eq!(give_back(&mut bed, 15), 0);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.take_chunks(usize::MAX).len(), 15);
    bed.assert_held(0);
}

/// It has few at first. A burst of a quarter of them asks for four times as many, as far as there
/// are spare ones.
#[test]
fn kernel_is_lent_spare_chunks_after_a_burst() {
    let mut bed = Bed::new();
    assert_eq!(bed.fill(), 320);
    (0..80).for_each(|number| bed.deliver(&bytes_of(number)));
    let held = bed.receive();
    bed.io.flush().unwrap();
    assert_eq!(bed.fill(), CHUNKS - 80, "all but those that are held");
    bed.give_back(held);
    bed.io.flush().unwrap();
    assert_eq!(bed.fill(), CHUNKS);
    bed.assert_held(0);
}

/// Chunks that are given back when the kernel has enough are kept.
#[test]
fn kernel_has_fewer_chunks_again_when_bursts_have_ended() {
    let mut bed = Bed::new();
    bed.fill();
    (0..80).for_each(|number| bed.deliver(&bytes_of(number)));
    bed.pass();
    assert_eq!(bed.fill(), CHUNKS);
    for (frames, lent) in cases([(5000, 512), (2000, 320), (20_000, 320)]) {
        for _ in 0..frames {
            bed.deliver(&[1; 60]);
            assert_eq!(bed.pass(), 1);
        }
        let levels = bed.io.levels();
        assert_eq!(levels.rx_chunks_lent, lent);
        assert_eq!(levels.rx_chunks_spare, CHUNKS as u64 - lent);
    }
}

/// An XDP program may have moved the start of a frame, so that its bytes are not where they can be
/// given out. More come than there are chunks.
#[test]
fn frame_that_lies_elsewhere_in_its_chunk_is_counted_and_its_chunk_goes_round() {
    let mut bed = Bed::new();
    for count in 1..=2 * CHUNKS as u64 {
        let chunk = bed.next_chunk();
        let moved = if count % 2 == 0 { 4 } else { u64::MAX - 3 };
        let at = (chunk + HEADROOM).wrapping_add(moved);
        bed.kernel.receive_at(at, &[7; 60], false);
        assert_eq!(bed.pass(), 0);
        assert_eq!(bed.io.counters().drop_rx_other, count);
    }
    bed.assert_held(0);
    bed.deliver(&bytes_of(3));
    assert_eq!(bed.receive()[0][..], bytes_of(3));
    assert_eq!(bed.io.counters().rx_frames, 1);
}

/// What the queue has is not taken from it by a kernel that returns what it was not lent.
#[test]
fn chunk_that_the_kernel_does_not_have_is_no_frame() {
    let mut bed = Bed::new();
    bed.deliver(&bytes_of(1));
    let held = bed.receive().pop().unwrap();
    let lent = bed.next_chunk();
    let chunks = CHUNKS as u64 * CHUNK as u64;
    let held_at = lent - CHUNK as u64;
    let spare = chunks - CHUNK as u64;
    bed.send(&bytes_of(2));
    bed.io.flush().unwrap();
    let sent = bed.take_sent()[0];
    for at in [0, spare, sent, chunks - 1, u64::MAX / 2] {
        let wrong = !bed.chunks.contains(&(at / CHUNK as u64 * CHUNK as u64));
        if wrong || at == sent {
            bed.kernel.receive_at(at, &[], false);
            assert_eq!(bed.receive().len(), 0, "{at:#x}, {held_at:#x}");
        }
    }
    assert_eq!(held[..], bytes_of(1));
    bed.kernel.receive_at(lent + HEADROOM, &bytes_of(4), false);
    bed.kernel.receive_at(lent + HEADROOM, &bytes_of(5), false);
    let frames = bed.receive();
    assert_eq!(frames.len(), 1, "the chunk came back already");
}

#[test]
fn frame_in_pieces_is_joined_and_its_chunks_go_round() {
    let large = UmemSpec {
        frame_bytes: LARGE,
        ..wanted()
    };
    let mut bed = Bed::of(&large);
    let joined = bed.io.rx_frames();
    for round in 0..2 * joined.max(CHUNKS) as u64 {
        let bytes = pattern_of(round, LARGE);
        let pieces = bytes.chunks(FRAME_CAPACITY);
        let last = pieces.len() - 1;
        for (number, piece) in pieces.enumerate() {
            bed.deliver_piece(piece, number != last);
        }
        bed.deliver(&bytes[..60]);
        let mut frames = bed.receive();
        let (alone, whole) = (frames.pop().unwrap(), frames.pop().unwrap());
        assert!(frames.is_empty() && whole[..] == bytes && alone[..] == bytes[..60]);
        bed.assert_held(1);
        assert!(bed.io.owns(&whole) && bed.io.owns(&alone));
        bed.io.recycle(whole);
        bed.io.recycle(alone);
        bed.io.flush().unwrap();
        if cfg!(miri) && round > 2 {
            break;
        }
    }
    bed.assert_held(0);
    assert_eq!(bed.io.counters().drop_rx_no_frame, 0);
}

#[test]
fn queue_counts_the_frames_that_it_can_hold() {
    assert_eq!(Bed::new().io.rx_frames(), CHUNKS);
    let large = |receive| {
        let wanted = UmemSpec {
            frame_bytes: LARGE,
            receive,
            ..wanted()
        };
        Bed::of(&wanted)
    };
    assert_eq!(large(1024).io.rx_frames(), 1024 * CHUNK / LARGE);
    assert_eq!(large(16).io.rx_frames(), 128);
    assert_eq!(large(1024).fill(), 320, "no fewer than for small frames");
    let jumbo = UmemSpec {
        frame_bytes: 65_557,
        ..wanted()
    };
    assert_eq!(Bed::of(&jumbo).fill(), 20 * 18);
}

#[test]
fn frame_of_another_queue_is_counted_and_not_given_to_the_kernel() {
    let (mut bed, mut other) = (Bed::new(), Bed::new());
    other.deliver(&bytes_of(1));
    let foreign = other.receive().pop().unwrap();
    assert!(!bed.io.owns(&foreign));
    bed.fill();
    bed.io.recycle(foreign);
    bed.io.flush().unwrap();
    assert_eq!(bed.kernel.take_chunks(usize::MAX), []);
    assert_eq!(bed.io.counters().drop_foreign, 1);
    bed.assert_held(0);
}

//! Frames of any content.

use proptest::prelude::*;

use super::*;

proptest! {
    /// Whatever a client sends, another client gets only segments from ports of the sender, with
    /// Ethernet addresses of the switch's choice.
    #[test]
    fn arbitrary_frames_bring_no_client_anything_foreign(
        frames in prop::collection::vec(
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..2 * HEAD), any::<[(u8, u8); 3]>()),
            0..40,
        ),
    ) {
        let mut switch = switch();
        let [a, b] = [7000, 7001].map(|port| peer(&mut switch, V4, port));
        for (from_scratch, bytes, changes) in frames {
            let mut frame = if from_scratch { bytes } else { segment(a.at, b.at, DATA) };
            for (at, to) in changes {
                let len = frame.len().min(60);
                if let Some(byte) = frame.get_mut(usize::from(at) % len.max(1)) {
                    *byte = to;
                }
            }
            a.memory.send(frame);
        }
        while switch.turn(START).0 > 0 {}
        for frame in b.memory.received() {
            prop_assert_eq!((&frame[..6], &frame[6..12]), (&b.mac[..], &SWITCH[..]));
            prop_assert_eq!(&frame[26..30], &[127, 0, 0, 1]);
            let header = 14 + usize::from(frame[14] & 15) * 4;
            prop_assert_eq!(&frame[header..header + 2], &a.at.port().to_be_bytes());
        }
        switch.detach(a.id, START);
    }
}

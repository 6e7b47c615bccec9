//! Predicted segments: those that a receiver takes by their control bytes, and that an RNIC places
//! at once.

use xwarp_iwarp::{FastSegment, Inbound};

/// How many segments of an input were predicted, and were what was predicted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Predicted {
    /// Of Writes.
    pub writes: usize,
    /// Sends of one segment.
    pub sends: usize,
}

impl Predicted {
    /// A receiver judges a predicted segment to be just that, unless its resources are against it.
    pub(crate) fn check(&mut self, ordinary: &FastSegment<'_>, inbound: &Inbound<'_>) {
        match (*ordinary, inbound) {
            (
                FastSegment::Write {
                    stag,
                    to,
                    payload,
                    last,
                },
                Inbound::Write {
                    placement,
                    last: is_last,
                },
            ) => {
                let placed = (placement.stag, placement.to, placement.payload, *is_last);
                assert_eq!((stag, to, payload, last), placed);
                self.writes += 1;
            }
            (
                FastSegment::Send { solicited, payload },
                Inbound::Send {
                    kind,
                    offset: 0,
                    payload: whole,
                    message_len: Some(len),
                },
            ) => {
                assert_eq!((solicited, payload), (kind.solicited, *whole));
                assert_eq!((kind.invalidate, *len as usize), (None, payload.len()));
                self.sends += 1;
            }
            (ordinary, inbound) => panic!("predicted is {ordinary:?}, judged {inbound:?}"),
        }
    }
}

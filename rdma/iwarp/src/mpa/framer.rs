//! Transmit direction of one connection in Full Operation (RFC 5044 §4).

use super::fpdu::{
    CRC_BYTES, LENGTH_BYTES, clamp_mulpdu, complete_fpdu, crc_field, enclose, fpdu_len, mulpdu,
    pad_at,
};
use super::marker::{Layout, MARKER_BYTES, Marker, Phase, unclamped_mulpdu};
use crate::crc::{Crc32c, crc32c};
use core::ops::Range;
use zerocopy::IntoBytes;

/// Completes outbound FPDUs in the order in which they are sent, from the first byte of Full
/// Operation on.
///
/// The caller takes a buffer of [`fpdu_len`](Self::fpdu_len) bytes, writes the ULPDU to
/// [`ulpdu_at`](Self::ulpdu_at) and calls [`seal`](Self::seal). A sealed FPDU must be sent, and
/// before the next one: markers count stream bytes.
#[derive(Debug)]
pub struct Framer {
    crc: Option<Crc32c>,
    /// Position of the next FPDU, if the peer requested markers.
    markers: Option<Phase>,
}

impl Framer {
    /// `crc`: CRCs are generated; otherwise the field is zero. `markers`: the peer's M bit
    /// (R5044-4.3-1, -11).
    pub fn new(crc: bool, markers: bool) -> Self {
        Self {
            crc: crc.then_some(crc32c),
            markers: markers.then(Phase::default),
        }
    }

    /// Sets the function that computes CRCs.
    #[must_use]
    pub fn with_crc32c(self, crc32c: Crc32c) -> Self {
        Self {
            crc: self.crc.map(|_| crc32c),
            ..self
        }
    }

    /// Length in bytes of the next FPDU with a ULPDU of this length, including its markers.
    #[inline]
    pub const fn fpdu_len(&self, ulpdu_len: usize) -> usize {
        match self.markers {
            None => fpdu_len(ulpdu_len),
            Some(phase) => Layout::new(phase, ulpdu_len).wire_len(),
        }
    }

    /// Maximum length in bytes of a ULPDU whose FPDU fits a TCP segment of `emss` bytes, without
    /// TCP options in use (RFC 5044 §4.5).
    pub const fn mulpdu(&self, emss: usize) -> usize {
        match self.markers {
            None => mulpdu(emss),
            Some(_) => clamp_mulpdu(unclamped_mulpdu(emss)),
        }
    }

    /// Range of the ULPDU in the FPDU's buffer, where the caller writes it in one piece.
    pub const fn ulpdu_at(ulpdu_len: usize) -> Range<usize> {
        LENGTH_BYTES..LENGTH_BYTES + ulpdu_len
    }

    /// Completes an FPDU in place: makes room for the markers, and writes them, the length field,
    /// the zero pad and the CRC. A marker that is due right behind the FPDU goes out with the next
    /// one (R5044-4.3-12).
    ///
    /// # Panics
    /// If `ulpdu_len` is above the limit or `fpdu` has another length: both are the caller's own
    /// numbers.
    #[inline]
    pub fn seal(&mut self, fpdu: &mut [u8], ulpdu_len: usize) {
        let Some(phase) = self.markers else {
            return complete_fpdu(fpdu, ulpdu_len, self.crc);
        };
        self.seal_with_markers(fpdu, ulpdu_len, phase);
    }

    #[inline(never)]
    fn seal_with_markers(&mut self, fpdu: &mut [u8], ulpdu_len: usize, phase: Phase) {
        let layout = Layout::new(phase, ulpdu_len);
        assert_eq!(
            fpdu.len(),
            layout.wire_len(),
            "FPDU buffer for a ULPDU of {ulpdu_len} bytes"
        );
        let plain = fpdu_len(ulpdu_len);
        complete_fpdu(&mut fpdu[..plain], ulpdu_len, None);
        insert_markers(fpdu, layout);
        let (covered, field) = fpdu
            .split_last_chunk_mut::<CRC_BYTES>()
            .expect("wire_len counts the CRC");
        *field = crc_field(covered, self.crc);
        self.markers = Some(phase.after(layout.wire_len()));
    }

    /// True if the CRC covers length field, ULPDU and pad as the caller writes them: CRCs are
    /// generated, and there are no markers. A caller that computes the CRC while it copies the
    /// ULPDU can then use [`enclose`](Self::enclose) and [`close`](Self::close) instead of
    /// [`seal`](Self::seal) (decision record iwarp/0005).
    #[inline]
    pub const fn covers_in_order(&self) -> bool {
        self.crc.is_some() && self.markers.is_none()
    }

    /// Writes length field and pad around a ULPDU without markers. Returns the length field.
    ///
    /// # Panics
    /// As [`seal`](Self::seal).
    #[inline]
    pub fn enclose(fpdu: &mut [u8], ulpdu_len: usize) -> &[u8] {
        enclose(fpdu, ulpdu_len);
        &fpdu[..LENGTH_BYTES]
    }

    /// The pad of a ULPDU without markers.
    #[inline]
    pub fn pad(fpdu: &[u8], ulpdu_len: usize) -> &[u8] {
        &fpdu[pad_at(ulpdu_len)]
    }

    /// Writes the CRC of all bytes before it. Returns its field.
    ///
    /// # Panics
    /// If the buffer has no room for it, which [`enclose`](Self::enclose) has checked.
    #[inline]
    pub fn close(fpdu: &mut [u8], crc: u32) -> [u8; CRC_BYTES] {
        let (covered, field) = fpdu
            .split_last_chunk_mut::<CRC_BYTES>()
            .expect("fpdu_len counts the CRC");
        *field = crc.to_le_bytes();
        debug_assert_eq!(*field, crc_field(covered, Some(crc32c)));
        *field
    }
}

/// Moves the bytes apart, last first, so that none is overwritten before it has moved.
fn insert_markers(fpdu: &mut [u8], layout: Layout) {
    for interval in layout.intervals().rev() {
        let marker = layout.lead + interval.distance;
        let behind = marker + MARKER_BYTES;
        fpdu.copy_within(interval.raw_start..interval.raw_end, behind);
        fpdu[marker..behind].copy_from_slice(Marker::new(interval.distance).as_bytes());
    }
    if layout.lead > 0 {
        fpdu.copy_within(..layout.first.min(layout.raw), layout.lead);
        fpdu[..layout.lead].copy_from_slice(Marker::new(0).as_bytes());
    }
}

//! Markers of MPA: their positions in the stream, and their values (RFC 5044 §4.3).

use super::fpdu::{CRC_BYTES, LENGTH_BYTES, fpdu_len};
use zerocopy::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of TCP stream from one marker to the next (R5044-4.3-2).
pub const MARKER_INTERVAL: usize = 512;
/// Length in bytes of a marker.
pub const MARKER_BYTES: usize = size_of::<Marker>();
/// Bytes of FPDUs between two markers.
const SPAN: usize = MARKER_INTERVAL - MARKER_BYTES;

/// Marker on the wire: 4 bytes (RFC 5044 §4.3, figure 4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct Marker {
    /// Sent as 0, ignored.
    pub reserved: U16,
    /// Distance in stream bytes from the FPDU's length field to this marker; 0 in front of an FPDU.
    /// The low two bits are ignored.
    pub fpduptr: U16,
}

impl Marker {
    /// The marker `distance` bytes behind the length field of its FPDU.
    pub(super) fn new(distance: usize) -> Self {
        let fpduptr = u16::try_from(distance).unwrap_or(u16::MAX); // at most 65,284
        Self {
            reserved: 0.into(),
            fpduptr: fpduptr.into(),
        }
    }

    /// True if it points to a length field `distance` bytes before it.
    pub(super) fn points_back(self, distance: usize) -> bool {
        usize::from(self.fpduptr.get() & !3) == distance
    }
}

/// Position in one direction's bytes of Full Operation, modulo the marker interval. Markers depend
/// on nothing else.
///
/// As 512 divides 2^32, the wrap of TCP's sequence numbers has no effect (R5044-4.3-4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Phase(usize);

impl Phase {
    /// The position `bytes` later.
    pub(super) const fn after(self, bytes: usize) -> Self {
        Self((self.0 + bytes % MARKER_INTERVAL) % MARKER_INTERVAL)
    }

    /// Length in bytes of a marker in front of the next FPDU, which is due at this position
    /// (R5044-4.3-6).
    pub(super) const fn lead(self) -> usize {
        if self.0 == 0 { MARKER_BYTES } else { 0 }
    }
}

/// Layout of one FPDU in the stream: length field, ULPDU and pad, cut by markers. A marker right
/// before the CRC belongs to this FPDU (wire.md §4.2).
///
/// ```text
/// [marker] length ULPDU.. | marker ..508 bytes.. | marker ..rest, pad [| marker] CRC
///          <--- first ---> <----- interval ----->
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of the marker before the length field: 0 or 4.
    pub(super) lead: usize,
    /// Bytes from the length field to the next position of a marker.
    pub(super) first: usize,
    /// Number of markers behind the length field.
    pub(super) markers: usize,
    /// Length in bytes of length field, ULPDU and pad.
    pub(super) raw: usize,
}

impl Layout {
    /// Layout of an FPDU with a ULPDU of this length that begins at `phase`. Positions and FPDUs
    /// are multiples of 4 bytes, so markers never split the length field or the CRC (R5044-4.3-9).
    pub(super) const fn new(phase: Phase, ulpdu_len: usize) -> Self {
        let lead = phase.lead();
        let first = MARKER_INTERVAL - phase.0 - lead;
        let raw = fpdu_len(ulpdu_len) - CRC_BYTES;
        let markers = if raw < first {
            0
        } else {
            1 + (raw - first) / SPAN
        };
        Self {
            lead,
            first,
            markers,
            raw,
        }
    }

    /// True if the FPDU contains no markers.
    pub(super) const fn is_unmarked(self) -> bool {
        self.lead == 0 && self.markers == 0
    }

    /// Length in bytes of the FPDU on the wire, including its markers.
    pub(super) const fn wire_len(self) -> usize {
        self.lead + self.raw + self.markers * MARKER_BYTES + CRC_BYTES
    }

    /// The markers behind the length field, in order, each with the bytes of the FPDU up to the
    /// next marker or the CRC.
    pub(super) fn intervals(self) -> impl DoubleEndedIterator<Item = Interval> {
        (0..self.markers).map(move |n| Interval {
            distance: self.first + n * MARKER_INTERVAL,
            raw_start: self.first + n * SPAN,
            raw_end: (self.first + (n + 1) * SPAN).min(self.raw),
        })
    }
}

/// A marker inside an FPDU, and the bytes behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    /// Distance in stream bytes from the length field to the marker: its FPDUPTR.
    pub(super) distance: usize,
    /// First byte behind it, counted from the length field without markers.
    pub(super) raw_start: usize,
    /// End of the bytes behind it, counted from the length field without markers. Equal to
    /// `raw_start` if the CRC follows.
    pub(super) raw_end: usize,
}

/// Maximum length in bytes of a ULPDU whose FPDU fits a TCP segment of `emss` bytes, wherever its
/// markers fall, before clamping (RFC 5044 §4.5, R5044-4.5-2).
pub(super) const fn unclamped_mulpdu(emss: usize) -> usize {
    let markers = emss.div_ceil(MARKER_INTERVAL) * MARKER_BYTES;
    emss.saturating_sub(LENGTH_BYTES + CRC_BYTES + markers + emss % 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of the markers, and the total length: computed byte by byte, as wire.md §4.2
    /// describes.
    fn walk(start: usize, ulpdu_len: usize) -> (Vec<usize>, usize) {
        let (mut p, mut markers) = (start, Vec::new());
        let mut marker_if_due = |p: &mut usize| {
            if p.is_multiple_of(MARKER_INTERVAL) {
                markers.push(*p - start);
                *p += MARKER_BYTES;
            }
        };
        marker_if_due(&mut p);
        for _ in 0..fpdu_len(ulpdu_len) - CRC_BYTES {
            p += 1;
            marker_if_due(&mut p);
        }
        (markers, p + CRC_BYTES - start)
    }

    #[test]
    fn layout_agrees_with_a_walk_over_every_byte() {
        // In Miri each step takes milliseconds.
        let (starts, lens) = if cfg!(miri) { (50, 401) } else { (1, 7) };
        for start in (0..MARKER_INTERVAL).step_by(4).step_by(starts) {
            for ulpdu_len in (0..1600).step_by(lens).chain([506, 508, 8882]) {
                let layout = Layout::new(Phase::default().after(start), ulpdu_len);
                let inner = layout.intervals().map(|at| layout.lead + at.distance);
                let markers: Vec<usize> = (layout.lead > 0)
                    .then_some(0)
                    .into_iter()
                    .chain(inner)
                    .collect();
                assert_eq!(
                    (markers, layout.wire_len()),
                    walk(start, ulpdu_len),
                    "{ulpdu_len} bytes at {start}"
                );
            }
        }
    }

    #[test]
    fn positions_wrap_with_the_sequence_numbers() {
        // vectors.md §7.8: the first byte has the sequence number 0xFFFFFF00.
        let mut phase = Phase::default();
        let mut sequence = 0xFFFF_FF00_u32;
        let mut starts = Vec::new();
        while starts.len() < 4 {
            if phase.lead() > 0 {
                starts.push(sequence);
            }
            phase = phase.after(4);
            sequence = sequence.wrapping_add(4);
        }
        assert_eq!(starts, [0xFFFF_FF00, 0x0000_0100, 0x0000_0300, 0x0000_0500]);
    }
}

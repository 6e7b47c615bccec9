//! Receive direction of one connection in Full Operation (RFC 5044 §4, §6).

use super::fpdu::{CRC_BYTES, LENGTH_BYTES, MAX_ULPDU, MpaError, Step, crc_matches, find_fpdu};
use super::marker::{Layout, MARKER_BYTES, MARKER_INTERVAL, Marker, Phase};
use crate::crc::{Crc32c, crc32c};
use zerocopy::FromBytes;
use zerocopy::network_endian::U16;

/// Finds FPDUs in the peer's bytes, from the first byte of Full Operation on.
///
/// Without markers a ULPDU is borrowed from the stream. With markers it is borrowed if no marker
/// cuts it, and joined in a buffer of the deframer otherwise.
///
/// The default checks no CRC and expects no markers. It is a placeholder while the real one is
/// moved out.
#[derive(Debug, Default)]
pub struct Deframer {
    crc: Option<Crc32c>,
    markers: Option<Markers>,
    failed: Option<MpaError>,
}

/// An FPDU whose CRC was not checked. Its bytes may be used only after [`is_right`](Self::is_right)
/// has returned true.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    fpdu: &'a [u8],
    ulpdu: &'a [u8],
    crc: Option<Crc32c>,
}

impl<'a> Unverified<'a> {
    /// The ULPDU, valid if the CRC is right.
    #[inline]
    pub const fn ulpdu(&self) -> &'a [u8] {
        self.ulpdu
    }

    /// Length in bytes of the FPDU in the stream, including markers.
    #[inline]
    pub const fn wire_len(&self) -> usize {
        self.fpdu.len()
    }

    /// Checks the CRC. Always true on a stream without CRCs.
    #[inline]
    pub fn is_right(&self) -> bool {
        crc_matches(self.fpdu, self.crc)
    }
}

#[derive(Debug)]
struct Markers {
    phase: Phase,
    /// Buffer for a ULPDU that markers cut. Allocated once, for the longest ULPDU with its length
    /// field and pad.
    joined: Vec<u8>,
}

/// Maximum number of bytes to join: length field, ULPDU, pad.
const JOINED_BYTES: usize = (LENGTH_BYTES + MAX_ULPDU).next_multiple_of(4);

impl Deframer {
    /// `crc`: the CRC field is checked (R5044-4.1-5). `markers`: the peer sends them, as our M bit
    /// requested.
    pub fn new(crc: bool, markers: bool) -> Self {
        let markers = markers.then(|| Markers {
            phase: Phase::default(),
            joined: Vec::with_capacity(JOINED_BYTES),
        });
        Self {
            crc: crc.then_some(crc32c),
            markers,
            failed: None,
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

    /// True if the peer sends markers.
    #[inline]
    pub const fn has_markers(&self) -> bool {
        self.markers.is_some()
    }

    /// Finds the FPDU that begins `at` bytes behind the head of `stream`, if it is complete and
    /// FPDUs fill all bytes before it. Returns `None` where [`next`](Self::next) would find an
    /// error other than a wrong CRC, which [`Unverified::is_right`] checks. Consumes nothing: see
    /// [`pass`](Self::pass).
    ///
    /// `MARKED` must equal [`has_markers`](Self::has_markers); otherwise the result is `None`. The
    /// caller is compiled for both values, so that streams without markers do not pay for them.
    #[inline]
    pub fn predict<'a, const MARKED: bool>(
        &'a mut self,
        stream: &'a [u8],
        at: usize,
    ) -> Option<Unverified<'a>> {
        if self.failed.is_some() || self.has_markers() != MARKED {
            return None;
        }
        let stream = stream.get(at..)?;
        let crc = self.crc;
        let found = match &mut self.markers {
            Some(Markers { phase, joined }) if MARKED => {
                find_marked(stream, phase.after(at), joined, None)
            }
            _ => find_fpdu(stream, None),
        };
        let Ok(Step::Fpdu { ulpdu, consumed }) = found else {
            return None;
        };
        let fpdu = stream.get(..consumed)?;
        Some(Unverified { fpdu, ulpdu, crc })
    }

    /// Consumes `consumed` bytes of FPDUs that were [predicted](Self::predict) and whose CRCs are
    /// right.
    #[inline]
    pub fn pass(&mut self, len: usize) {
        if let Some(markers) = &mut self.markers {
            markers.phase = markers.phase.after(len);
        }
    }

    /// Finds the next FPDU at the head of the in-order `stream`. A returned FPDU is consumed: the
    /// next call's stream begins `consumed` bytes later.
    ///
    /// The first error ends this direction: every later call returns it again (R5044-8-7).
    #[inline]
    pub fn next<'a>(&'a mut self, stream: &'a [u8]) -> Result<Step<'a>, MpaError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let step = match &mut self.markers {
            None => find_fpdu(stream, self.crc),
            Some(Markers { phase, joined }) => {
                let step = find_marked(stream, *phase, joined, self.crc);
                if let Ok(Step::Fpdu { consumed, .. }) = step {
                    *phase = phase.after(consumed);
                }
                step
            }
        };
        if let Err(error) = step {
            self.failed = Some(error);
        }
        step
    }
}

/// Finds the FPDU at the head of `stream`, which begins at `phase`. A ULPDU that markers cut is
/// joined.
#[inline(never)]
fn find_marked<'a>(
    stream: &'a [u8],
    phase: Phase,
    joined: &'a mut Vec<u8>,
    crc: Option<Crc32c>,
) -> Result<Step<'a>, MpaError> {
    let lead = phase.lead();
    let field = stream
        .get(lead..)
        .and_then(|field| U16::ref_from_prefix(field).ok());
    let Some((length, rest)) = field else {
        return Ok(Step::NeedBytes(lead + LENGTH_BYTES));
    };
    let ulpdu_len = usize::from(length.get());
    if ulpdu_len > MAX_ULPDU {
        return Err(MpaError::Length(length.get()));
    }
    let layout = Layout::new(phase, ulpdu_len);
    let consumed = layout.wire_len();
    let Some(fpdu) = stream.get(..consumed) else {
        return Ok(Step::NeedBytes(consumed));
    };
    // The CRC covers markers, including one in front and one right before the CRC (R5044-4.3-6,
    // -8).
    if !crc_matches(fpdu, crc) {
        return Err(MpaError::Crc);
    }
    // Most short FPDUs contain none.
    let whole = rest.get(..ulpdu_len).filter(|_| layout.is_unmarked());
    let ulpdu = match whole {
        Some(ulpdu) => ulpdu,
        None => unmarked(fpdu, layout, ulpdu_len, joined)?,
    };
    Ok(Step::Fpdu { ulpdu, consumed })
}

/// Checks the markers of a complete FPDU. Returns its ULPDU, joined if a marker cuts it.
fn unmarked<'a>(
    fpdu: &'a [u8],
    layout: Layout,
    ulpdu_len: usize,
    joined: &'a mut Vec<u8>,
) -> Result<&'a [u8], MpaError> {
    let (lead, rest) = fpdu.split_at_checked(layout.lead).unwrap_or_default();
    check_marker(lead, 0)?;
    let covered = rest.get(..rest.len().saturating_sub(CRC_BYTES));
    let (first, cut) = covered
        .and_then(|covered| covered.split_at_checked(layout.first.min(covered.len())))
        .unwrap_or_default();
    let mut distance = layout.first;
    joined.clear();
    let head = first.get(LENGTH_BYTES..).unwrap_or_default();
    let whole = head.get(..ulpdu_len);
    if whole.is_none() {
        joined.extend_from_slice(head);
    }
    for interval in cut.chunks(MARKER_INTERVAL) {
        let (marker, bytes) = interval.split_at_checked(MARKER_BYTES).unwrap_or_default();
        check_marker(marker, distance)?;
        distance += MARKER_INTERVAL;
        if whole.is_none() {
            joined.extend_from_slice(bytes);
        }
    }
    joined.truncate(ulpdu_len); // the pad
    Ok(whole.unwrap_or(joined))
}

/// Checks `bytes`: a marker, or none where none is due. Its FPDUPTR must point to the known start
/// of the FPDU (R5044-8-3, -4).
fn check_marker(bytes: &[u8], distance: usize) -> Result<(), MpaError> {
    match Marker::ref_from_bytes(bytes) {
        Ok(marker) if !marker.points_back(distance) => Err(MpaError::Marker {
            fpduptr: marker.fpduptr.get(),
            distance,
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

//! The receive direction of one connection in Full Operation (RFC 5044 §4, §6).

use super::fpdu::{CRC_BYTES, LENGTH_BYTES, MAX_ULPDU, MpaError, Step, crc_matches, find_fpdu};
use super::marker::{Layout, MARKER_BYTES, MARKER_INTERVAL, Marker, Phase};
use crate::crc::{Crc32c, crc32c};
use zerocopy::FromBytes;
use zerocopy::network_endian::U16;

/// Finds FPDUs in the peer's bytes, from the first byte of Full Operation on.
///
/// Without markers a ULPDU is borrowed from the stream. With them it is borrowed if no marker cuts it, and joined in a buffer of
/// this deframer otherwise.
///
/// The default checks no CRC and knows no markers: it stands in while the real one is taken out of its place.
#[derive(Debug, Default)]
pub struct Deframer {
    crc: Option<Crc32c>,
    markers: Option<Markers>,
    failed: Option<MpaError>,
}

/// An FPDU whose CRC was not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Unverified<'a> {
    fpdu: &'a [u8],
    ulpdu: &'a [u8],
}

impl<'a> Unverified<'a> {
    /// What is the ULPDU if the CRC is right.
    pub const fn ulpdu(&self) -> &'a [u8] {
        self.ulpdu
    }

    /// Bytes of the stream that the FPDU takes.
    pub const fn wire_len(&self) -> usize {
        self.fpdu.len()
    }
}

#[derive(Debug)]
struct Markers {
    phase: Phase,
    /// The ULPDU that markers cut; allocated once, for the longest ULPDU with its length field and pad.
    joined: Vec<u8>,
}

/// Most bytes that are joined: length field, ULPDU, pad.
const JOINED_BYTES: usize = (LENGTH_BYTES + MAX_ULPDU).next_multiple_of(4);

impl Deframer {
    /// `crc`: the CRC field is checked (R5044-4.1-5). `markers`: the peer sends them, as our M bit asked.
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

    /// Has CRCs, where they are checked, computed by another function.
    #[must_use]
    pub fn with_crc32c(self, crc32c: Crc32c) -> Self {
        Self {
            crc: self.crc.map(|_| crc32c),
            ..self
        }
    }

    /// The FPDU at the head of `stream`, if it is there whole and the peer sends no markers. Nothing changes, and nothing is found
    /// where [`next`](Self::next) would find an error, but for one of the CRC: see [`verifies`](Self::verifies).
    #[inline]
    pub fn predict<'a>(&self, stream: &'a [u8]) -> Option<Unverified<'a>> {
        if self.failed.is_some() || self.markers.is_some() {
            return None;
        }
        let Ok(Step::Fpdu { ulpdu, consumed }) = find_fpdu(stream, None) else {
            return None;
        };
        let fpdu = stream.get(..consumed)?;
        Some(Unverified { fpdu, ulpdu })
    }

    /// Is the CRC of an FPDU that was [predicted](Self::predict) right? Before, nothing of it may be used.
    #[inline]
    pub fn verifies(&self, predicted: &Unverified<'_>) -> bool {
        crc_matches(predicted.fpdu, self.crc)
    }

    /// The next FPDU at the head of the in-order `stream`. One that is returned counts as consumed: the next call's stream begins
    /// `consumed` bytes later.
    ///
    /// The first error ends this direction: every later call returns it again (R5044-8-7).
    #[inline]
    pub fn next<'a>(&'a mut self, stream: &'a [u8]) -> Result<Step<'a>, MpaError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let step = match &mut self.markers {
            None => find_fpdu(stream, self.crc),
            Some(markers) => markers.next(stream, self.crc),
        };
        if let Err(error) = step {
            self.failed = Some(error);
        }
        step
    }
}

impl Markers {
    #[inline(never)]
    fn next<'a>(&'a mut self, stream: &'a [u8], crc: Option<Crc32c>) -> Result<Step<'a>, MpaError> {
        let lead = self.phase.lead();
        let field = stream
            .get(lead..)
            .and_then(|field| U16::ref_from_prefix(field).ok());
        let Some((length, _)) = field else {
            return Ok(Step::NeedBytes(lead + LENGTH_BYTES));
        };
        let ulpdu_len = usize::from(length.get());
        if ulpdu_len > MAX_ULPDU {
            return Err(MpaError::Length(length.get()));
        }
        let layout = Layout::new(self.phase, ulpdu_len);
        let total = layout.wire_len();
        let Some(fpdu) = stream.get(..total) else {
            return Ok(Step::NeedBytes(total));
        };
        // Markers are among the covered bytes, also one in front and one right before the CRC (R5044-4.3-6, -8).
        if !crc_matches(fpdu, crc) {
            return Err(MpaError::Crc);
        }
        let ulpdu = self.ulpdu(fpdu, layout, ulpdu_len)?;
        self.phase = self.phase.after(total);
        Ok(Step::Fpdu {
            ulpdu: ulpdu.unwrap_or(&self.joined),
            consumed: total,
        })
    }

    /// Checks the markers of a whole FPDU; returns its ULPDU if no marker cuts it, and leaves it in `joined` otherwise.
    fn ulpdu<'a>(
        &mut self,
        fpdu: &'a [u8],
        layout: Layout,
        ulpdu_len: usize,
    ) -> Result<Option<&'a [u8]>, MpaError> {
        let (lead, rest) = fpdu.split_at_checked(layout.lead).unwrap_or_default();
        check_marker(lead, 0)?;
        let covered = rest.get(..rest.len().saturating_sub(CRC_BYTES));
        let (first, cut) = covered
            .and_then(|covered| covered.split_at_checked(layout.first.min(covered.len())))
            .unwrap_or_default();
        let mut distance = layout.first;
        self.joined.clear();
        let head = first.get(LENGTH_BYTES..).unwrap_or_default();
        let whole = head.get(..ulpdu_len);
        if whole.is_none() {
            self.joined.extend_from_slice(head);
        }
        for interval in cut.chunks(MARKER_INTERVAL) {
            let (marker, bytes) = interval.split_at_checked(MARKER_BYTES).unwrap_or_default();
            check_marker(marker, distance)?;
            distance += MARKER_INTERVAL;
            if whole.is_none() {
                self.joined.extend_from_slice(bytes);
            }
        }
        self.joined.truncate(ulpdu_len); // the pad
        Ok(whole)
    }
}

/// `bytes` are a marker, or none where none is due. Its FPDUPTR must name the FPDU's known begin (R5044-8-3, -4).
fn check_marker(bytes: &[u8], distance: usize) -> Result<(), MpaError> {
    match Marker::ref_from_bytes(bytes) {
        Ok(marker) if !marker.points_back(distance) => Err(MpaError::Marker {
            fpduptr: marker.fpduptr.get(),
            distance,
        }),
        Ok(_) | Err(_) => Ok(()),
    }
}

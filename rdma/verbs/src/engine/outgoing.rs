//! A message on its way out, and where its payload comes from.

use std::ops::Range;

use xwarp_iwarp::{AccessError, InboundRead, Message};

use crate::completion::CompletionStatus;
use crate::memory::{Access, StagTable};
use crate::pd::PdId;
use crate::work::Sgl;

/// A message, partly sent.
pub(super) struct Outgoing {
    pub(super) message: Message,
    pub(super) source: Source,
}

/// Where a message's payload comes from.
pub(super) enum Source {
    /// Local buffers of a work request.
    Request(Sgl),
    /// Memory that the peer reads.
    Response(InboundRead),
}

/// Why payload could not be had.
#[derive(Clone, Copy, Debug)]
pub(super) struct GatherError(pub(super) AccessError);

impl GatherError {
    /// What the work request completes with (verbs draft §9.5.2).
    pub(super) fn status(self) -> CompletionStatus {
        status_of(self.0)
    }
}

/// The completion status of a local access that was refused.
pub(super) fn status_of(error: AccessError) -> CompletionStatus {
    match error {
        AccessError::InvalidStag => CompletionStatus::InvalidStag,
        AccessError::NotAssociated => CompletionStatus::InvalidPd,
        AccessError::Rights => CompletionStatus::AccessViolation,
        AccessError::Wrap => CompletionStatus::Wrap,
        AccessError::Bounds => CompletionStatus::BaseBounds,
    }
}

impl Source {
    /// Copies the message's octets `range` to `into`, which is as long. Every access is checked anew, as a region may have been
    /// deregistered since the last segment.
    pub(super) fn gather(
        &self,
        stags: &StagTable,
        pd: PdId,
        range: Range<u32>,
        into: &mut [u8],
    ) -> Result<(), GatherError> {
        match self {
            Self::Request(sgl) => {
                let len = range.end.saturating_sub(range.start) as usize;
                for_each_piece(sgl, range.start, len, |sge_to, stag, span| {
                    let len = span.len() as u64;
                    let (bytes, offset) = stags
                        .access(pd, stag, sge_to, len, Access::LOCAL_READ)
                        .map_err(GatherError)?;
                    let piece = into.get_mut(span).ok_or(GatherError(AccessError::Bounds))?;
                    bytes
                        .read(offset, piece)
                        .map_err(|_| GatherError(AccessError::Bounds))
                })
            }
            Self::Response(read) if into.is_empty() => {
                // A Read of no octets looks at no source (RFC 5040 §5.2).
                debug_assert_eq!(read.request.len, 0);
                Ok(())
            }
            Self::Response(read) => {
                let to = (read.request.source_to)
                    .checked_add(u64::from(range.start))
                    .ok_or(GatherError(AccessError::Wrap))?;
                let (source, len) = (read.request.source, into.len() as u64);
                let (bytes, offset) = stags
                    .access(pd, source, to, len, Access::REMOTE_READ)
                    .map_err(GatherError)?;
                bytes
                    .read(offset, into)
                    .map_err(|_| GatherError(AccessError::Bounds))
            }
        }
    }
}

/// Calls `each` for the pieces of a scatter/gather list that octets `start..start+len` of its message cover, with the Tagged
/// Offset in the piece's region, the region, and which of those `len` octets it is.
pub(super) fn for_each_piece<E>(
    sgl: &Sgl,
    start: u32,
    len: usize,
    mut each: impl FnMut(u64, xwarp_iwarp::Stag, Range<usize>) -> Result<(), E>,
) -> Result<(), E> {
    let mut skip = start as usize;
    let mut done = 0;
    for sge in sgl {
        let sge_len = sge.len as usize;
        if skip >= sge_len {
            skip -= sge_len;
            continue;
        }
        let n = (sge_len - skip).min(len - done);
        if n == 0 {
            break;
        }
        // A wrap is found by the access check: it adds the length to what is at most the last octet's offset.
        each(sge.to.saturating_add(skip as u64), sge.stag, done..done + n)?;
        done += n;
        skip = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::Sge;
    use xwarp_iwarp::Stag;

    fn pieces(start: u32, len: usize) -> Vec<(u64, u32, Range<usize>)> {
        let sgl: Sgl = [(1, 100, 10), (2, 0, 0), (3, 50, 5), (4, 7, 20)]
            .map(|(stag, to, len)| Sge {
                stag: Stag(stag),
                to,
                len,
            })
            .into_iter()
            .collect();
        let mut found = Vec::new();
        let result: Result<(), ()> = for_each_piece(&sgl, start, len, |to, stag, span| {
            found.push((to, stag.0, span));
            Ok(())
        });
        assert_eq!(result, Ok(()));
        found
    }

    #[test]
    fn a_span_is_cut_at_the_borders_of_the_list() {
        assert_eq!(
            pieces(0, 35),
            [(100, 1, 0..10), (50, 3, 10..15), (7, 4, 15..35)]
        );
        assert_eq!(pieces(9, 3), [(109, 1, 0..1), (50, 3, 1..3)]);
        assert_eq!(pieces(15, 20), [(7, 4, 0..20)]);
        assert_eq!(pieces(34, 1), [(26, 4, 0..1)]);
        assert_eq!(pieces(5, 0), []);
    }
}

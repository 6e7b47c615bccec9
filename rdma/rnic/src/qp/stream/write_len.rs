//! Length of the Write that has arrived last, which Immediate Data behind it report
//! ([`QpConfig::send_immediates`](crate::model::QpConfig::send_immediates)).

/// Bytes that have arrived of a Write.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::qp) struct WriteLen {
    bytes: u32,
    /// Whether its last segment has arrived, so that the next one begins another Write.
    is_whole: bool,
}

impl WriteLen {
    /// A segment of a Write has arrived.
    #[inline]
    pub(in crate::qp) fn add(&mut self, len: usize, last: bool) {
        let before = if self.is_whole { 0 } else { self.bytes };
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.bytes = before.saturating_add(len);
        self.is_whole = last;
    }

    /// The length, once: 0 if the last message was no Write.
    pub(in crate::qp) fn take(&mut self) -> u32 {
        std::mem::take(self).bytes
    }
}

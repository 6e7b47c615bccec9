//! Pending output: SYN, FIN and RST to send, a write that was refused, and a lack of TX frames.

/// Pending output that is not in the send queue.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is sent independently
pub(super) struct Pending {
    syn: bool,
    fin: bool,
    reset: bool,
    /// The first segment is sent regardless of the window (RFC 6298 §5.4).
    first: bool,
    /// TX frames were too few for all pending segments.
    lacks_frame: bool,
    /// Length of the write that was refused last; 0 once it is possible.
    wanted: usize,
    /// The next write may be cut at the end of the peer's window.
    may_cut: bool,
}

impl Pending {
    /// Output that remains after an abort.
    pub(super) fn of_abort(reset: bool) -> Self {
        Self {
            reset,
            ..Self::default()
        }
    }

    pub(super) fn syn(&self) -> bool {
        self.syn
    }

    /// Requests a SYN from the next egress.
    pub(super) fn demand_syn(&mut self) {
        self.syn = true;
    }

    /// Withholds the SYN until it is requested again.
    pub(super) fn withhold_syn(&mut self) {
        self.syn = false;
    }

    pub(super) fn sent_syn(&mut self) {
        self.syn = false;
    }

    pub(super) fn fin(&self) -> bool {
        self.fin
    }

    /// Requests a FIN after all committed data.
    pub(super) fn demand_fin(&mut self) {
        self.fin = true;
    }

    pub(super) fn sent_fin(&mut self) {
        self.fin = false;
    }

    pub(super) fn reset(&self) -> bool {
        self.reset
    }

    pub(super) fn sent_reset(&mut self) {
        self.reset = false;
    }

    /// Sets whether the first segment is sent regardless of the window.
    pub(super) fn set_first(&mut self, first: bool) {
        self.first = first;
    }

    /// Returns true once if the first segment is to be sent regardless of the window.
    pub(super) fn take_first(&mut self) -> bool {
        std::mem::take(&mut self.first)
    }

    /// Records that a pending segment found no TX frame.
    pub(super) fn note_lack_of_frame(&mut self) {
        self.lacks_frame = true;
    }

    pub(super) fn clear_lack_of_frame(&mut self) {
        self.lacks_frame = false;
    }

    pub(super) fn lacks_frame(&self) -> bool {
        self.lacks_frame
    }

    /// True if a segment is pending that need not wait.
    pub(super) fn is_pressed(&self) -> bool {
        self.syn || self.fin || self.reset || self.first || self.lacks_frame
    }

    /// Length of the write that was refused last, at least 1; 0 if none waits.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Records that `len` bytes could not be written.
    pub(super) fn refuse(&mut self, len: usize) {
        self.wanted = len.max(1);
    }

    /// Sets whether the next write may be cut at the end of the peer's window.
    pub(super) fn set_may_cut(&mut self, may_cut: bool) {
        self.may_cut = may_cut;
    }

    pub(super) fn may_cut(&self) -> bool {
        self.may_cut
    }

    /// Records that the refused write is possible now.
    pub(super) fn grant(&mut self) {
        self.wanted = 0;
    }
}

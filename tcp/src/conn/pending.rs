//! Pending output: SYN, FIN and RST that are to be sent, a write that found no room, and a lack of TX frames.

/// What a connection has to send that is not in the send queue.
#[derive(Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is sent on its own
pub(super) struct Pending {
    syn: bool,
    fin: bool,
    reset: bool,
    /// The first segment, whatever the window says (RFC 6298 §5.4).
    first: bool,
    /// There was no TX frame for all that had to be sent.
    lacks_frame: bool,
    /// The length of the write that was refused last; 0 after it became possible.
    wanted: usize,
    /// What is written next may be cut at the end of the peer's window.
    may_cut: bool,
}

impl Pending {
    /// What is left to send after an abort.
    pub(super) fn of_abort(reset: bool) -> Self {
        Self {
            reset,
            ..Self::default()
        }
    }

    pub(super) fn syn(&self) -> bool {
        self.syn
    }

    /// The next egress sends a SYN.
    pub(super) fn demand_syn(&mut self) {
        self.syn = true;
    }

    /// The SYN waits until it is demanded again.
    pub(super) fn withhold_syn(&mut self) {
        self.syn = false;
    }

    pub(super) fn sent_syn(&mut self) {
        self.syn = false;
    }

    pub(super) fn fin(&self) -> bool {
        self.fin
    }

    /// A FIN follows all that was committed.
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

    /// Says whether the first segment is sent whatever the window says.
    pub(super) fn set_first(&mut self, first: bool) {
        self.first = first;
    }

    /// True, once, if the first segment is to be sent whatever the window says.
    pub(super) fn take_first(&mut self) -> bool {
        std::mem::take(&mut self.first)
    }

    /// There is no TX frame for what has to be sent.
    pub(super) fn note_lack_of_frame(&mut self) {
        self.lacks_frame = true;
    }

    pub(super) fn clear_lack_of_frame(&mut self) {
        self.lacks_frame = false;
    }

    pub(super) fn lacks_frame(&self) -> bool {
        self.lacks_frame
    }

    /// True if something is to be sent that waits for nothing.
    pub(super) fn is_pressed(&self) -> bool {
        self.syn || self.fin || self.reset || self.first || self.lacks_frame
    }

    /// The length of the write that was refused last, at least 1; 0 if none waits.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// `len` bytes could not be written.
    pub(super) fn refuse(&mut self, len: usize) {
        self.wanted = len.max(1);
    }

    /// Says whether what is written next may be cut at the end of the peer's window.
    pub(super) fn set_may_cut(&mut self, may_cut: bool) {
        self.may_cut = may_cut;
    }

    pub(super) fn may_cut(&self) -> bool {
        self.may_cut
    }

    /// What was refused has become possible.
    pub(super) fn grant(&mut self) {
        self.wanted = 0;
    }
}

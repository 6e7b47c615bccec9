//! TCP streams that are handed over to queue pairs (verbs draft §6.2.1.2).

/// How a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// TCP is being established.
    Connecting,
    /// It can send and receive.
    Established,
    /// The peer has closed its side. What it sent before can still be read, and it can be written
    /// to.
    PeerClosed,
    /// It has ended, or a queue pair has it.
    Gone,
}

/// How FPDUs are framed on a stream that is handed over. Both ends must say the same, which is up
/// to the application: nothing is negotiated here (verbs.md §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// CRCs are generated and checked (RFC 5044 §4.4).
    pub crc: bool,
    /// What we send has markers (RFC 5044 §4.3), the first of them in front of our first FPDU.
    pub send_markers: bool,
    /// What the peer sends has markers.
    pub receive_markers: bool,
}

impl Default for Framing {
    /// CRCs, no markers.
    fn default() -> Self {
        Self {
            crc: true,
            send_markers: false,
            receive_markers: false,
        }
    }
}

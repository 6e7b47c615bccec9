//! TCP streams that are handed over to queue pairs (verbs draft §6.2.1.2).

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// TCP is connecting.
    Connecting,
    /// The stream can send and receive.
    Established,
    /// The peer has closed its side. Earlier bytes can still be read, and the stream can be
    /// written.
    PeerClosed,
    /// The stream has ended, or belongs to a queue pair.
    Gone,
}

/// How FPDUs are framed on a stream that is handed over. Both ends must use the same framing. The
/// application ensures that, as nothing is negotiated here (verbs.md §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// Whether CRCs are generated and checked (RFC 5044 §4.4).
    pub crc: bool,
    /// Whether this side inserts markers (RFC 5044 §4.3), the first of them in front of its first
    /// FPDU.
    pub send_markers: bool,
    /// Whether the peer inserts markers.
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

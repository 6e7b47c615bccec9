//! What passes between smoltcp and the wire, watched: smoltcp keeps its sequence numbers to itself.

use std::collections::VecDeque;

use smoltcp::wire::{
    IPV4_HEADER_LEN, IPV6_HEADER_LEN, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

/// Segments that a connection may have unacknowledged. Each may hold a TX frame one day, and a queue's frames are shared.
pub const MAX_SEGMENTS_IN_FLIGHT: usize = 256;

/// The peer's MSS if it names none (RFC 9293 §3.7.1), and the least that smoltcp believes.
const DEFAULT_MSS: usize = 536;
const MIN_MSS: usize = 48;

/// A connection's sequence numbers, from the segments it sends and receives (RFC 9293 §3.3.1).
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The highest sequence number sent, and one more (SND.NXT); `None` before the SYN.
    sent: Option<TcpSeqNumber>,
    /// The end of what was committed.
    committed: TcpSeqNumber,
    /// The oldest unacknowledged sequence number (SND.UNA).
    unacknowledged: TcpSeqNumber,
    /// The right edge of the peer's window (SND.UNA + SND.WND).
    edge: TcpSeqNumber,
    /// The largest window that the peer ever announced.
    largest_window: usize,
    /// How far to shift the peer's window (RFC 7323 §2.3).
    peer_shift: u8,
    peer_mss: usize,
    /// Where the segments end that are not acknowledged.
    in_flight: VecDeque<TcpSeqNumber>,
    announced: Announced,
}

/// The window that we announced last.
#[derive(Clone, Copy, Debug, Default)]
struct Announced {
    /// Up to where the peer was told that it may send.
    edge: TcpSeqNumber,
    /// What was acknowledged (RCV.NXT).
    next: TcpSeqNumber,
    /// How far our window is shifted.
    shift: u8,
    /// The window of our SYN, while no other segment has followed it. A SYN's window is not scaled, but smoltcp holds the peer to
    /// it as if it were.
    by_syn: Option<usize>,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self {
            sent: None,
            committed: TcpSeqNumber(0),
            unacknowledged: TcpSeqNumber(0),
            edge: TcpSeqNumber(0),
            largest_window: 0,
            peer_shift: 0,
            peer_mss: DEFAULT_MSS,
            in_flight: VecDeque::new(),
            announced: Announced::default(),
        }
    }

    /// The peer's MSS.
    pub(crate) fn peer_mss(&self) -> usize {
        self.peer_mss
    }

    /// The oldest unacknowledged sequence number, our FIN's being the last.
    pub(crate) fn unacknowledged(&self) -> TcpSeqNumber {
        self.unacknowledged
    }

    /// What we acknowledged last (RCV.NXT).
    pub(crate) fn acknowledged(&self) -> TcpSeqNumber {
        self.announced.next
    }

    /// Counts `n` octets as committed.
    pub(crate) fn commit(&mut self, n: usize) {
        self.committed += n;
    }

    /// True if all that was committed has been sent.
    pub(crate) fn all_sent(&self) -> bool {
        self.sent == Some(self.committed)
    }

    /// Segments sent and not acknowledged.
    pub(crate) fn segments_in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Octets that the peer's window has room for behind all that was committed.
    pub(crate) fn room(&self) -> usize {
        usize::try_from(distance(self.committed, self.edge)).unwrap_or(0)
    }

    /// The largest window that the peer ever announced.
    pub(crate) fn largest_window(&self) -> usize {
        self.largest_window
    }

    /// Notes a packet of ours; true if it is a retransmission.
    pub(crate) fn emitted(&mut self, packet: &[u8]) -> bool {
        let header = match packet.first().map(|octet| octet >> 4) {
            Some(4) => IPV4_HEADER_LEN,
            _ => IPV6_HEADER_LEN,
        };
        let payload = packet.get(header..).unwrap_or_default();
        let Ok(tcp) = TcpPacket::new_checked(payload) else {
            return false;
        };
        if tcp.rst() {
            return false;
        }
        self.announce(&tcp);
        self.advance(tcp.seq_number(), tcp.segment_len())
    }

    fn announce(&mut self, tcp: &TcpPacket<&[u8]>) {
        let window = usize::from(tcp.window_len());
        self.announced.next = tcp.ack_number();
        if tcp.syn() {
            let scale = tcp.options_summary().ok().and_then(|o| o.window_scale);
            self.announced.shift = scale.unwrap_or(0);
            self.announced.by_syn = Some(window);
            self.announced.edge = tcp.ack_number() + window;
        } else {
            self.announced.by_syn = None;
            self.announced.edge = tcp.ack_number() + (window << self.announced.shift);
        }
    }

    /// Notes `len` sequence numbers of ours from `start` on; true if that is a retransmission.
    fn advance(&mut self, start: TcpSeqNumber, len: usize) -> bool {
        let end = start + len;
        let Some(sent) = self.sent else {
            // The SYN: everything else counts from it.
            self.sent = Some(end);
            self.committed = end;
            self.unacknowledged = start;
            return false;
        };
        if len == 0 || start < self.unacknowledged {
            return false; // an ACK, or a keep-alive's repetition of an octet that has arrived
        }
        if end > sent {
            self.sent = Some(end);
            self.in_flight.push_back(end);
        }
        start < sent
    }

    /// True if smoltcp must not see this segment, which reaches beyond what we announced. Elsewhere smoltcp cuts it off; but it
    /// takes a window announced by a SYN for a scaled one, more than the ring holds, and a FIN even if it has cut off octets
    /// before it. Asked of synchronized connections only.
    pub(crate) fn overreaches(&self, tcp: &TcpRepr<'_>) -> bool {
        let matters = self.announced.by_syn.is_some() || tcp.control == TcpControl::Fin;
        let end = tcp.seq_number + tcp.payload.len();
        matters && distance(self.announced.edge, end) > 0
    }

    /// Notes the peer's SYN, once smoltcp has accepted it.
    pub(crate) fn synchronized(&mut self, tcp: &TcpRepr<'_>) {
        self.peer_shift = tcp.window_scale.unwrap_or(0);
        if tcp.window_scale.is_none() {
            self.announced.shift = 0; // both sides scale or none does (RFC 7323 §2.2)
        }
        let mss = tcp.max_seg_size.filter(|mss| *mss != 0);
        self.peer_mss = mss.map_or(DEFAULT_MSS, |mss| usize::from(mss).max(MIN_MSS));
        if let Some(window) = self.announced.by_syn {
            self.announced.edge = tcp.seq_number + 1 + window; // our SYN acknowledged nothing
        }
    }

    /// Notes a segment that smoltcp has processed on a synchronized connection; `queued` octets are unacknowledged now. True if
    /// it acknowledged something.
    pub(crate) fn received(&mut self, tcp: &TcpRepr<'_>, queued: usize) -> bool {
        let before = self.unacknowledged;
        self.unacknowledged = self.committed - queued;
        while let Some(end) = self.in_flight.front() {
            if *end > self.unacknowledged {
                break;
            }
            self.in_flight.pop_front();
        }
        // smoltcp takes the window of any ACK that is not old, and the newest one is that which it has.
        let newest = |ack| ack >= self.unacknowledged;
        if tcp.control != TcpControl::Rst && tcp.ack_number.is_some_and(newest) {
            let shift = match tcp.control {
                TcpControl::Syn => 0, // RFC 7323 §2.2
                _ => self.peer_shift,
            };
            let window = usize::from(tcp.window_len) << shift;
            self.edge = self.unacknowledged + window;
            self.largest_window = self.largest_window.max(window);
        }
        self.unacknowledged > before
    }
}

/// How far `to` is after `from`, negative if it is before (RFC 9293 §3.4: modulo 2^32).
fn distance(from: TcpSeqNumber, to: TcpSeqNumber) -> i32 {
    to.0.wrapping_sub(from.0)
}

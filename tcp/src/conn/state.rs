//! Connection states of RFC 9293 §3.3.2, except LISTEN, which is the stack's.

use std::fmt;
use std::net::SocketAddr;

use crate::wire::flow::Flow;

/// A connection's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    Closing,
    TimeWait,
    CloseWait,
    LastAck,
    Closed,
}

impl State {
    /// True once both SYNs are acknowledged.
    pub(crate) fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// True while the application may send.
    pub(crate) fn may_send(self) -> bool {
        matches!(self, Self::Established | Self::CloseWait)
    }

    /// True while data from the peer is expected.
    pub(crate) fn may_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }

    /// True once the peer's FIN was received in order.
    pub(crate) fn peer_closed(self) -> bool {
        matches!(
            self,
            Self::CloseWait | Self::Closing | Self::LastAck | Self::TimeWait
        )
    }

    /// The state after the peer's FIN (RFC 9293 §3.10.7.4, eighth). The caller has processed an
    /// acknowledgment of our FIN before.
    pub(crate) fn on_fin(self) -> Self {
        match self {
            Self::SynReceived | Self::Established => Self::CloseWait,
            Self::FinWait1 => Self::Closing,
            Self::FinWait2 => Self::TimeWait,
            other => other,
        }
    }

    /// The state after our FIN was acknowledged (RFC 9293 §3.10.7.4, fifth).
    pub(crate) fn on_fin_acked(self) -> Self {
        match self {
            Self::FinWait1 => Self::FinWait2,
            Self::Closing => Self::TimeWait,
            Self::LastAck => Self::Closed,
            other => other,
        }
    }

    /// The state after CLOSE (RFC 9293 §3.10.4) of a synchronized connection.
    pub(crate) fn on_close(self) -> Self {
        match self {
            Self::Established => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            other => other,
        }
    }
}

impl fmt::Display for State {
    /// Prints the RFC's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::Closing => "CLOSING",
            Self::TimeWait => "TIME-WAIT",
            Self::CloseWait => "CLOSE-WAIT",
            Self::LastAck => "LAST-ACK",
            Self::Closed => "CLOSED",
        })
    }
}

/// State of one connection. It begins in CLOSED.
#[derive(Debug)]
pub(super) struct StateMachine {
    state: State,
}

impl StateMachine {
    pub(super) fn new() -> Self {
        let state = State::Closed;
        Self { state }
    }

    pub(super) fn get(&self) -> State {
        self.state
    }

    /// Enters `next`, and logs the change at debug level with the connection's addresses.
    pub(super) fn enter(&mut self, next: State, flow: &Flow) {
        if next == self.state {
            return;
        }
        log::debug!(
            "TCP connection from {} to {}: {} to {next}",
            SocketAddr::from(flow.local),
            SocketAddr::from(flow.remote),
            self.state
        );
        self.state = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_of_closing_ends_as_the_rfc_says() {
        let ours_first = State::Established.on_close().on_fin_acked().on_fin();
        assert_eq!(ours_first, State::TimeWait);
        let theirs_first = State::Established.on_fin().on_close().on_fin_acked();
        assert_eq!(theirs_first, State::Closed);
        let at_once = State::Established.on_close().on_fin().on_fin_acked();
        assert_eq!(at_once, State::TimeWait);
        assert_eq!(State::SynReceived.on_fin(), State::CloseWait);
    }
}

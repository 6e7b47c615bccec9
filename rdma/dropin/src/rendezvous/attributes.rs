//! A queue pair that is brought up by hand, and the peer that its program has named.

use std::net::IpAddr;
use std::time::Duration;

use super::hello::Hello;
use crate::backend::connection_event::{ReadDepths, Terms};

/// Shortest time for which a queue pair whose program sends waits for its peer: the peer's program
/// may still be starting. InfiniBand's programs set times that suit a network.
pub(crate) const LEAST_PATIENCE: Duration = Duration::from_secs(10);
/// The unit of the Local ACK Timeout, in nanoseconds.
const TIMEOUT_UNIT: u64 = 4096;

/// Address and number of a queue pair. The lower one of two connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct End {
    pub(crate) address: IpAddr,
    pub(crate) number: u32,
}

/// Attributes that Modify QP has set for the connection to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) own: End,
    pub(crate) peer: End,
    /// PSN that is expected in the peer's first message.
    pub(crate) recv_psn: u32,
    /// What is known since RTS.
    pub(crate) sends: Option<Sends>,
    /// Reads of the peer that are answered at once.
    pub(crate) ird: u16,
}

/// Attributes of RTS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sends {
    /// PSN of the first message.
    pub(crate) psn: u32,
    /// Reads that may be outstanding.
    pub(crate) ord: u16,
    /// For how long sends wait for a peer that does not answer; `None` for ever.
    pub(crate) patience: Option<Duration>,
}

impl Attributes {
    /// Whether the queue pair is its own peer.
    pub(super) fn is_own_peer(&self) -> bool {
        self.own == self.peer
    }

    /// Whether a queue pair that is its own peer expects the PSN that it sends.
    pub(super) fn agrees(&self) -> bool {
        self.sends.is_some_and(|it| it.psn == self.recv_psn)
    }

    /// Whether this side connects, and the peer accepts.
    pub(super) fn connects(&self) -> bool {
        self.own < self.peer
    }

    pub(super) fn hello(&self) -> Hello {
        Hello {
            from: self.own.number,
            to: self.peer.number,
            send_psn: self.sends.map(|it| it.psn),
            recv_psn: self.recv_psn,
        }
    }

    /// Whether a queue pair at this address that says this is the peer. PSNs that both sides know
    /// must agree in each direction, and in one direction both sides must know it.
    pub(super) fn is_peer(&self, address: IpAddr, hello: &Hello) -> bool {
        let incoming = hello.send_psn.map(|psn| psn == self.recv_psn);
        let outgoing = self.sends.map(|it| it.psn == hello.recv_psn);
        let known = [incoming, outgoing];
        self.is_named(address, hello)
            && known.contains(&Some(true))
            && !known.contains(&Some(false))
    }

    /// Whether the numbers and the address are those of the peer, apart from the PSNs.
    pub(super) fn is_named(&self, address: IpAddr, hello: &Hello) -> bool {
        let from = End {
            address,
            number: hello.from,
        };
        from == self.peer && hello.to == self.own.number
    }

    /// Terms of the connection. Until RTS, this side has as many Reads outstanding as the peer may
    /// have. Messages wait for a late receive buffer, as with an `rnr_retry` of 7.
    pub(super) fn terms(&self) -> Terms {
        let ord = self.sends.map_or(self.ird, |it| it.ord);
        let depths = ReadDepths {
            ird: self.ird,
            ord: if self.is_own_peer() {
                ord.min(self.ird)
            } else {
                ord
            },
        };
        Terms {
            depths,
            await_receives: true,
        }
    }

    /// For how long sends wait for a peer that does not answer; `None` for ever.
    pub(super) fn patience(&self) -> Option<Duration> {
        self.sends.map_or(Some(LEAST_PATIENCE), |it| it.patience)
    }
}

/// How long InfiniBand tries to reach a peer with these attributes of Modify QP: `retries` more
/// times than once, each with 4.096 µs · 2^`timeout`; `None` for ever, which a `timeout` of 0 is.
pub(crate) fn patience(timeout: u8, retries: u8) -> Option<Duration> {
    if timeout == 0 {
        return None;
    }
    let one = Duration::from_nanos(TIMEOUT_UNIT << timeout.min(31));
    Some((one * (u32::from(retries) + 1)).max(LEAST_PATIENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(last: u8, number: u32) -> End {
        End {
            address: IpAddr::from([10, 0, 0, last]),
            number,
        }
    }

    const SENDS: Sends = Sends {
        psn: 5,
        ord: 4,
        patience: None,
    };

    fn attributes() -> Attributes {
        Attributes {
            own: end(1, 7),
            peer: end(2, 3),
            recv_psn: 9,
            sends: Some(SENDS),
            ird: 1,
        }
    }

    /// What the peer of `attributes` says.
    const HELLO: Hello = Hello {
        from: 3,
        to: 7,
        send_psn: Some(9),
        recv_psn: 5,
    };

    #[test]
    fn lower_address_connects_and_with_one_address_the_lower_number() {
        let connects = |own, peer| {
            let attributes = Attributes {
                own,
                peer,
                ..attributes()
            };
            attributes.connects()
        };
        assert!(connects(end(1, 7), end(2, 3)) && !connects(end(2, 3), end(1, 7)));
        assert!(connects(end(1, 2), end(1, 3)) && !connects(end(1, 3), end(1, 2)));
        let v6 = End {
            address: "fd00::1".parse().expect("an address"),
            number: 1,
        };
        assert!(connects(end(9, 9), v6));
    }

    #[test]
    fn peer_is_known_by_address_numbers_and_psns() {
        let address = end(2, 3).address;
        assert!(attributes().is_peer(address, &HELLO));
        assert!(!attributes().is_peer(end(3, 3).address, &HELLO));
        let wrong = [
            Hello { from: 4, ..HELLO },
            Hello { to: 8, ..HELLO },
            Hello {
                send_psn: Some(8),
                ..HELLO
            },
            Hello {
                recv_psn: 6,
                ..HELLO
            },
        ];
        for hello in wrong {
            assert!(!attributes().is_peer(address, &hello), "{hello:?}");
        }
    }

    #[test]
    fn one_direction_is_enough_while_the_other_is_not_known() {
        let address = end(2, 3).address;
        let receives_only = Attributes {
            sends: None,
            ..attributes()
        };
        let not_yet_sending = Hello {
            send_psn: None,
            ..HELLO
        };
        assert!(receives_only.is_peer(address, &HELLO));
        assert!(attributes().is_peer(address, &not_yet_sending));
        assert!(
            !receives_only.is_peer(address, &not_yet_sending),
            "nothing is known"
        );
    }

    #[test]
    fn patience_is_infinibands_but_not_short() {
        assert_eq!(patience(0, 7), None);
        assert_eq!(patience(14, 7), Some(LEAST_PATIENCE));
        assert_eq!(
            patience(20, 7),
            Some(Duration::from_nanos(4096 * (1 << 20) * 8))
        );
        assert!(patience(31, 7).is_some_and(|it| it > Duration::from_hours(19)));
    }
}

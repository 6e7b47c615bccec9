//! Attempts to connect. A refused attempt is repeated for a while, as the peer may not listen yet.
//!
//! perftest's server asks its client over one connection to make others, and listens for those only
//! afterwards. So while there is a connection to the listener's address and port, an attempt waits
//! longer: the program there lives.

use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use xwarp::QueuePair;
use xwarp::cm::Connecting;
use xwarp::error::ConnectError;

use super::connected::Connected;
use super::connection_event::{ConnectRequest, EventCallback};
use super::errors::Numbered;
use super::keyed::Key;
use super::queue_pair::Qp;
use crate::entry::Result;

/// How long an attempt may take, including the answer of the peer's program.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
/// How soon an attempt is repeated after a refusal.
pub(super) const PAUSE: Duration = Duration::from_millis(10);
/// For how long an attempt is repeated where the program has a connection to the listener.
const PATIENCE_WITH_A_PEER: Duration = Duration::from_secs(10);

/// A request to connect a queue pair, the callback for its outcome, and when it was first tried.
pub(super) struct Attempt {
    /// The queue pair, which the program may have destroyed in the meantime.
    pub(super) qp: Weak<Qp>,
    /// Key of the connection, once it is made.
    pub(super) connection: Key,
    callback: EventCallback,
    request: ConnectRequest,
    since: Instant,
}

impl Attempt {
    pub(super) fn new(
        qp: &Arc<Qp>,
        connection: Key,
        request: ConnectRequest,
        callback: EventCallback,
    ) -> Self {
        let since = Instant::now();
        Self {
            qp: Arc::downgrade(qp),
            connection,
            callback,
            request,
            since,
        }
    }

    pub(super) fn callback(&self) -> EventCallback {
        EventCallback::clone(&self.callback)
    }

    /// Begins the attempt with its queue pair. Returns the local address and port, too.
    pub(super) fn begin(&self, qp: &mut QueuePair) -> Result<(SocketAddr, Connecting)> {
        let request = &self.request;
        let (from, to, data) = (request.local, request.remote, &request.private_data);
        let begun = qp.begin_connect_from(from, to, data, CONNECT_TIMEOUT);
        let begun = begun.map_err(|error| error.errno())?;
        Ok((begun.local(), begun))
    }

    /// Whether the attempt connects this queue pair.
    pub(super) fn is_of(&self, qp: &Arc<Qp>) -> bool {
        Weak::as_ptr(&self.qp) == Arc::as_ptr(qp)
    }

    /// Whether the attempt is to be repeated after this error, [`PAUSE`] later.
    pub(super) fn is_made_again<Q: Copy + Eq + Hash>(
        &self,
        error: &ConnectError,
        connected: &Connected<Q>,
    ) -> bool {
        let ConnectRequest {
            patience, remote, ..
        } = self.request;
        let patience = match patience {
            Duration::ZERO => return false,
            _ if connected.has_made_to(remote) => PATIENCE_WITH_A_PEER,
            patience => patience,
        };
        matches!(error, ConnectError::Refused(_)) && self.since.elapsed() < patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::connection_event::Terms;

    const PATIENCE: Duration = Duration::from_millis(300);

    fn attempt_since(since: Instant) -> Attempt {
        let request = ConnectRequest {
            local: SocketAddr::from(([0, 0, 0, 0], 0)),
            remote: ([10, 0, 0, 2], 7471).into(),
            terms: Terms::default(),
            private_data: Vec::new(),
            patience: PATIENCE,
        };
        Attempt {
            qp: Weak::new(),
            connection: Key(2),
            callback: Arc::new(|_event| {}),
            request,
            since,
        }
    }

    #[test]
    fn only_a_refusal_is_tried_again_and_only_for_a_while() {
        let peer = ([10, 0, 0, 2], 7471).into();
        let refused = ConnectError::Refused(peer);
        let now = Instant::now();
        let connected = Connected::<u64>::default();
        let attempt = attempt_since(now);
        assert!(attempt.is_made_again(&refused, &connected));
        assert!(!attempt.is_made_again(&ConnectError::PeerClosed(peer), &connected));
        let long_ago = now.checked_sub(PATIENCE).expect("the host runs for longer");
        assert!(!attempt_since(long_ago).is_made_again(&refused, &connected));
        let made = connected.begin(1, peer, Arc::new(|_event| {}));
        assert!(connected.note_made(made.expect("no connection yet")));
        assert!(attempt_since(long_ago).is_made_again(&refused, &connected));
        let mut at_once = attempt_since(now);
        at_once.request.patience = Duration::ZERO;
        assert!(!at_once.is_made_again(&refused, &connected));
    }
}

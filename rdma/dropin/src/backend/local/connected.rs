//! Connections whose end is to be reported, by queue pair.
//!
//! A queue pair can have several connections in turn. Each has a key of its own, so the recorded
//! end of one is never reported for the next.

use std::hash::Hash;
use std::net::SocketAddr;
use std::sync::Mutex;

use nix::errno::Errno;
use rustc_hash::FxHashMap;
use xwarp::attr::QpId;

use super::connection_event::EventCallback;
use super::keyed::{Key, Keyed};
use crate::entry::{Result, lock};

/// The connections of an RNIC's queue pairs. The engine's event handler takes their lock, so no
/// thread waits for the engine while it holds the lock.
pub(super) struct Connected<Q = QpId>(Mutex<Lists<Q>>);

struct Lists<Q> {
    all: Keyed<Connection<Q>>,
    /// The connection of each queue pair, from the attempt on until it ends.
    present: FxHashMap<Q, Key>,
    /// Connections whose end is not reported yet.
    ended: Vec<Ended<Q>>,
}

struct Connection<Q> {
    qp: Q,
    /// The listener that this side has connected to.
    remote: Option<SocketAddr>,
    callback: EventCallback,
    stage: Stage,
}

/// State of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The attempt is begun, and the thread that reports does not watch it yet.
    Begun,
    /// The thread watches its attempt.
    Watched,
    /// The connection is made, which has been reported or need not be.
    Made,
}

/// A connection that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended<Q = QpId> {
    pub(super) key: Key,
    pub(super) qp: Q,
    /// Both sides have closed it.
    pub(super) orderly: bool,
}

impl<Q> Default for Connected<Q> {
    fn default() -> Self {
        Self(Mutex::new(Lists {
            all: Keyed::default(),
            present: FxHashMap::default(),
            ended: Vec::new(),
        }))
    }
}

impl<Q: Copy + Eq + Hash> Connected<Q> {
    /// Records that a queue pair begins to connect to a listener. EINVAL while it has a connection.
    pub(super) fn begin(&self, qp: Q, remote: SocketAddr, callback: EventCallback) -> Result<Key> {
        self.enter(qp, Some(remote), callback, Stage::Begun)
    }

    /// Records that a queue pair has a connection. EINVAL if it has another one.
    pub(super) fn make(&self, qp: Q, callback: EventCallback) -> Result<Key> {
        self.enter(qp, None, callback, Stage::Made)
    }

    fn enter(
        &self,
        qp: Q,
        remote: Option<SocketAddr>,
        callback: EventCallback,
        stage: Stage,
    ) -> Result<Key> {
        let mut lists = lock(&self.0);
        if lists.present.contains_key(&qp) {
            return Err(Errno::EINVAL);
        }
        let key = lists.all.insert(Connection {
            qp,
            remote,
            callback,
            stage,
        });
        lists.present.insert(qp, key);
        Ok(key)
    }

    /// Records that the attempt of a connection is watched. Returns true if an end was recorded
    /// before, which can be reported now.
    #[must_use]
    pub(super) fn note_watched(&self, key: Key) -> bool {
        let mut lists = lock(&self.0);
        if let Some(connection) = lists.all.get_mut(key)
            && connection.stage == Stage::Begun
        {
            connection.stage = Stage::Watched;
        }
        lists.ended.iter().any(|ended| ended.key == key)
    }

    /// Records that a begun connection is made, which the caller has reported. Returns false if its
    /// queue pair was destroyed before that.
    #[must_use]
    pub(super) fn note_made(&self, key: Key) -> bool {
        let mut lists = lock(&self.0);
        let connection = lists.all.get_mut(key);
        connection.map(|it| it.stage = Stage::Made).is_some()
    }

    /// Whether a queue pair has a connection, or begins one.
    pub(super) fn has(&self, qp: Q) -> bool {
        lock(&self.0).present.contains_key(&qp)
    }

    /// Whether a connection to this listener is made, and has not ended.
    pub(super) fn has_made_to(&self, remote: SocketAddr) -> bool {
        let lists = lock(&self.0);
        let mut present = lists.present.values().filter_map(|key| lists.all.get(*key));
        present.any(|it| it.stage == Stage::Made && it.remote == Some(remote))
    }

    /// Records that the connection of a queue pair has ended. Returns false if it has none.
    pub(super) fn note_end(&self, qp: Q, orderly: bool) -> bool {
        let mut lists = lock(&self.0);
        let ended = lists.present.remove(&qp);
        lists
            .ended
            .extend(ended.map(|key| Ended { key, qp, orderly }));
        ended.is_some()
    }

    /// Records that all connections have ended that were made.
    pub(super) fn note_all(&self) {
        let mut lists = lock(&self.0);
        let lists = &mut *lists;
        let gone = lists
            .present
            .extract_if(|_, key| lists.all.is_in(*key, Stage::Made));
        let orderly = false;
        lists
            .ended
            .extend(gone.map(|(qp, key)| Ended { key, qp, orderly }));
    }

    /// Takes the recorded ends. The end of a connection whose attempt is not watched yet stays: the
    /// attempt's outcome is reported first.
    pub(super) fn take_ended(&self) -> Vec<Ended<Q>> {
        let mut lists = lock(&self.0);
        let Lists { all, ended, .. } = &mut *lists;
        let taken = ended.extract_if(.., |it| !all.is_in(it.key, Stage::Begun));
        taken.collect()
    }

    /// Removes a connection. Returns the callback for its end.
    pub(super) fn remove(&self, key: Key) -> Option<EventCallback> {
        let mut lists = lock(&self.0);
        let connection = lists.all.remove(key)?;
        if lists.present.get(&connection.qp) == Some(&key) {
            lists.present.remove(&connection.qp);
        }
        Some(connection.callback)
    }

    /// Removes the present connection of a queue pair. Returns the callback for its end, if it was
    /// made.
    pub(super) fn remove_present(&self, qp: Q) -> Option<EventCallback> {
        let mut lists = lock(&self.0);
        let key = lists.present.remove(&qp)?;
        let connection = lists.all.remove(key)?;
        (connection.stage == Stage::Made).then_some(connection.callback)
    }
}

impl<Q> Keyed<Connection<Q>> {
    fn is_in(&self, key: Key, stage: Stage) -> bool {
        self.get(key).is_some_and(|it| it.stage == stage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    /// Name of a queue pair.
    const QP: u64 = 7;
    const REMOTE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7471);

    fn ignoring() -> EventCallback {
        Arc::new(|_event| {})
    }

    #[test]
    fn end_that_is_reported_late_is_that_of_the_former_connection() {
        let connected = Connected::default();
        let first = connected
            .begin(QP, REMOTE, ignoring())
            .expect("no connection yet");
        assert!(connected.note_made(first));
        assert!(connected.note_end(QP, true));
        let second = connected
            .begin(QP, REMOTE, ignoring())
            .expect("the first has ended");
        let [ended] = connected.take_ended()[..] else {
            panic!("one has ended");
        };
        assert_eq!((ended.key, ended.orderly), (first, true));
        assert!(connected.remove(first).is_some());
        assert!(connected.has(QP), "the second goes on");
        assert!(connected.remove(second).is_some() && !connected.has(QP));
    }

    #[test]
    fn second_connection_at_once_is_refused() {
        let connected = Connected::default();
        connected
            .begin(QP, REMOTE, ignoring())
            .expect("no connection yet");
        assert_eq!(
            connected.begin(QP, REMOTE, ignoring()).err(),
            Some(Errno::EINVAL)
        );
    }

    #[test]
    fn listener_is_reached_from_its_first_connection_to_the_end_of_its_last() {
        let connected = Connected::default();
        let key = connected.begin(QP, REMOTE, ignoring());
        let key = key.expect("no connection yet");
        assert!(!connected.has_made_to(REMOTE));
        assert!(connected.note_made(key));
        assert!(connected.has_made_to(REMOTE));
        let other = SocketAddr::new(REMOTE.ip(), REMOTE.port() + 1);
        assert!(!connected.has_made_to(other));
        assert!(connected.note_end(QP, true));
        assert!(
            !connected.has_made_to(REMOTE),
            "the program there may have ended"
        );
    }

    #[test]
    fn end_is_noted_once() {
        let connected = Connected::default();
        connected.make(QP, ignoring()).expect("no connection yet");
        assert!(connected.note_end(QP, false));
        assert!(!connected.note_end(QP, true));
        assert_eq!(connected.take_ended().len(), 1);
    }

    /// A connection can be made and end before the call that begins it has returned.
    #[test]
    fn end_waits_until_the_attempt_is_watched() {
        let connected = Connected::default();
        let key = connected
            .begin(QP, REMOTE, ignoring())
            .expect("no connection yet");
        assert!(connected.note_end(QP, true));
        assert_eq!(connected.take_ended(), []);
        assert!(connected.note_watched(key), "it is to be reported now");
        let [ended] = connected.take_ended()[..] else {
            panic!("one has ended");
        };
        assert_eq!((ended.key, ended.qp), (key, QP));
        assert!(!connected.note_watched(key));
    }

    #[test]
    fn only_connections_that_were_made_end_with_the_rnic_or_the_queue_pair() {
        let connected = Connected::default();
        let [made, accepted, begun] = [8, 9, 10];
        let key = connected
            .begin(made, REMOTE, ignoring())
            .expect("no connection yet");
        assert!(connected.note_made(key));
        connected
            .make(accepted, ignoring())
            .expect("no connection yet");
        connected
            .begin(begun, REMOTE, ignoring())
            .expect("no connection yet");
        connected.note_all();
        assert!(!connected.has(made) && !connected.has(accepted));
        assert_eq!(connected.take_ended().len(), 2);
        assert!(connected.has(begun) && connected.remove_present(begun).is_none());
        assert!(!connected.has(begun));
    }
}

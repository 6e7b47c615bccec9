//! Connections whose end is to be told, by queue pair.
//!
//! Each has a key of its own, as a queue pair can have one connection after another. So what is noted
//! of one never reaches the next.

use std::sync::Mutex;

use nix::errno::Errno;
use rustc_hash::FxHashMap;

use super::table::Keyed;
use crate::backend::connections::Told;
use crate::backend::{Key, QpHandle};
use crate::entry::{Result, lock};

/// See the module. The engine's handler of events takes its lock, so nothing waits for the engine
/// while it is held.
#[derive(Default)]
pub(super) struct Connected(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    all: Keyed<Connection>,
    /// The connection of each queue pair, from the attempt on until it ends.
    present: FxHashMap<QpHandle, Key>,
    /// Connections that have ended, which is not told yet.
    ended: Vec<Ended>,
}

struct Connection {
    told: Told,
    /// It is made, which is told or need not be.
    is_made: bool,
}

/// A connection that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) key: Key,
    pub(super) qp: QpHandle,
    /// Both sides have closed it.
    pub(super) orderly: bool,
}

impl Connected {
    /// A queue pair begins to connect. EINVAL while it has a connection.
    pub(super) fn begin(&self, qp: QpHandle, told: Told) -> Result<Key> {
        self.enter(
            qp,
            Connection {
                told,
                is_made: false,
            },
        )
    }

    /// A queue pair has a connection. EINVAL if it has another one.
    pub(super) fn make(&self, qp: QpHandle, told: Told) -> Result<Key> {
        self.enter(
            qp,
            Connection {
                told,
                is_made: true,
            },
        )
    }

    fn enter(&self, qp: QpHandle, connection: Connection) -> Result<Key> {
        let mut lists = lock(&self.0);
        if lists.present.contains_key(&qp) {
            return Err(Errno::EINVAL);
        }
        let key = lists.all.insert(connection);
        lists.present.insert(qp, key);
        Ok(key)
    }

    /// A connection that was begun is made, which is told now.
    pub(super) fn note_made(&self, key: Key) {
        if let Some(connection) = lock(&self.0).all.get_mut(key) {
            connection.is_made = true;
        }
    }

    /// Whether a queue pair has a connection, or begins one.
    pub(super) fn has(&self, qp: QpHandle) -> bool {
        lock(&self.0).present.contains_key(&qp)
    }

    /// The connection of a queue pair has ended. False if it has none.
    pub(super) fn note_end(&self, qp: QpHandle, orderly: bool) -> bool {
        let mut lists = lock(&self.0);
        let ended = lists.present.remove(&qp);
        lists
            .ended
            .extend(ended.map(|key| Ended { key, qp, orderly }));
        ended.is_some()
    }

    /// All connections that were made have ended.
    pub(super) fn note_all(&self) {
        let mut lists = lock(&self.0);
        let lists = &mut *lists;
        let is_made = |key: Key| lists.all.get(key).is_some_and(|it| it.is_made);
        let gone = lists.present.extract_if(|_, key| is_made(*key));
        let orderly = false;
        lists
            .ended
            .extend(gone.map(|(qp, key)| Ended { key, qp, orderly }));
    }

    /// Takes what has been noted.
    pub(super) fn take_ended(&self) -> Vec<Ended> {
        std::mem::take(&mut lock(&self.0).ended)
    }

    /// Forgets a connection of a queue pair; whom its end would have been told.
    pub(super) fn remove(&self, key: Key, qp: QpHandle) -> Option<Told> {
        let mut lists = lock(&self.0);
        if lists.present.get(&qp) == Some(&key) {
            lists.present.remove(&qp);
        }
        lists.all.remove(key).map(|it| it.told)
    }

    /// Forgets the present connection of a queue pair; whom its end is to be told, if it was made.
    pub(super) fn remove_present(&self, qp: QpHandle) -> Option<Told> {
        let mut lists = lock(&self.0);
        let key = lists.present.remove(&qp)?;
        let connection = lists.all.remove(key)?;
        connection.is_made.then_some(connection.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const QP: QpHandle = QpHandle(Key(7));

    fn nobody() -> Told {
        Arc::new(|_news| {})
    }

    #[test]
    fn end_that_is_told_late_is_that_of_the_former_connection() {
        let connected = Connected::default();
        let first = connected.begin(QP, nobody()).expect("no connection yet");
        assert!(connected.note_end(QP, true));
        let second = connected.begin(QP, nobody()).expect("the first has ended");
        let [ended] = connected.take_ended()[..] else {
            panic!("one has ended");
        };
        assert_eq!((ended.key, ended.orderly), (first, true));
        assert!(connected.remove(first, QP).is_some());
        assert!(connected.has(QP), "the second goes on");
        assert!(connected.remove(second, QP).is_some() && !connected.has(QP));
    }

    #[test]
    fn second_connection_at_once_is_refused() {
        let connected = Connected::default();
        connected.begin(QP, nobody()).expect("no connection yet");
        assert_eq!(connected.begin(QP, nobody()).err(), Some(Errno::EINVAL));
    }

    #[test]
    fn end_is_noted_once() {
        let connected = Connected::default();
        connected.begin(QP, nobody()).expect("no connection yet");
        assert!(connected.note_end(QP, false));
        assert!(!connected.note_end(QP, true));
        assert_eq!(connected.take_ended().len(), 1);
    }

    #[test]
    fn only_connections_that_were_made_end_with_the_rnic_or_the_queue_pair() {
        let connected = Connected::default();
        let [made, accepted, begun] = [8, 9, 10].map(|key| QpHandle(Key(key)));
        let key = connected.begin(made, nobody()).expect("no connection yet");
        connected.note_made(key);
        connected
            .make(accepted, nobody())
            .expect("no connection yet");
        connected.begin(begun, nobody()).expect("no connection yet");
        connected.note_all();
        assert!(!connected.has(made) && !connected.has(accepted));
        assert_eq!(connected.take_ended().len(), 2);
        assert!(connected.has(begun) && connected.remove_present(begun).is_none());
        assert!(!connected.has(begun));
    }
}

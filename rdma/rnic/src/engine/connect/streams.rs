//! Streams: the state of connections in streaming mode, and of attempts that wait for their next
//! hop.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use xwarp_driver::Signal;
use xwarp_tcp::{ConnId, RouteMetrics};

use crate::model::{ConnectError, HostError, LocalPort, StreamId, StreamState};
use crate::qp::{RdmaDevice, SourcePort};
use crate::queues::Inbox;
use crate::tables::SearchId;

/// Outcome of an attempt: a stream that TCP is connecting, or an error.
pub(in crate::engine) type Outcome = Result<StreamId, ConnectError>;

/// Request of a verb to connect a stream.
pub struct StartStream {
    /// The local port.
    pub port: LocalPort,
    /// Address and port of the listener.
    pub remote: SocketAddr,
    /// Metrics of the route to the listener.
    pub metrics: RouteMetrics,
    /// Signal to raise at every event of the stream.
    pub watcher: Arc<Signal>,
    /// Inbox of the stream.
    pub outcome: Arc<Inbox<Outcome>>,
}

impl StartStream {
    /// Reports the failure of the attempt.
    pub(in crate::engine) fn refuse(&self, error: ConnectError) {
        // The application may have cancelled the attempt.
        let _ = self.outcome.put(Err(error));
    }
}

/// A connection in streaming mode.
struct Streaming {
    port: SourcePort,
    remote: SocketAddr,
    state: StreamState,
    watcher: Watcher,
}

impl Streaming {
    /// Logs the next state of the stream.
    fn log_change(&self, to: impl Display) {
        let (local, state) = (self.port.local(), self.state);
        log::debug!("stream from {local} to {}: {state:?} to {to}", self.remote);
    }
}

/// Raised when there may be more to read, more room to write, or another state, and when the stream
/// has ended or moved to a queue pair.
#[derive(Default)]
struct Watcher(Option<Arc<Signal>>);

impl Watcher {
    fn wake(&self) {
        if let Some(signal) = &self.0 {
            signal.raise();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.wake();
    }
}

/// Streams of an engine.
#[derive(Default)]
pub(in crate::engine) struct Streams {
    open: FxHashMap<ConnId, Streaming>,
    /// Attempts that wait for the search for their next hop.
    orders: FxHashMap<SearchId, StartStream>,
}

/// Connections.
impl Streams {
    /// Adds a connection in streaming mode.
    pub(in crate::engine) fn add(
        &mut self,
        conn: ConnId,
        port: SourcePort,
        remote: SocketAddr,
        state: StreamState,
    ) {
        let local = port.local();
        log::debug!("stream from {local} to {remote}: new, {state:?}");
        let streaming = Streaming {
            port,
            remote,
            state,
            watcher: Watcher::default(),
        };
        self.open.insert(conn, streaming);
    }

    pub(in crate::engine) fn state(&self, StreamId { conn, .. }: StreamId) -> StreamState {
        let streaming = self.open.get(&conn);
        streaming.map_or(StreamState::Gone, |streaming| streaming.state)
    }

    /// Records that TCP has established the connection of a stream.
    pub(in crate::engine) fn establish(&mut self, conn: ConnId) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.port.settle();
        }
        self.set_state(conn, StreamState::Established);
    }

    /// Connects a stream from the port that the host returned, as the answer to its SYN arrived at
    /// another engine.
    pub(in crate::engine) fn begin_anew(
        &mut self,
        conn: ConnId,
        answer: Result<LocalPort, HostError>,
        device: &mut RdmaDevice,
    ) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.port.begin_anew(conn, answer, device);
        }
    }

    /// Changes the state of a stream.
    pub(in crate::engine) fn set_state(&mut self, conn: ConnId, state: StreamState) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.log_change(format_args!("{state:?}"));
            streaming.state = state;
            streaming.watcher.wake();
        }
    }

    /// Raises `signal` at every later event of the stream.
    pub(in crate::engine) fn watch(
        &mut self,
        StreamId { conn, .. }: StreamId,
        signal: Arc<Signal>,
    ) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.watcher = Watcher(Some(signal));
        }
    }

    /// Wakes the stream's reader or writer, as there may be more bytes or more room.
    pub(in crate::engine) fn wake(&self, conn: ConnId) {
        if let Some(streaming) = self.open.get(&conn) {
            streaming.watcher.wake();
        }
    }

    /// Removes a stream, and returns its port. `to` is the next state of the connection for the
    /// log.
    pub(in crate::engine) fn remove(
        &mut self,
        conn: ConnId,
        to: impl Display,
    ) -> Option<Arc<LocalPort>> {
        let streaming = self.open.remove(&conn)?;
        streaming.log_change(to);
        Some(Arc::clone(streaming.port.get()))
    }

    /// The connections in streaming mode.
    pub(in crate::engine) fn conns(&self) -> Vec<ConnId> {
        self.open.keys().copied().collect()
    }
}

/// Attempts that wait for their next hop.
impl Streams {
    /// Adds an attempt that waits for the result of a search.
    pub(in crate::engine) fn await_next_hop(&mut self, search: SearchId, order: StartStream) {
        self.orders.insert(search, order);
    }

    /// Removes the attempt that waits for this search.
    pub(in crate::engine) fn take_order(&mut self, search: SearchId) -> Option<StartStream> {
        self.orders.remove(&search)
    }

    /// Removes the attempt with this outcome, if it waits. Returns its search.
    pub(in crate::engine) fn cancel(&mut self, outcome: &Arc<Inbox<Outcome>>) -> Option<SearchId> {
        let is_this = |_: &SearchId, order: &mut StartStream| Arc::ptr_eq(&order.outcome, outcome);
        let cancelled = self.orders.extract_if(is_this).next();
        cancelled.map(|(search, _)| search)
    }

    /// Removes all attempts, and returns them with their searches.
    pub(in crate::engine) fn take_orders(
        &mut self,
    ) -> impl Iterator<Item = (SearchId, StartStream)> + use<> {
        std::mem::take(&mut self.orders).into_iter()
    }
}

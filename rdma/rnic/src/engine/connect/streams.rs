//! Streams: the state of connections in streaming mode, and of orders that wait for their next hop.

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

/// What becomes of an order: a stream that TCP is connecting, or an error.
pub(in crate::engine) type Outcome = Result<StreamId, ConnectError>;

/// A verb: connect a stream.
pub struct StartStream {
    /// The local port.
    pub port: LocalPort,
    /// The listener.
    pub remote: SocketAddr,
    /// Metrics of the route there.
    pub metrics: RouteMetrics,
    /// What to raise whenever something happens to the stream.
    pub watcher: Arc<Signal>,
    /// Where the stream goes.
    pub outcome: Arc<Inbox<Outcome>>,
}

impl StartStream {
    /// There is no stream.
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
    /// It comes into another state, or ends.
    fn log_change(&self, to: impl Display) {
        let (local, state) = (self.port.local(), self.state);
        log::debug!("stream from {local} to {}: {state:?} to {to}", self.remote);
    }
}

/// Raised when there may be more to read, more room to write, or another state. Raised, too, when
/// the stream has ended or a queue pair has it.
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

/// See the module.
#[derive(Default)]
pub(in crate::engine) struct Streams {
    open: FxHashMap<ConnId, Streaming>,
    /// Orders whose next hop is searched for.
    orders: FxHashMap<SearchId, StartStream>,
}

/// Connections.
impl Streams {
    /// A connection is in streaming mode from now on.
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

    /// The connection of a stream is made.
    pub(in crate::engine) fn establish(&mut self, conn: ConnId) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.port.settle();
        }
        self.set_state(conn, StreamState::Established);
    }

    /// The answer to the SYN of a stream had come to another engine: what the host gives for
    /// another port.
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

    /// A stream comes into another state.
    pub(in crate::engine) fn set_state(&mut self, conn: ConnId, state: StreamState) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.log_change(format_args!("{state:?}"));
            streaming.state = state;
            streaming.watcher.wake();
        }
    }

    /// Has whatever happens to a stream raise `signal`.
    pub(in crate::engine) fn watch(
        &mut self,
        StreamId { conn, .. }: StreamId,
        signal: Arc<Signal>,
    ) {
        if let Some(streaming) = self.open.get_mut(&conn) {
            streaming.watcher = Watcher(Some(signal));
        }
    }

    /// There may be more to read, or more room to write.
    pub(in crate::engine) fn wake(&self, conn: ConnId) {
        if let Some(streaming) = self.open.get(&conn) {
            streaming.watcher.wake();
        }
    }

    /// Removes a stream; `to` says for the log what becomes of the connection. Returns its port.
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

/// Orders that wait for their next hop.
impl Streams {
    /// An order waits for what a search finds.
    pub(in crate::engine) fn await_next_hop(&mut self, search: SearchId, order: StartStream) {
        self.orders.insert(search, order);
    }

    /// The order that waits for this search.
    pub(in crate::engine) fn take_order(&mut self, search: SearchId) -> Option<StartStream> {
        self.orders.remove(&search)
    }

    /// Gives the order up that has this outcome, if it waits; its search.
    pub(in crate::engine) fn cancel(&mut self, outcome: &Arc<Inbox<Outcome>>) -> Option<SearchId> {
        let is_this = |_: &SearchId, order: &mut StartStream| Arc::ptr_eq(&order.outcome, outcome);
        let cancelled = self.orders.extract_if(is_this).next();
        cancelled.map(|(search, _)| search)
    }

    /// Takes all orders, with their searches.
    pub(in crate::engine) fn take_orders(
        &mut self,
    ) -> impl Iterator<Item = (SearchId, StartStream)> + use<> {
        std::mem::take(&mut self.orders).into_iter()
    }
}

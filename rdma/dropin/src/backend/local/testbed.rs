//! Two backends on RNICs in memory, and their connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp::Listener;
use xwarp::config::Progress;
use xwarp_test_kit::{Cable, MemoryRnic, MemoryRnics, Side, next_request};

use super::Local;
use crate::backend::{Backend, EventSink, QpHandle};
use crate::entry::lock;

const PORT: u16 = 7471;

/// Backends on a cable.
pub(crate) struct Pair {
    a: Arc<Local>,
    b: Arc<Local>,
    listener: std::sync::Mutex<Listener>,
    _cable: Cable,
}

impl Pair {
    /// Opens both, whose events go to `sinks`.
    pub(crate) fn open(sinks: [Arc<dyn EventSink>; 2]) -> Self {
        let rnics =
            MemoryRnics::open(|side| MemoryRnic::at(side).announced().progress(Progress::Thread));
        let MemoryRnics { a, b, cable } = rnics;
        let [sink_a, sink_b] = sinks;
        let address = SocketAddr::new(Side::B.address(), PORT);
        let listener = b.listen(address).expect("a free port");
        Self {
            a: Arc::new(Local::new(a, sink_a, None).expect("handlers")),
            b: Arc::new(Local::new(b, sink_b, None).expect("handlers")),
            listener: std::sync::Mutex::new(listener),
            _cable: cable,
        }
    }

    pub(crate) fn backends(&self) -> [Arc<dyn Backend>; 2] {
        [Arc::<Local>::clone(&self.a), Arc::<Local>::clone(&self.b)]
    }

    /// Connects a queue pair of the first to one of the second.
    pub(crate) fn connect(&self, a: QpHandle, b: QpHandle) {
        let to = SocketAddr::new(Side::B.address(), PORT);
        let begun = self.a.qps.with(a, |qp| {
            let begun = qp.begin_connect(to, b"", Duration::from_secs(20));
            Ok(begun.expect("a connection"))
        });
        let mut listener = lock(&self.listener);
        let request = next_request(&mut listener);
        let accepted = self.b.qps.with(b, |qp| {
            request.accept(qp, b"").expect("a connection");
            Ok(())
        });
        accepted.expect("a queue pair");
        begun.expect("a queue pair").wait().expect("a connection");
    }
}

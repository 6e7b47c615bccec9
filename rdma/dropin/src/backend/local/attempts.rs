//! Attempts to connect. One that nobody listens to is made again for a while.
//!
//! perftest's server tells its client by one connection to make another, and only then listens for that one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use xwarp::cm::Connecting;
use xwarp::error::ConnectError;

use super::errors::Numbered;
use super::queue_pairs::QueuePairs;
use crate::backend::QpHandle;
use crate::backend::connections::{ConnectOrder, Told};
use crate::entry::Result;

/// How long an attempt may take, with the peer's program that has to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_mins(1);
/// For how long an attempt is made again, and how soon after a refusal.
const PATIENCE: Duration = Duration::from_millis(300);
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// An order to connect a queue pair, whoever is told of its outcome, and since when it is tried.
pub(super) struct Attempt {
    pub(super) qp: QpHandle,
    told: Told,
    order: ConnectOrder,
    since: Instant,
}

impl Attempt {
    pub(super) fn new(qp: QpHandle, order: ConnectOrder, told: Told) -> Self {
        let since = Instant::now();
        Self {
            qp,
            told,
            order,
            since,
        }
    }

    pub(super) fn told(&self) -> Told {
        Told::clone(&self.told)
    }

    /// Begins it, or begins it again; where it comes from.
    pub(super) fn begin(&self, qps: &QueuePairs) -> Result<(SocketAddr, Connecting)> {
        let order = &self.order;
        qps.with(self.qp, |qp| {
            let begun = qp.begin_connect(order.remote, &order.private_data, CONNECT_TIMEOUT);
            let begun = begun.map_err(|error| error.errno())?;
            Ok((begun.local(), begun))
        })
    }

    /// Whether it is to be made again after this error, [`PAUSE`] later.
    pub(super) fn is_made_again(&self, error: &ConnectError) -> bool {
        matches!(error, ConnectError::Refused(_)) && self.since.elapsed() < PATIENCE
    }
}

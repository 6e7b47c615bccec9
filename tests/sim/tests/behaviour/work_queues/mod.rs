//! Work queues: slots, depths that change under load, elements of lists, and the limit of messages
//! in progress.

mod elements;
mod inline;
mod limit;
mod load;
mod resize;
mod sends;
mod shared;
mod slots;

use std::time::Duration;

use xwarp::{QpConfig, SharedReceiveQueue};
use xwarp_sim_tests::{Host, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

fn sim() -> Sim {
    Sim::new(Seed(67)).one_way_delay(Duration::from_micros(50))
}

/// An end whose buffers are posted to `srq`.
pub(crate) fn end_with_srq(host: &Host, config: &QpConfig, srq: &SharedReceiveQueue) -> SimEnd {
    let mut end = host.end(&QpConfig::default());
    let (send_cq, recv_cq) = end.cqs();
    let pd = end.host().pd();
    end.qp = pd
        .create_qp_with_srq(config, send_cq, recv_cq, srq)
        .unwrap();
    end
}

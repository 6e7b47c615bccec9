//! Shared receive queues: which queue pair's message takes which buffer, which events are reported,
//! and what stays when a queue pair ends.

mod arrival;
mod limit;
mod pairs;
mod verbs;

use std::time::Duration;

use xwarp::error::PostError;
use xwarp::work::Sgl;
use xwarp::{Access, MemoryRegion, QpConfig, RecvRequest, SharedReceiveQueue, SrqConfig, WrId};
use xwarp_sim_tests::{Host, Sim, SimEnd};
use xwarp_test_kit::netsim::Seed;

/// Bytes of a receive buffer.
const LEN: usize = 8;

fn sim() -> Sim {
    Sim::new(Seed(61)).one_way_delay(Duration::from_micros(50))
}

fn config(depth: usize, limit: usize) -> SrqConfig {
    SrqConfig::default().depth(depth).limit(limit)
}

fn queue(host: &Host, depth: usize, limit: usize) -> SharedReceiveQueue {
    host.pd().create_srq(config(depth, limit)).unwrap()
}

/// Ends of the first host that send, each to one of the second that receives into buffers of `srq`.
fn pairs(sim: &mut Sim, srq: &SharedReceiveQueue, n: usize) -> Vec<(SimEnd, SimEnd)> {
    // Its depth is not looked at.
    let takes = QpConfig::default().recv_depth(0);
    let mut pairs = Vec::new();
    for _ in 0..n {
        let (mut a, mut b) = (
            sim.a().end(&QpConfig::default()),
            sim.b().end(&QpConfig::default()),
        );
        let (send_cq, recv_cq) = b.cqs();
        let qp = b
            .host()
            .pd()
            .create_qp_with_srq(&takes, send_cq, recv_cq, srq);
        b.qp = qp.unwrap();
        sim.connect(&mut a, &mut b);
        pairs.push((a, b));
    }
    pairs
}

/// Posts buffers, all in one region.
fn post(host: &Host, srq: &mut SharedReceiveQueue, ids: std::ops::Range<u64>) -> MemoryRegion {
    let region = host.region(LEN * 64, Access::LOCAL_WRITE);
    for id in ids {
        let sge = region.local(id * 8, 8);
        srq.post_recv(RecvRequest::new(WrId(id), sge)).unwrap();
    }
    region
}

fn full(srq: &mut SharedReceiveQueue) -> bool {
    let request = RecvRequest::new(WrId(99), Sgl::new());
    srq.post_recv(request) == Err(PostError::TooManyWorkRequests(srq.query().unwrap().depth))
}

//! A program of C on an RNIC of the caller's, who drives its engine: `tests/bench` counts its
//! calls.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp::Rnic;
use xwarp::cm::Connecting;

use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, IBV_QPT_RC,
};
use crate::abi::verbs::{ibv_cq, ibv_pd, ibv_qp, ibv_qp_init_attr_ex};
use crate::backend::EventTarget;
use crate::backend::testbed::{Opened, begin_connect};
use crate::object::Object;
use crate::verbs::device::{Device, Targets};
use crate::verbs::pd::Pd;
use crate::verbs::qp_ex;
use crate::verbs::testbed::{Host, queue_pair};

/// A program with a queue pair, a completion queue and a region.
pub struct Program {
    opened: Opened,
    host: Host,
}

impl Program {
    /// Starts a program on `rnic`, with queues of `depth` entries. Its queue pair also takes
    /// `ibv_wr_rdma_write`.
    ///
    /// # Panics
    ///
    /// The RNIC has no room for its objects.
    pub fn on(rnic: Rnic, depth: u32) -> Self {
        let targets: Arc<Targets> = Arc::default();
        let device: Arc<dyn EventTarget> = Arc::<Targets>::clone(&targets);
        let opened = Opened::new(rnic, device).expect("handlers");
        let entries = c_int::try_from(2 * depth).expect("a small number");
        let device = Device::for_test(&targets, &opened.backend());
        let host = Host::new(&device, entries, |pd, cq| extended(pd, cq, depth));
        Self { opened, host }
    }

    /// The RNIC.
    pub fn rnic(&self) -> &Rnic {
        self.opened.rnic()
    }

    /// The program's objects.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Begins to connect the program's queue pair to a peer that listens at `to`.
    ///
    /// # Panics
    ///
    /// The queue pair is connected already.
    pub fn begin_connect(&self, to: SocketAddr, timeout: Duration) -> Connecting {
        begin_connect(&queue_pair(self.host.qp), to, timeout)
    }
}

/// A queue pair that may also be posted to by one function for each part of a request. Those are
/// signaled.
fn extended(pd: *mut ibv_pd, cq: *mut ibv_cq, depth: u32) -> *mut ibv_qp {
    let mut attr = ibv_qp_init_attr_ex::zeroed();
    (attr.pd, attr.send_cq, attr.recv_cq, attr.qp_type) = (pd, cq, cq, IBV_QPT_RC);
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (depth, depth);
    (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (4, 4);
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
    let domain = Object::<Pd>::find(pd).expect("a domain");
    let context = Object::handle(domain.body().context());
    qp_ex::create(context, &mut attr).expect("a queue pair")
}

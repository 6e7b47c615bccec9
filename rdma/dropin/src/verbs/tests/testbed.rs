//! Two hosts on a cable.

use std::sync::Arc;

use xwarp_test_kit::Side;

use crate::abi::numbers::IBV_QPT_RC;
use crate::abi::verbs::ibv_qp;
use crate::backend::testbed::Pair;
use crate::backend::{Backend, EventTarget};
use crate::devices::fixed::Fixed;
use crate::object::Object;
use crate::verbs::device::{Device, Targets};
use crate::verbs::qp::ibv_create_qp;
use crate::verbs::testbed::queue_pair;

pub(super) use crate::verbs::testbed::{
    Host, LEN, await_readable, is_readable, qp_attr, receive, request, rkey,
};

/// Two hosts, whose queue pairs are connected.
pub(super) struct Bed {
    pub(super) a: Host,
    pub(super) b: Host,
    pair: Pair,
}

fn host(device: &Arc<Object<Device>>, qp_type: u32) -> Host {
    Host::new(device, 64, |pd, cq| {
        let mut attr = qp_attr(cq);
        attr.qp_type = qp_type;
        ibv_create_qp(pd, Some(&mut attr))
    })
}

impl Bed {
    pub(super) fn new() -> Self {
        let bed = Self::unconnected();
        bed.connect(bed.a.qp, bed.b.qp);
        bed
    }

    /// Connects a queue pair of the first to one of the second.
    pub(super) fn connect(&self, a: *mut ibv_qp, b: *mut ibv_qp) {
        self.pair.connect(&queue_pair(a), &queue_pair(b));
    }

    pub(super) fn unconnected() -> Self {
        Self::on_cable(false)
    }

    /// Two hosts whose completions have the NIC's times.
    pub(super) fn timed() -> Self {
        Self::on_cable(true)
    }

    /// Two hosts that are not connected, and whose devices have the addresses of their RNICs.
    pub(super) fn addressed() -> Self {
        Self::addressed_with(IBV_QPT_RC)
    }

    /// The same with queue pairs of another type.
    pub(super) fn addressed_with(qp_type: u32) -> Self {
        Self::with_devices(false, qp_type, |side, targets, backend| {
            let fixed = Fixed::new(&[side.address()], &[]);
            Device::one_of(Arc::new(fixed), Fixed::NAME, targets, backend)
        })
    }

    fn on_cable(timed: bool) -> Self {
        Self::with_devices(timed, IBV_QPT_RC, |_, targets, backend| {
            Device::for_test(targets, backend)
        })
    }

    fn with_devices(
        timed: bool,
        qp_type: u32,
        device: impl Fn(Side, &Arc<Targets>, &Arc<Backend>) -> Arc<Object<Device>>,
    ) -> Self {
        let targets: [Arc<Targets>; 2] = Default::default();
        let devices = targets
            .each_ref()
            .map(|it| -> Arc<dyn EventTarget> { Arc::<Targets>::clone(it) });
        let pair = Pair::open(devices, timed);
        let [backend_a, backend_b] = pair.backends();
        let [targets_a, targets_b] = &targets;
        Self {
            a: host(&device(Side::A, targets_a, &backend_a), qp_type),
            b: host(&device(Side::B, targets_b, &backend_b), qp_type),
            pair,
        }
    }

    /// The RNIC of the second.
    pub(super) fn backend_of_b(&self) -> Arc<Backend> {
        let [_, backend] = self.pair.backends();
        backend
    }

    /// Closes both RNICs, which the bed still holds.
    pub(super) fn close(&self) {
        for backend in self.pair.backends() {
            backend.close();
        }
    }

    pub(super) fn end(self) {
        self.a.end();
        self.b.end();
    }
}

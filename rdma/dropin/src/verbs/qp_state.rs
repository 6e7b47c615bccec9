//! States and attributes of a queue pair by InfiniBand's names.
//!
//! iWARP has no Reset, Init and RTR: a queue pair is Idle until its connection is made. So these states are kept here, and RTS is what the
//! connection manager or the program says. Attributes that mean nothing to iWARP are kept and told back.

use std::ffi::c_int;

use nix::errno::Errno;

use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_CAP, IBV_QP_CUR_STATE, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_STATE, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD,
    IBV_QPS_SQE,
};
use crate::abi::verbs::{ibv_qp_attr, ibv_qp_cap};
use crate::backend::{Backend, QpHandle, QpStatus};
use crate::entry::Result;

/// Attributes, the state among them.
pub(super) struct QpAttributes {
    kept: ibv_qp_attr,
    all_signaled: bool,
}

/// What a change of state means to the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// Nothing: only the name changes.
    None,
    /// Its connection ends, and work is flushed.
    Abort,
    /// Its connection ends, work is flushed, and another connection can be made.
    Reset,
}

/// The effect of a change from one state to another; EINVAL if there is no such change.
fn effect(from: u32, to: u32) -> Result<Effect> {
    match (from, to) {
        (IBV_QPS_INIT.., IBV_QPS_RESET) => Ok(Effect::Reset),
        (_, IBV_QPS_ERR) => Ok(Effect::Abort),
        (IBV_QPS_RESET, IBV_QPS_RESET)
        | (IBV_QPS_RESET | IBV_QPS_INIT, IBV_QPS_INIT)
        | (IBV_QPS_INIT, IBV_QPS_RTR)
        | (IBV_QPS_RTR | IBV_QPS_RTS, IBV_QPS_RTS) => Ok(Effect::None),
        (_, IBV_QPS_SQD | IBV_QPS_SQE) => Err(Errno::EOPNOTSUPP),
        _ => Err(Errno::EINVAL),
    }
}

impl QpAttributes {
    pub(super) fn new(cap: ibv_qp_cap, all_signaled: bool) -> Self {
        let mut kept = ibv_qp_attr::zeroed();
        (kept.cap, kept.port_num) = (cap, 1);
        Self { kept, all_signaled }
    }

    pub(super) fn sq_sig_all(&self) -> c_int {
        c_int::from(self.all_signaled)
    }

    /// The state by InfiniBand's name: Error and RTS are the connection's to say.
    fn state(&self, status: QpStatus) -> u32 {
        match status {
            QpStatus::Error => IBV_QPS_ERR,
            QpStatus::Connected => IBV_QPS_RTS,
            QpStatus::Idle => self.kept.qp_state,
        }
    }

    /// Changes what `mask` says, and returns the state.
    pub(super) fn modify(
        &mut self,
        backend: &dyn Backend,
        qp: QpHandle,
        attr: &ibv_qp_attr,
        mask: u32,
    ) -> Result<u32> {
        let view = backend.query_qp(qp)?;
        let from = self.state(view.status);
        let is_expected = mask & IBV_QP_CUR_STATE == 0 || attr.cur_qp_state == from;
        if !is_expected {
            return Err(Errno::EINVAL);
        }
        if mask & (IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_CAP) != 0 {
            // A connection without the connection manager, and other sizes, are not supported.
            return Err(Errno::EOPNOTSUPP);
        }
        let to = if mask & IBV_QP_STATE == 0 {
            from
        } else {
            attr.qp_state
        };
        if mask & IBV_QP_STATE != 0 {
            Self::apply(effect(from, to)?, view.status, backend, qp)?;
        }
        Self::modify_reads(backend, qp, attr, mask)?;
        self.keep(attr, mask);
        self.kept.qp_state = to;
        Ok(to)
    }

    fn apply(effect: Effect, status: QpStatus, backend: &dyn Backend, qp: QpHandle) -> Result<()> {
        match (effect, status) {
            (Effect::None, _) | (Effect::Abort, QpStatus::Error) => Ok(()),
            (Effect::Abort, _) => backend.abort_qp(qp),
            (Effect::Reset, QpStatus::Error) => backend.reset_qp(qp),
            (Effect::Reset, _) => {
                backend.abort_qp(qp)?;
                backend.reset_qp(qp)
            }
        }
    }

    fn modify_reads(
        backend: &dyn Backend,
        qp: QpHandle,
        attr: &ibv_qp_attr,
        mask: u32,
    ) -> Result<()> {
        let ird = (mask & IBV_QP_MAX_DEST_RD_ATOMIC != 0).then(|| attr.max_dest_rd_atomic.into());
        let ord = (mask & IBV_QP_MAX_QP_RD_ATOMIC != 0).then(|| attr.max_rd_atomic.into());
        if ird.is_none() && ord.is_none() {
            return Ok(());
        }
        backend.set_reads(qp, ird, ord)
    }

    fn keep(&mut self, attr: &ibv_qp_attr, mask: u32) {
        if mask & IBV_QP_ACCESS_FLAGS != 0 {
            self.kept.qp_access_flags = attr.qp_access_flags;
        }
        if mask & IBV_QP_PKEY_INDEX != 0 {
            self.kept.pkey_index = attr.pkey_index;
        }
        if mask & IBV_QP_PORT != 0 {
            self.kept.port_num = attr.port_num;
        }
    }

    /// All attributes.
    pub(super) fn query(&self, backend: &dyn Backend, qp: QpHandle) -> Result<ibv_qp_attr> {
        let view = backend.query_qp(qp)?;
        let mut attr = self.kept;
        attr.qp_state = self.state(view.status);
        attr.cur_qp_state = attr.qp_state;
        attr.max_rd_atomic = u8::try_from(view.ord).unwrap_or(u8::MAX);
        attr.max_dest_rd_atomic = u8::try_from(view.ird).unwrap_or(u8::MAX);
        Ok(attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_change_as_infiniband_has_it() {
        let steps = [
            (IBV_QPS_RESET, IBV_QPS_INIT, Ok(Effect::None)),
            (IBV_QPS_INIT, IBV_QPS_RTR, Ok(Effect::None)),
            (IBV_QPS_RTR, IBV_QPS_RTS, Ok(Effect::None)),
            (IBV_QPS_RTS, IBV_QPS_ERR, Ok(Effect::Abort)),
            (IBV_QPS_ERR, IBV_QPS_RESET, Ok(Effect::Reset)),
            (IBV_QPS_RTS, IBV_QPS_SQD, Err(Errno::EOPNOTSUPP)),
            (IBV_QPS_RESET, IBV_QPS_RTS, Err(Errno::EINVAL)),
            (IBV_QPS_ERR, IBV_QPS_RTS, Err(Errno::EINVAL)),
        ];
        for (from, to, expected) in steps {
            assert_eq!(effect(from, to), expected, "{from} to {to}");
        }
    }
}

//! States and attributes of a queue pair by InfiniBand's names.
//!
//! iWARP has no Reset, Init and RTR: a queue pair is Idle until its connection is made. So these
//! states are kept here, and the connection manager or the program sets RTS. Like the kernel's
//! iWARP, Query QP reports Init for a queue pair that is new or reset. A queue pair that is brought
//! up by hand is in the state that its program has set, whether it has found its peer or not.

use std::ffi::c_int;
use std::sync::Arc;

use nix::errno::Errno;

use super::by_hand::{self, Service, Step};
use super::device::{Device, are_taken_for_infiniband};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_ON_DEMAND,
    IBV_ACCESS_OPTIONAL_RANGE, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_ZERO_BASED, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_CUR_STATE, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY,
    IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE,
};
use crate::abi::verbs::{ibv_qp_attr, ibv_qp_cap};
use crate::backend::{Qp, QpStatus, Rights};
use crate::entry::Result;

/// Timers and counts of InfiniBand's retransmission. TCP retransmits here, so these are kept, and
/// reported by Query QP. By hand they say for how long sends wait for a peer that does not answer.
const HINTS: u32 = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER;
const KNOWN: u32 = HINTS
    | by_hand::ALL
    | IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MAX_DEST_RD_ATOMIC;
/// All access flags.
const ACCESS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND
    | IBV_ACCESS_ZERO_BASED
    | IBV_ACCESS_ON_DEMAND
    | IBV_ACCESS_HUGETLB
    | IBV_ACCESS_OPTIONAL_RANGE;

/// Attributes, including the state.
pub(super) struct QpAttributes {
    kept: ibv_qp_attr,
    all_signaled: bool,
    /// Query QP reports Reset as such, as of InfiniBand.
    shows_reset: bool,
    service: Service,
    /// The program has named the peer itself.
    is_by_hand: bool,
}

/// Effect of a change of state on the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// None: only the name of the state changes.
    None,
    /// Its connection ends, and work is flushed.
    Abort,
    /// Its connection ends, work is flushed, and another connection can be made.
    Reset,
}

/// The effect of a change from one state to another; EINVAL if no such change exists.
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

/// Refuses attributes that are not supported, and impossible values.
fn check(attr: &ibv_qp_attr, mask: u32) -> Result<()> {
    if mask & !KNOWN != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let is_valid = |flag, is_so| mask & flag == 0 || is_so;
    let are_valid = is_valid(IBV_QP_QKEY, false)
        && is_valid(IBV_QP_PORT, attr.port_num == 1)
        && is_valid(IBV_QP_PKEY_INDEX, attr.pkey_index == 0)
        && is_valid(IBV_QP_ACCESS_FLAGS, attr.qp_access_flags & !ACCESS == 0)
        && is_valid(IBV_QP_TIMEOUT, attr.timeout < 32)
        && is_valid(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer < 32)
        && is_valid(IBV_QP_RETRY_CNT, attr.retry_cnt < 8)
        && is_valid(IBV_QP_RNR_RETRY, attr.rnr_retry < 8);
    are_valid.then_some(()).ok_or(Errno::EINVAL)
}

/// What the peer of a queue pair with these access flags may do.
fn inbound(flags: u32) -> Rights {
    let has = |flag| flags & flag != 0;
    Rights {
        remote_read: has(IBV_ACCESS_REMOTE_READ),
        remote_write: has(IBV_ACCESS_REMOTE_WRITE),
        remote_atomic: has(IBV_ACCESS_REMOTE_ATOMIC),
        ..Rights::default()
    }
}

impl QpAttributes {
    pub(super) fn new(cap: ibv_qp_cap, all_signaled: bool, service: Service) -> Self {
        let mut kept = ibv_qp_attr::zeroed();
        (kept.cap, kept.port_num) = (cap, 1);
        Self {
            kept,
            all_signaled,
            shows_reset: are_taken_for_infiniband(),
            service,
            is_by_hand: false,
        }
    }

    pub(super) fn sq_sig_all(&self) -> c_int {
        c_int::from(self.all_signaled)
    }

    /// The state by InfiniBand's name: Error and RTS depend on the connection.
    fn state(&self, status: QpStatus) -> u32 {
        match status {
            QpStatus::Error => IBV_QPS_ERR,
            QpStatus::Connected if !self.is_by_hand => IBV_QPS_RTS,
            QpStatus::Idle if self.is_reset() && !self.shows_reset => IBV_QPS_INIT,
            QpStatus::Idle | QpStatus::Connected => self.kept.qp_state,
        }
    }

    /// Whether the queue pair is new, or the program has reset it.
    fn is_reset(&self) -> bool {
        self.kept.qp_state == IBV_QPS_RESET
    }

    /// Whether the program may assume that the queue pair is in this state. The struct of a new
    /// queue pair has Reset.
    fn may_be(&self, state: u32, status: QpStatus) -> bool {
        let is_new = status == QpStatus::Idle && self.is_reset();
        state == self.state(status) || is_new && state == IBV_QPS_RESET
    }

    /// Changes the attributes of `mask`, and returns the new state if it is among them.
    pub(super) fn modify(
        &mut self,
        qp: &Arc<Qp>,
        device: &Device,
        attr: &ibv_qp_attr,
        mask: u32,
    ) -> Result<Option<u32>> {
        check(attr, mask)?;
        let status = qp.query()?.status;
        if mask & IBV_QP_CUR_STATE != 0 && !self.may_be(attr.cur_qp_state, status) {
            return Err(Errno::EINVAL);
        }
        let to = (mask & IBV_QP_STATE != 0).then_some(attr.qp_state);
        let effect = to.map_or(Ok(Effect::None), |to| effect(self.state(status), to))?;
        if effect == Effect::None && mask & IBV_QP_ACCESS_FLAGS != 0 {
            qp.set_inbound(inbound(attr.qp_access_flags))?;
        }
        let own = (device, qp.number());
        match self.service.step((attr, mask), to, self.is_by_hand, own)? {
            Some(step) => self.meet(step, qp, device)?,
            None => self.apply_with_reads((effect, status), qp, device, (attr, mask))?,
        }
        self.keep(attr, mask);
        self.kept.qp_state = to.unwrap_or(self.kept.qp_state);
        Ok(to)
    }

    /// Takes a step of a queue pair that is brought up by hand.
    fn meet(&mut self, step: Step, qp: &Arc<Qp>, device: &Device) -> Result<()> {
        let rendezvous = device.rendezvous()?;
        match step {
            // Reset is reported as Init.
            Step::Receive(..) if self.is_reset() => return Err(Errno::EINVAL),
            Step::Receive(attributes, scope) => {
                rendezvous.receive(qp, attributes, scope)?;
                self.is_by_hand = true;
            }
            Step::Send(sends) => rendezvous.send(qp.number(), sends),
        }
        Ok(())
    }

    /// Gives its peer up, if the program has named one.
    pub(super) fn leave(&self, qp: &Arc<Qp>, device: &Device) {
        // An RNIC that is closed has no rendezvous.
        if self.is_by_hand
            && let Ok(rendezvous) = device.rendezvous()
        {
            rendezvous.forget(qp);
        }
    }

    /// Applies a change of state, and the depths of Reads.
    fn apply_with_reads(
        &mut self,
        (effect, status): (Effect, QpStatus),
        qp: &Arc<Qp>,
        device: &Device,
        (attr, mask): (&ibv_qp_attr, u32),
    ) -> Result<()> {
        if effect != Effect::None {
            self.leave(qp, device);
        }
        // A queue pair in Error accepts no depths, neither before the change to Error nor after the
        // change from it.
        if effect == Effect::Reset {
            Self::apply(effect, status, qp)?;
            if std::mem::take(&mut self.is_by_hand) {
                qp.set_by_hand(false)?;
            }
            qp.set_inbound(Rights::REMOTE)?;
            Self::modify_reads(qp, attr, mask)
        } else {
            Self::modify_reads(qp, attr, mask)?;
            Self::apply(effect, status, qp)
        }
    }

    fn apply(effect: Effect, status: QpStatus, qp: &Qp) -> Result<()> {
        match (effect, status) {
            (Effect::None, _) | (Effect::Abort, QpStatus::Error) => Ok(()),
            (Effect::Abort, _) => qp.abort(),
            (Effect::Reset, QpStatus::Error) => qp.reset(),
            (Effect::Reset, _) => {
                qp.abort()?;
                qp.reset()
            }
        }
    }

    fn modify_reads(qp: &Qp, attr: &ibv_qp_attr, mask: u32) -> Result<()> {
        let ird = (mask & IBV_QP_MAX_DEST_RD_ATOMIC != 0).then(|| attr.max_dest_rd_atomic.into());
        let ord = (mask & IBV_QP_MAX_QP_RD_ATOMIC != 0).then(|| attr.max_rd_atomic.into());
        if ird.is_none() && ord.is_none() {
            return Ok(());
        }
        qp.set_reads(ird, ord)
    }

    fn keep(&mut self, attr: &ibv_qp_attr, mask: u32) {
        if mask & IBV_QP_ACCESS_FLAGS != 0 {
            self.kept.qp_access_flags = attr.qp_access_flags;
        }
        if mask & IBV_QP_AV != 0 {
            self.kept.ah_attr = attr.ah_attr;
        }
        let numbers = [
            (
                IBV_QP_DEST_QPN,
                &mut self.kept.dest_qp_num,
                attr.dest_qp_num,
            ),
            (IBV_QP_PATH_MTU, &mut self.kept.path_mtu, attr.path_mtu),
            (IBV_QP_RQ_PSN, &mut self.kept.rq_psn, attr.rq_psn),
            (IBV_QP_SQ_PSN, &mut self.kept.sq_psn, attr.sq_psn),
        ];
        for (flag, kept, number) in numbers {
            if mask & flag != 0 {
                *kept = number;
            }
        }
        let hints = [
            (
                IBV_QP_MAX_QP_RD_ATOMIC,
                &mut self.kept.max_rd_atomic,
                attr.max_rd_atomic,
            ),
            (
                IBV_QP_MAX_DEST_RD_ATOMIC,
                &mut self.kept.max_dest_rd_atomic,
                attr.max_dest_rd_atomic,
            ),
            (IBV_QP_TIMEOUT, &mut self.kept.timeout, attr.timeout),
            (IBV_QP_RETRY_CNT, &mut self.kept.retry_cnt, attr.retry_cnt),
            (IBV_QP_RNR_RETRY, &mut self.kept.rnr_retry, attr.rnr_retry),
            (
                IBV_QP_MIN_RNR_TIMER,
                &mut self.kept.min_rnr_timer,
                attr.min_rnr_timer,
            ),
        ];
        for (flag, kept, hint) in hints {
            if mask & flag != 0 {
                *kept = hint;
            }
        }
    }

    /// All attributes.
    pub(super) fn query(&self, qp: &Qp) -> Result<ibv_qp_attr> {
        let view = qp.query()?;
        let mut attr = self.kept;
        attr.qp_state = self.state(view.status);
        attr.cur_qp_state = attr.qp_state;
        if !self.is_by_hand {
            attr.max_rd_atomic = u8::try_from(view.ord).unwrap_or(u8::MAX);
            attr.max_dest_rd_atomic = u8::try_from(view.ird).unwrap_or(u8::MAX);
        }
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

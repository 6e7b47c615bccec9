//! Attributes of a queue pair that its program brings up by Modify QP alone, as InfiniBand's
//! programs do: which ones each step takes, and what they mean for the rendezvous.

use std::net::{IpAddr, Ipv6Addr};

use nix::errno::Errno;

use super::device::Device;
use super::query::max_reads;
use crate::abi::numbers::{
    IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC,
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_TIMEOUT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UC,
};
use crate::abi::verbs::{ibv_ah_attr, ibv_qp_attr};
use crate::entry::Result;
use crate::logging::say_once;
use crate::rendezvous::attributes::{Attributes, End, LEAST_PATIENCE, Sends, patience};
use crate::rendezvous::hello::MAX_24;

/// Attributes that name the peer, at RTR only. An unreliable connection needs no more.
const NAMES: u32 = IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_PATH_MTU | IBV_QP_RQ_PSN;
/// What RTR of a reliable connection needs besides.
const RELIABLE_RTR: u32 = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
/// What RTS of a reliable connection needs besides the PSN.
const RELIABLE_RTS: u32 =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
/// Attributes of a connection without the connection manager.
pub(super) const ALL: u32 = NAMES | IBV_QP_SQ_PSN;

/// A step towards the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Init to RTR: the program names the peer.
    Receive(Attributes, Scope),
    /// RTR to RTS.
    Send(Sends),
}

/// Index of the interface that a link-local address is on.
pub(super) type Scope = u32;

/// What a connection promises, by the type of the queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// RC.
    Reliable,
    /// UC, of which only the attributes differ: it gets more than it is promised.
    Unreliable,
}

impl Service {
    pub(super) fn of(qp_type: u32) -> Self {
        if qp_type == IBV_QPT_UC {
            Self::Unreliable
        } else {
            Self::Reliable
        }
    }

    /// What RTR and RTS need.
    fn needs(self) -> [u32; 2] {
        match self {
            Self::Reliable => [NAMES | RELIABLE_RTR, IBV_QP_SQ_PSN | RELIABLE_RTS],
            Self::Unreliable => [NAMES, IBV_QP_SQ_PSN],
        }
    }

    /// The step that a change to the state `to` makes; `None` if it is not by hand. EINVAL if it
    /// lacks an attribute or has one too many, as InfiniBand's drivers check it.
    pub(super) fn step(
        self,
        (attr, mask): (&ibv_qp_attr, u32),
        to: Option<u32>,
        is_by_hand: bool,
        own: (&Device, u32),
    ) -> Result<Option<Step>> {
        let [rtr, rts] = self.needs();
        let takes = |all: u32| {
            let is_right = mask & all == all && mask & ALL & !all == 0;
            is_right.then_some(()).ok_or(Errno::EINVAL)
        };
        match to {
            Some(IBV_QPS_RTR) if mask & NAMES != 0 => {
                takes(rtr)?;
                let ird = match self {
                    Self::Reliable => reads(attr.max_dest_rd_atomic)?,
                    Self::Unreliable => 0,
                };
                let (attributes, scope) = attributes(attr, ird, own)?;
                Ok(Some(Step::Receive(attributes, scope)))
            }
            Some(IBV_QPS_RTS) if is_by_hand => {
                takes(rts)?;
                Ok(Some(Step::Send(self.sends(attr)?)))
            }
            _ if mask & ALL != 0 => Err(Errno::EINVAL),
            _ => Ok(None),
        }
    }

    fn sends(self, attr: &ibv_qp_attr) -> Result<Sends> {
        let (ord, patience) = match self {
            Self::Reliable => (
                reads(attr.max_rd_atomic)?,
                patience(attr.timeout, attr.retry_cnt),
            ),
            Self::Unreliable => (0, Some(LEAST_PATIENCE)),
        };
        Ok(Sends {
            psn: attr.sq_psn & MAX_24,
            ord,
            patience,
        })
    }
}

/// A number of Reads, which the device must be able to have outstanding.
fn reads(wanted: u8) -> Result<u16> {
    let is_possible = usize::from(wanted) <= max_reads();
    is_possible.then_some(wanted.into()).ok_or(Errno::EINVAL)
}

fn attributes(
    attr: &ibv_qp_attr,
    ird: u16,
    (device, number): (&Device, u32),
) -> Result<(Attributes, Scope)> {
    let ah = &attr.ah_attr;
    let peer = peer_address(ah)?;
    let interface = device.interface()?;
    let own = interface.addresses.get(usize::from(ah.grh.sgid_index));
    let own = *own.ok_or(Errno::EINVAL)?;
    let is_possible = ah.port_num == 1
        && (1..=5).contains(&attr.path_mtu)
        && attr.dest_qp_num <= MAX_24
        && own.is_ipv4() == peer.is_ipv4();
    if !is_possible {
        return Err(Errno::EINVAL);
    }
    let attributes = Attributes {
        own: End {
            address: own,
            number,
        },
        peer: End {
            address: peer,
            number: attr.dest_qp_num,
        },
        recv_psn: attr.rq_psn & MAX_24,
        sends: None,
        ird,
    };
    Ok((attributes, interface.index))
}

/// The address in the peer's GID.
fn peer_address(ah: &ibv_ah_attr) -> Result<IpAddr> {
    if ah.is_global == 0 {
        say_once(format_args!(
            "ibv_modify_qp reaches no peer by its LID, which only InfiniBand has: have the program use a GID (ibv_rc_pingpong: -g 0, perftest: -x 0)"
        ));
        return Err(Errno::EINVAL);
    }
    let address = IpAddr::from(Ipv6Addr::from(ah.grh.dgid.0)).to_canonical();
    let is_host = !address.is_unspecified() && !address.is_multicast();
    is_host.then_some(address).ok_or(Errno::EINVAL)
}

//! Attributes: what queries of the objects return, what Modify QP takes, identifiers, and counters (verbs draft §9).

pub use crate::cq::CqInfo;
pub use crate::qp_change::QpChange;
pub use crate::srq::SrqInfo;
pub use xwarp_driver::net::MacAddr;
pub use xwarp_driver::{IoCounters, NicInfo};
pub use xwarp_rnic::model::{
    CqId, DequeuingModel, EngineCounters, PdId, QpId, QpInfo, RnicAttributes, RnicCounters,
    RqLimit, SrqId, TerminateInfo, TerminateOrigin,
};
pub use xwarp_tcp::{ConnLoad, StackCounters};

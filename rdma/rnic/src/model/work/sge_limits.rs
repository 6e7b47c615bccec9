//! How many elements scatter/gather lists may have: an attribute of each queue (verbs draft §8.1.3.2, §9.2.4.1, §9.2.5.1).

use super::operation::Operation;
use crate::model::error::{Capability, PostError};
use crate::model::sge::{MAX_SGE, Sgl};

/// Maxima of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SgeLimits {
    /// Elements of a Send's list.
    pub send: usize,
    /// Elements of an RDMA Write's.
    pub write: usize,
    /// Elements of a receive's.
    pub recv: usize,
}

/// No queue has a greater maximum than the RNIC.
pub fn check_capability(what: &'static str, wanted: usize) -> Result<(), Capability> {
    Capability::check(what, wanted, 0, MAX_SGE)
}

/// Has a list no more elements than its queue allows?
pub fn check_list(sgl: &Sgl, max: usize) -> Result<(), PostError> {
    let elements = sgl.len();
    if elements > max {
        return Err(PostError::TooManyElements { elements, max });
    }
    Ok(())
}

impl SgeLimits {
    /// Are they possible? That of receives is not looked at where another queue has one.
    pub(crate) fn check(&self, shared: bool) -> Result<(), Capability> {
        let recv = if shared { 0 } else { self.recv };
        check_capability("a number of elements per Send of", self.send)?;
        check_capability("a number of elements per Write of", self.write)?;
        check_capability("a number of elements per receive of", recv)
    }

    /// Checks a work request for the send queue. What has no list needs no elements.
    pub fn check_send(&self, operation: &Operation) -> Result<(), PostError> {
        match operation {
            Operation::Send { sgl, .. } => check_list(sgl, self.send),
            Operation::Write { sgl, .. } | Operation::WriteImmediate { sgl, .. } => {
                check_list(sgl, self.write)
            }
            Operation::Read { .. }
            | Operation::Immediate { .. }
            | Operation::Atomic { .. }
            | Operation::Memory(_) => Ok(()),
        }
    }

    /// Checks one for the receive queue.
    pub fn check_recv(&self, sgl: &Sgl) -> Result<(), PostError> {
        check_list(sgl, self.recv)
    }
}

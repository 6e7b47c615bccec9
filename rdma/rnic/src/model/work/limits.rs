//! Limits of a work request's payload: elements of scatter/gather lists (verbs draft §8.1.3.2,
//! §9.2.4.1, §9.2.5.1) and inline bytes.

use super::operation::Operation;
use super::payload::{MAX_INLINE, Payload};
use crate::model::error::{CapabilityError, PostError};
use crate::model::sge::{MAX_SGE, Sgl, total};

/// Maxima of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadLimits {
    /// Elements of a Send's scatter/gather list.
    pub send: usize,
    /// Elements of an RDMA Write's scatter/gather list.
    pub write: usize,
    /// Elements of a receive's scatter/gather list.
    pub recv: usize,
    /// Bytes of inline data.
    pub inline: usize,
}

/// Checks a maximum against the RNIC's.
pub fn check_capability(what: &'static str, wanted: usize) -> Result<(), CapabilityError> {
    CapabilityError::check(what, wanted, 0, MAX_SGE)
}

/// Checks that a list has no more elements than its queue allows, and no more bytes than a message
/// may have.
#[inline]
pub fn check_buffers(sgl: &Sgl, max: usize) -> Result<(), PostError> {
    let elements = sgl.len();
    if elements > max {
        return Err(PostError::TooManyElements { elements, max });
    }
    total(sgl).ok_or(PostError::TooLong)?;
    Ok(())
}

impl PayloadLimits {
    /// Checks the maxima. That of receives is ignored if the receive queue is `shared`.
    pub(crate) fn check(&self, shared: bool) -> Result<(), CapabilityError> {
        let recv = if shared { 0 } else { self.recv };
        check_capability("a number of elements per Send of", self.send)?;
        check_capability("a number of elements per Write of", self.write)?;
        check_capability("a number of elements per receive of", recv)?;
        CapabilityError::check("a number of inline bytes of", self.inline, 0, MAX_INLINE)
    }

    /// Checks a work request for the send queue, including its length (RFC 5041 §5.2). A request
    /// without a list needs no elements.
    #[inline]
    pub fn check_send(&self, operation: &Operation) -> Result<(), PostError> {
        match operation {
            // Most messages have one element.
            Operation::Send { payload, .. } if self.send > 0 && payload.is_one_element() => Ok(()),
            Operation::Write { payload, .. } if self.write > 0 && payload.is_one_element() => {
                Ok(())
            }
            _ => self.check_any(operation),
        }
    }

    #[inline(never)]
    fn check_any(&self, operation: &Operation) -> Result<(), PostError> {
        match operation {
            Operation::Send { payload, .. } | Operation::SendImmediate { payload, .. } => {
                self.check_payload(payload, self.send)
            }
            Operation::Write { payload, .. } | Operation::WriteImmediate { payload, .. } => {
                self.check_payload(payload, self.write)
            }
            Operation::Read { .. }
            | Operation::Immediate { .. }
            | Operation::Atomic { .. }
            | Operation::Memory(_) => Ok(()),
        }
    }

    fn check_payload(&self, payload: &Payload, max_elements: usize) -> Result<(), PostError> {
        let data = match payload {
            Payload::Gather(sgl) => return check_buffers(sgl, max_elements),
            Payload::Inline(data) => data.as_slice(),
        };
        let (len, max) = (data.len(), self.inline);
        if len > max {
            return Err(PostError::TooManyInlineBytes { len, max });
        }
        Ok(())
    }

    /// Checks a request for the receive queue against the limits of its queue pair.
    #[inline]
    pub fn check_recv(&self, sgl: &Sgl) -> Result<(), PostError> {
        check_buffers(sgl, self.recv)
    }
}

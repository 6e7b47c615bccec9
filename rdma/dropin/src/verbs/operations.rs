//! The functions that inline functions of the header call, by slots of a context.

use crate::abi::verbs::verbs_context;

/// Fills the slots of all that is supported.
pub(super) fn fill(_context: &mut verbs_context) {}

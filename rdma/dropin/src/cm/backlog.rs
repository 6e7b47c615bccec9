//! Backlog of a listener: how many peers may wait in its channel, until the program takes the event
//! of each.

use std::ffi::c_int;
use std::sync::Arc;

/// The largest backlog, and the one of a program that names no number: the kernel's default
/// (`net.rdma_ucm.max_backlog`).
const MOST: usize = 1024;

/// Backlog of a listener. Each waiting peer holds a clone of the counter.
pub(super) struct Backlog {
    waiting: Arc<()>,
    most: usize,
}

/// The place of a peer that waits.
pub(super) struct Place(#[expect(dead_code, reason = "what is counted is that it lives")] Arc<()>);

impl Backlog {
    /// The backlog that `rdma_listen` asks for. 0, a negative number and one that is too large
    /// stand for the largest.
    pub(super) fn of(wanted: c_int) -> Self {
        let wanted = usize::try_from(wanted).ok();
        let most = wanted.filter(|wanted| (1..MOST).contains(wanted));
        Self {
            waiting: Arc::new(()),
            most: most.unwrap_or(MOST),
        }
    }

    /// Takes a place for one more peer, unless the backlog is full.
    pub(super) fn take(&mut self) -> Option<Place> {
        let waiting = Arc::strong_count(&self.waiting) - 1;
        (waiting < self.most).then(|| Place(Arc::clone(&self.waiting)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_places_are_given_as_the_program_has_asked_for() {
        let mut backlog = Backlog::of(2);
        let first = backlog.take();
        let second = backlog.take();
        assert!(first.is_some() && second.is_some() && backlog.take().is_none());
        drop(first);
        assert!(
            backlog.take().is_some(),
            "a place that is left is given again"
        );
    }

    #[test]
    fn numbers_that_mean_nothing_stand_for_the_most() {
        for wanted in [0, -1, c_int::MIN, 1024, 1025, c_int::MAX] {
            let mut backlog = Backlog::of(wanted);
            let places: Vec<_> = std::iter::from_fn(|| backlog.take()).collect();
            assert_eq!(places.len(), 1024, "{wanted}");
        }
        let mut backlog = Backlog::of(1023);
        let places: Vec<_> = std::iter::from_fn(|| backlog.take()).collect();
        assert_eq!(places.len(), 1023);
    }
}

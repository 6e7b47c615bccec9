//! The queue pairs that may use regions (RFC 5041 §8.2).

use std::collections::hash_map::Entry;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::domains::Domains;
use crate::model::{ALL_QP_NUMBERS, PdId, QP_NUMBERS, QpAccess, QpIdentity, StagScope, number_of};

/// Existing queue pairs.
pub struct Users {
    next_serial: u64,
    /// Numbers of new queue pairs, many more than there can be queue pairs.
    range: Range<u32>,
    /// Queue pair numbers in use, of 24 bits each, with their serial numbers.
    numbers: FxHashMap<u32, u64>,
    /// Counts the queue pairs of each domain.
    pub(super) domains: Domains,
}

impl Default for Users {
    fn default() -> Self {
        Self {
            next_serial: 0,
            range: ALL_QP_NUMBERS,
            numbers: FxHashMap::default(),
            domains: Domains::default(),
        }
    }
}

impl Users {
    /// Sets the numbers of queue pairs that are created from now on.
    pub(super) fn set_numbers(&mut self, range: Range<u32>) {
        self.range = range;
    }

    /// Adds a new queue pair.
    pub(crate) fn join(&mut self, pd: PdId, access: QpAccess) -> QpIdentity {
        let serial = self.take_serial();
        self.domains.join_qp(pd);
        QpIdentity::new(pd, access, serial)
    }

    /// The next serial number whose queue pair number is free and in the range.
    fn take_serial(&mut self) -> u64 {
        loop {
            let number = u64::from(number_of(self.next_serial));
            let first = u64::from(self.range.start);
            if number < first {
                self.next_serial += first - number;
            } else if number >= u64::from(self.range.end) {
                self.next_serial += QP_NUMBERS - number + first;
            }
            let serial = self.next_serial;
            self.next_serial += 1; // 2^48 are never passed
            let number = number_of(serial);
            if let Entry::Vacant(vacant) = self.numbers.entry(number) {
                vacant.insert(serial);
                return serial;
            }
        }
    }

    /// Removes a destroyed queue pair: no scope admits it again.
    pub(crate) fn leave(&mut self, user: QpIdentity) {
        self.numbers.remove(&number_of(user.serial()));
        self.domains.leave_qp(user.pd());
    }

    /// Whether there is a queue pair with this serial number.
    pub(crate) fn contains(&self, serial: u64) -> bool {
        self.numbers.get(&number_of(serial)) == Some(&serial)
    }

    /// Whether more than one queue pair may use a region of this scope.
    pub(crate) fn share(&self, scope: StagScope) -> bool {
        match scope {
            StagScope::Domain(pd) => self.domains.queue_pairs(pd) > 1,
            StagScope::QueuePair(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PD: PdId = PdId(1);
    const OTHER: PdId = PdId(2);
    const NONE: QpAccess = QpAccess::empty();

    #[test]
    fn scope_admits_a_domain_or_one_queue_pair_of_it() {
        let mut users = Users::default();
        let (a, b, stranger) = (
            users.join(PD, NONE),
            users.join(PD, NONE),
            users.join(OTHER, NONE),
        );
        let admitted = |scope: StagScope| [a, b, stranger].map(|user| scope.admits(user));
        assert_eq!(admitted(StagScope::Domain(PD)), [true, true, false]);
        assert_eq!(admitted(StagScope::Domain(OTHER)), [false, false, true]);
        assert_eq!(admitted(StagScope::QueuePair(a)), [true, false, false]);
        assert_eq!(
            admitted(StagScope::QueuePair(stranger)),
            [false, false, true]
        );
    }

    #[test]
    fn nobody_inherits_the_scope_of_a_queue_pair_that_is_gone() {
        let mut users = Users::default();
        let gone = users.join(PD, NONE);
        users.leave(gone);
        for _ in 0..3 {
            let next = users.join(PD, NONE);
            assert!(!StagScope::QueuePair(gone).admits(next));
            users.leave(next);
        }
    }

    #[test]
    fn numbers_rise_and_begin_anew_after_the_last_without_those_in_use() {
        let mut users = Users::default();
        let join = |users: &mut Users| users.join(PD, NONE);
        let [_stays, gone, next] = [(); 3].map(|()| join(&mut users));
        let number = |user: QpIdentity| number_of(user.serial());
        assert_eq!((number(gone), number(next)), (3, 4));
        users.leave(gone);
        users.leave(next);
        assert_eq!(number(join(&mut users)), 5, "those of the past come last");
        users.next_serial = QP_NUMBERS - 1;
        let last = number(join(&mut users));
        let again = [(); 3].map(|()| number(join(&mut users)));
        assert_eq!((last, again), ((1 << 24) - 1, [3, 4, 6]));
    }

    #[test]
    fn numbers_of_a_range_begin_anew_in_the_range() {
        let mut users = Users::default();
        let number = |user: QpIdentity| number_of(user.serial());
        let join = |users: &mut Users| number(users.join(PD, NONE));
        assert_eq!(join(&mut users), 2);
        users.set_numbers(0x1_0000..0x1_0003);
        let all = [(); 3].map(|()| users.join(PD, NONE));
        assert_eq!(all.map(number), [0x1_0000, 0x1_0001, 0x1_0002]);
        users.leave(all[1]);
        assert_eq!(join(&mut users), 0x1_0001, "the only free one");
        users.set_numbers(0..2);
        users.leave(all[0]);
        assert_eq!([(); 2].map(|()| join(&mut users)), [0, 1]);
    }

    #[test]
    fn domain_is_shared_while_it_has_several_queue_pairs() {
        let mut users = Users::default();
        let shared = |users: &Users| [PD, OTHER].map(|pd| users.share(StagScope::Domain(pd)));
        assert_eq!(shared(&users), [false, false]);
        let (a, _stranger) = (users.join(PD, NONE), users.join(OTHER, NONE));
        assert_eq!(shared(&users), [false, false], "one each");
        let b = users.join(PD, NONE);
        assert_eq!(shared(&users), [true, false]);
        assert!(!users.share(StagScope::QueuePair(a)) && !users.share(StagScope::QueuePair(b)));
        users.leave(a);
        assert_eq!(shared(&users), [false, false], "b is left");
        let c = users.join(PD, NONE);
        assert_eq!(shared(&users), [true, false]);
        users.leave(c);
        assert_eq!(shared(&users), [false, false]);
    }
}

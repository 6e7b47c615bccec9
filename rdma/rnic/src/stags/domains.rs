//! The protection domains and the number of their objects (verbs draft §5.2.2).

use rustc_hash::FxHashMap;

use crate::model::{CapabilityError, CreateError, DestroyError, MAX_PDS, PdId};

/// A protection domain that was not deallocated, or that still has objects.
#[derive(Default)]
struct Domain {
    /// Whether the application can create objects in it.
    open: bool,
    qps: usize,
    /// Number of shared receive queues, regions and windows.
    others: usize,
}

impl Domain {
    fn objects(&self) -> usize {
        self.qps + self.others
    }
}

/// All protection domains of an RNIC.
#[derive(Default)]
pub struct Domains {
    all: FxHashMap<PdId, Domain>,
    next: u32,
}

impl Domains {
    /// Allocate PD. A domain that the application has dropped counts until its last object is gone.
    pub fn allocate(&mut self) -> Result<PdId, CreateError> {
        let wanted = self.all.len() + 1;
        CapabilityError::check("a number of protection domains of", wanted, 1, MAX_PDS)?;
        // `MAX_PDS` leaves most numbers free.
        while self.all.contains_key(&PdId(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let id = PdId(self.next);
        self.next = self.next.wrapping_add(1);
        self.all.entry(id).or_default().open = true;
        Ok(id)
    }

    /// Deallocate PD (verbs draft §9.2.2.2). Refused while the domain has objects.
    pub fn deallocate(&mut self, id: PdId) -> Result<(), DestroyError> {
        match self.all.get(&id).map_or(0, Domain::objects) {
            0 => {
                self.all.remove(&id);
                Ok(())
            }
            objects => Err(DestroyError::DomainInUse(objects)),
        }
    }

    /// The application has dropped the domain, which ends with its last object.
    pub fn orphan(&mut self, id: PdId) {
        self.change(id, |domain| domain.open = false);
    }

    /// Counts a new queue pair.
    pub(crate) fn join_qp(&mut self, id: PdId) {
        self.all.entry(id).or_default().qps += 1;
    }

    /// Removes a queue pair from the count.
    pub(crate) fn leave_qp(&mut self, id: PdId) {
        self.change(id, |domain| domain.qps -= 1);
    }

    /// Counts a new object other than a queue pair.
    pub(crate) fn join(&mut self, id: PdId) {
        self.all.entry(id).or_default().others += 1;
    }

    /// Removes an object other than a queue pair from the count.
    pub(crate) fn leave(&mut self, id: PdId) {
        self.change(id, |domain| domain.others -= 1);
    }

    fn change(&mut self, id: PdId, change: impl FnOnce(&mut Domain)) {
        if let Some(domain) = self.all.get_mut(&id) {
            change(domain);
            if !domain.open && domain.objects() == 0 {
                self.all.remove(&id);
            }
        }
    }

    /// Number of its queue pairs.
    pub(crate) fn queue_pairs(&self, id: PdId) -> usize {
        self.all.get(&id).map_or(0, |domain| domain.qps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(domains: &mut Domains) -> bool {
        matches!(domains.allocate(), Err(CreateError::Capability(it)) if it.max == MAX_PDS)
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs many minutes for 65,536 domains")]
    fn domains_are_as_many_as_the_rnic_says_and_one_more_when_one_goes() {
        let mut domains = Domains::default();
        let all: Vec<PdId> = (0..MAX_PDS).map(|_| domains.allocate().unwrap()).collect();
        assert!(full(&mut domains));
        domains.join(all[7]);
        assert_eq!(
            domains.deallocate(all[7]),
            Err(DestroyError::DomainInUse(1))
        );
        assert!(full(&mut domains));
        domains.leave(all[7]);
        assert!(full(&mut domains), "it is not in use, but there");
        assert_eq!(domains.deallocate(all[7]), Ok(()));
        assert!(domains.allocate().is_ok() && full(&mut domains));
    }

    #[test]
    fn one_that_nobody_can_name_is_there_until_its_last_object_goes() {
        let mut domains = Domains::default();
        let id = domains.allocate().unwrap();
        domains.join_qp(id);
        domains.join(id);
        domains.orphan(id);
        domains.leave_qp(id);
        assert_eq!(domains.all.len(), 1);
        domains.leave(id);
        assert!(domains.all.is_empty());
        let unused = domains.allocate().unwrap();
        domains.orphan(unused);
        assert!(domains.all.is_empty());
    }

    #[test]
    fn no_two_have_the_same_number_also_when_the_numbers_go_round() {
        let mut domains = Domains::default();
        let old = [domains.allocate().unwrap(), domains.allocate().unwrap()];
        domains.next = u32::MAX;
        let new = [domains.allocate().unwrap(), domains.allocate().unwrap()];
        assert_eq!((new[0], domains.all.len()), (PdId(u32::MAX), 4));
        assert!(!old.contains(&new[0]) && !old.contains(&new[1]));
    }
}

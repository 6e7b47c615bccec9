//! Random verbs and work requests against a model of the `STag` states (verbs.md §11.1), which is
//! compared with the table after each step.

use std::collections::BTreeMap;

use super::*;

/// Steps of a run.
const STEPS: usize = if cfg!(miri) { 100 } else { 10_000 };
/// Number of runs, each with its own seed.
const SEEDS: u64 = if cfg!(miri) { 1 } else { 5 };
/// Regions and windows that a run keeps.
const OBJECTS: usize = 12;

/// A region or window in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    pd: PdId,
    /// The key while it is Valid.
    key: Option<u8>,
    kind: ObjectKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectKind {
    Region {
        shared: bool,
    },
    /// While it is Valid: the region, and which of the users has bound it.
    Window {
        bound: Option<(u32, usize)>,
    },
}

/// Table, model and random numbers.
struct Run {
    it: Fixture,
    users: Vec<(QpIdentity, PdId)>,
    objects: BTreeMap<u32, Object>,
    memory: RegionMemory,
    dice: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut it = Fixture::new();
        let users = [PD, PD, OTHER_PD].map(|pd| (it.user(pd), pd)).to_vec();
        Self {
            it,
            users,
            objects: BTreeMap::new(),
            memory: RegionMemory::Whole(memory()),
            dice: seed,
        }
    }

    /// A number below `sides` (Knuth's MMIX generator).
    fn roll(&mut self, sides: usize) -> usize {
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.dice >> 33).unwrap() % sides
    }

    fn any_pd(&mut self) -> PdId {
        [PD, OTHER_PD][self.roll(2)]
    }

    /// Mostly one of the objects, with its key.
    fn any_stag(&mut self) -> Stag {
        let n = self.roll(self.objects.len().max(1));
        let Some((&index, object)) = self.objects.iter().nth(n) else {
            return Stag(7 << 8);
        };
        let stag = Stag(index << 8).with_key(object.key.unwrap_or(3));
        if self.roll(8) == 0 {
            other_key(stag)
        } else {
            stag
        }
    }

    fn has_windows(&self, region: u32) -> bool {
        let bound = |object: &Object| matches!(object.kind, ObjectKind::Window { bound: Some((its, _)) } if its == region);
        self.objects.values().any(bound)
    }

    /// Whether it is a region that is not shared.
    fn is_own(&self, index: u32) -> bool {
        let object = self.objects.get(&index);
        object.is_some_and(|it| it.kind == ObjectKind::Region { shared: false })
    }

    fn add(&mut self, stag: Stag, pd: PdId, valid: bool, kind: ObjectKind) {
        assert_ne!(stag.index(), 0);
        let key = valid.then(|| stag.key());
        let before = self.objects.insert(stag.index(), Object { pd, key, kind });
        assert_eq!(before, None, "an index of its own");
    }

    fn create(&mut self) {
        let (pd, shared) = (self.any_pd(), false);
        let scope = StagScope::Domain(pd);
        match self.roll(3) {
            0 => {
                let spec = RegionSpec::new(ALL).at(VA);
                let stag = self.it.table.register(scope, &self.memory, &spec).unwrap();
                self.add(stag, pd, true, ObjectKind::Region { shared });
            }
            1 => {
                let stag = self.it.table.allocate(scope, 1, true).unwrap();
                self.add(stag, pd, false, ObjectKind::Region { shared });
            }
            _ => {
                let stag = self.it.table.allocate_window(scope).unwrap();
                self.add(stag, pd, false, ObjectKind::Window { bound: None });
            }
        }
    }

    fn share(&mut self) {
        let (stag, pd) = (self.any_stag(), self.any_pd());
        let spec = RegionSpec::new(ALL).at(VA);
        let shared = self
            .it
            .table
            .register_shared(stag, StagScope::Domain(pd), &spec);
        let object = self.objects.get_mut(&stag.index());
        let region = object.filter(|it| {
            matches!(it.kind, ObjectKind::Region { .. }) && it.key == Some(stag.key())
        });
        let kind = ObjectKind::Region { shared: true };
        assert_eq!(shared.is_ok(), region.is_some());
        if let (Some(region), Ok(new)) = (region, shared) {
            region.kind = kind;
            self.add(new, pd, true, kind);
        }
    }

    fn reregister(&mut self) {
        let (index, pd) = (self.any_stag().index(), self.any_pd());
        let sound = self.roll(4) != 0;
        let spec = RegionSpec::new(if sound { ALL } else { Access::REMOTE_READ }).at(VA);
        let scope = StagScope::Domain(pd);
        let result = self.it.table.reregister(index, scope, &self.memory, &spec);
        let possible = self.is_own(index) && !self.has_windows(index);
        assert_eq!(result.is_ok(), possible && sound);
        match result {
            Ok(stag) => {
                self.objects.remove(&index);
                self.add(stag, pd, true, ObjectKind::Region { shared: false });
            }
            Err(failed) => {
                assert_eq!(failed.kept, !possible);
                if possible {
                    self.objects.remove(&index);
                }
            }
        }
    }

    fn deallocate(&mut self) {
        let index = self.any_stag().index();
        let result = self.it.table.deallocate(index);
        let possible = self.objects.contains_key(&index) && !self.has_windows(index);
        assert_eq!(result.is_ok(), possible);
        if possible {
            self.objects.remove(&index);
        }
    }

    fn fast_register(&mut self) {
        let (n, stag) = (self.roll(3), self.any_stag());
        let (user, pd) = self.users[n];
        let list = PhysicalList {
            first_byte_offset: VA % PAGE,
            len: 100,
            ..pages(&[PAGE])
        };
        let request = FastRegister {
            stag,
            list,
            access: ALL,
            addressing: Addressing::VaBased(VA),
        };
        let result = self.it.table.fast_register(user, &request);
        let own = self.is_own(stag.index());
        let object = self.objects.get_mut(&stag.index());
        let possible = object.filter(|it| own && it.pd == pd && it.key.is_none());
        assert_eq!(result.is_ok(), possible.is_some());
        if let Some(region) = possible {
            region.key = Some(stag.key());
        }
    }

    fn bind(&mut self) {
        let (n, window, region) = (self.roll(3), self.any_stag(), self.any_stag());
        let (user, pd) = self.users[n];
        let request = Bind {
            len: 100,
            ..bind(window, region)
        };
        let result = self.it.table.bind(user, &request);
        let of_region = self.objects.get(&region.index());
        let fits = of_region.is_some_and(|it| {
            let is_region = matches!(it.kind, ObjectKind::Region { .. });
            is_region && it.pd == pd && it.key == Some(region.key())
        });
        let object = self.objects.get_mut(&window.index());
        let possible = object.filter(|it| {
            let unbound = it.kind == ObjectKind::Window { bound: None };
            fits && unbound && it.pd == pd
        });
        assert_eq!(result.is_ok(), possible.is_some());
        if let Some(object) = possible {
            let bound = Some((region.index(), n));
            (object.key, object.kind) = (Some(window.key()), ObjectKind::Window { bound });
        }
    }

    fn invalidate(&mut self) {
        let (n, stag) = (self.roll(3), self.any_stag());
        let (user, pd) = self.users[n];
        let windows = self.has_windows(stag.index());
        let object = self.objects.get_mut(&stag.index());
        let possible = object.filter(|it| {
            let mine = match it.kind {
                ObjectKind::Region { shared } => it.pd == pd && !shared && !windows,
                ObjectKind::Window { bound: None } => it.pd == pd,
                ObjectKind::Window {
                    bound: Some((_, by)),
                } => by == n,
            };
            mine && it.key.is_none_or(|key| key == stag.key())
        });
        let remote = self.it.table.check_invalidate(user, stag);
        // Only the queue pairs themselves may invalidate a region of a domain with several queue
        // pairs.
        let common = |it: &Object| pd == PD && matches!(it.kind, ObjectKind::Region { .. });
        let by_peer = (possible.as_ref()).is_some_and(|it| it.key.is_some() && !common(it));
        assert_eq!(remote.is_ok(), by_peer);
        let local = self.it.table.invalidate_local(user, stag);
        assert_eq!(local.is_ok(), possible.is_some());
        if let Some(object) = possible {
            object.key = None;
            if let ObjectKind::Window { bound } = &mut object.kind {
                *bound = None;
            }
        }
    }

    /// Replaces a queue pair by a new one.
    fn replace_user(&mut self) {
        let n = self.roll(3);
        let (user, pd) = self.users[n];
        self.it.table.leave(user);
        self.users[n] = (self.it.user(pd), pd);
        for object in self.objects.values_mut() {
            if let ObjectKind::Window { bound } = &mut object.kind
                && bound.is_some_and(|(_, by)| by == n)
            {
                (object.key, *bound) = (None, None);
            }
        }
    }

    fn step(&mut self) {
        match self.roll(16) {
            0..=3 if self.objects.len() < OBJECTS => self.create(),
            4 if self.objects.len() < OBJECTS => self.share(),
            5 => self.reregister(),
            6 | 7 => self.deallocate(),
            8 | 9 => self.fast_register(),
            10..=12 => self.bind(),
            13 | 14 => self.invalidate(),
            15 if self.roll(8) == 0 => self.replace_user(),
            _ => {}
        }
    }

    /// Queries and accesses return what the model has.
    fn compare(&self) {
        for (&index, object) in &self.objects {
            let stag = Stag(index << 8).with_key(object.key.unwrap_or(3));
            let table = &self.it.table;
            let found = match object.kind {
                ObjectKind::Region { shared } => {
                    let info = table.query_region(index).unwrap();
                    assert_eq!(info.shared, shared);
                    assert!(table.query_window(index).is_err());
                    (info.key, info.pd)
                }
                ObjectKind::Window { .. } => {
                    let info = table.query_window(index).unwrap();
                    assert!(table.query_region(index).is_err());
                    (info.key, info.pd)
                }
            };
            assert_eq!(found, (object.key, object.pd), "{object:?}");
            for (n, &(user, pd)) in self.users.iter().enumerate() {
                let access = table.access(user, stag, VA, 0, Access::REMOTE_READ);
                let reached = !matches!(
                    access,
                    Err(AccessError::InvalidStag | AccessError::NotAssociated)
                );
                let mine = match object.kind {
                    ObjectKind::Window { bound } => bound.is_some_and(|(_, by)| by == n),
                    ObjectKind::Region { .. } => object.pd == pd,
                };
                assert_eq!(reached, mine && object.key.is_some(), "{object:?} by {n}");
            }
        }
        for (n, &(user, _)) in self.users.iter().enumerate() {
            let bound = |object: &Object| matches!(object.kind, ObjectKind::Window { bound: Some((_, by)) } if by == n);
            assert_eq!(
                self.it.table.has_windows(user),
                self.objects.values().any(bound)
            );
        }
    }
}

#[test]
fn states_of_stags_are_those_of_the_model() {
    for seed in 0..SEEDS {
        let mut run = Run::new(seed);
        let mut lively = 0;
        for _ in 0..STEPS {
            run.step();
            run.compare();
            let valid = run.objects.values().filter(|it| it.key.is_some()).count();
            lively += usize::from(run.objects.len() > 1 && valid > 0);
        }
        assert!(lively > STEPS / 2, "the run has come to something");
    }
}

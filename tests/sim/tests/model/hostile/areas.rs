//! The memory that a hostile peer may name, as it is and as it must be.

use xwarp::error::TermCode;
use xwarp::memory::{RegionSpec, SharedBytes};
use xwarp::{Access, MemoryRegion, MemoryWindow, ProtectionDomain, SendRequest, WrId};
use xwarp_sim_tests::SimEnd;

/// Bytes of a region: more than a segment has.
pub(super) const LEN: usize = 3000;
/// Bytes of a region that the window has, and where they begin.
const WINDOW: (usize, usize) = (100, 900);
const VA: u64 = 0x10_0000;

/// What an `STag` stands for.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) stag: u32,
    pub(super) base: u64,
    pub(super) len: usize,
    access: Access,
    /// The queue pair may use it.
    ours: bool,
    valid: bool,
    is_window: bool,
    /// Which memory, and where in it.
    memory: usize,
    at: usize,
}

impl Area {
    pub(super) fn is_valid(&self) -> bool {
        self.valid
    }
}

/// Why memory may not be accessed, in the order in which that is looked at (verbs.md §11.4).
#[derive(Clone, Copy)]
pub(super) enum Denied {
    Stag,
    Domain,
    Right,
    Wrap,
    Bounds,
}

impl Denied {
    /// wire.md rows 73 to 77.
    pub(super) fn of_write(self) -> TermCode {
        TermCode::ddp_tagged(match self {
            Self::Stag => 0,
            Self::Bounds => 1,
            Self::Domain | Self::Right => 2,
            Self::Wrap => 3,
        })
    }

    /// Rows 81 and 96.
    pub(super) fn of_source(self) -> TermCode {
        TermCode::rdmap_protection(match self {
            Self::Stag => 0,
            Self::Bounds => 1,
            Self::Right => 2,
            Self::Domain => 3,
            Self::Wrap => 4,
        })
    }
}

/// Regions and a window, with what they hold.
pub(super) struct Areas {
    pub(super) list: Vec<Area>,
    known: Vec<Vec<u8>>,
    memories: Vec<SharedBytes>,
    regions: Vec<Option<MemoryRegion>>,
    _window: MemoryWindow,
    _other: ProtectionDomain,
}

impl Areas {
    /// The window is bound when the connection is there.
    pub(super) fn new(end: &mut SimEnd) -> Self {
        let host = end.host().clone();
        let other = host.rnic().allocate_pd().unwrap();
        let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
        let regions = [
            (host.pd(), Access::all(), None),
            (host.pd(), Access::LOCAL_READ | Access::REMOTE_READ, None),
            (host.pd(), Access::LOCAL_WRITE | Access::REMOTE_WRITE, None),
            (host.pd(), Access::all(), Some(VA)),
            (host.pd(), local, None),
            (&other, Access::all(), None),
            // To the last Tagged Offset but one.
            (host.pd(), Access::all(), Some(u64::MAX - LEN as u64)),
            (host.pd(), local | Access::REMOTE_ATOMIC, None),
        ]
        .map(|(pd, access, va)| {
            let memory = host.rnic().allocate_memory(LEN).unwrap();
            let spec = RegionSpec::new(access);
            let spec = va.map_or(spec, |va| spec.at(va));
            let region = pd.register_with(memory, &spec).unwrap();
            (region, access, va, pd.id() == host.pd().id())
        });
        let mut list: Vec<Area> = (regions.iter().enumerate())
            .map(|(memory, (region, access, va, ours))| Area {
                stag: region.stag().0,
                base: va.unwrap_or(0),
                len: LEN,
                access: *access,
                ours: *ours,
                valid: true,
                is_window: false,
                memory,
                at: 0,
            })
            .collect();
        let mut window = host.pd().allocate_window().unwrap();
        let (at, len) = WINDOW;
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let bind = window.bind(regions[3].0.remote(at as u64), len as u64, access);
        end.post(SendRequest::bind(WrId(0), bind).unsignaled());
        list.push(Area {
            stag: bind.window.0,
            base: VA + at as u64,
            len,
            access,
            is_window: true,
            at,
            ..list[3].clone()
        });
        let known = vec![vec![0; LEN]; regions.len()];
        let regions: Vec<_> = regions.map(|(region, ..)| Some(region)).into();
        Self {
            memories: regions
                .iter()
                .flatten()
                .map(|it| it.bytes().clone())
                .collect(),
            list,
            known,
            regions,
            _window: window,
            _other: other,
        }
    }

    /// Where that is: which memory, and where in it.
    pub(super) fn find(
        &self,
        stag: u32,
        to: u64,
        len: usize,
        right: Access,
    ) -> Result<(usize, usize), Denied> {
        let named = |area: &&Area| area.valid && area.stag == stag;
        let area = self.list.iter().find(named).ok_or(Denied::Stag)?;
        if !area.ours {
            return Err(Denied::Domain);
        }
        if !area.access.contains(right) {
            return Err(Denied::Right);
        }
        let (to, len) = (u128::from(to), len as u128);
        // Of the sum itself (RFC 5040 §7.2 e).
        if to + len >= 1 << 64 {
            return Err(Denied::Wrap);
        }
        let base = u128::from(area.base);
        if to < base || to + len > base + area.len as u128 {
            return Err(Denied::Bounds);
        }
        Ok((area.memory, area.at + usize::try_from(to - base).unwrap()))
    }

    pub(super) fn bytes(&self, (memory, at): (usize, usize), len: usize) -> &[u8] {
        &self.known[memory][at..at + len]
    }

    pub(super) fn write(&mut self, (memory, at): (usize, usize), bytes: &[u8]) {
        self.known[memory][at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// May a Send invalidate it? Rows 90 and 91.
    pub(super) fn invalidation(&self, stag: u32) -> Result<(), TermCode> {
        let named = |area: &&Area| area.valid && area.stag == stag;
        let Some(area) = self.list.iter().find(named) else {
            return Err(TermCode::rdmap_protection(0));
        };
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let has_window = |its: &Area| its.valid && its.is_window && its.memory == area.memory;
        let needed = !area.is_window && self.list.iter().any(has_window);
        if !area.ours || needed {
            return Err(TermCode::rdmap_protection(9));
        }
        if !area.access.intersects(remote) {
            return Err(TermCode::rdmap_protection(2)); // verbs.md §12.4
        }
        Ok(())
    }

    pub(super) fn invalidate(&mut self, stag: u32) {
        let named = |area: &&mut Area| area.stag == stag;
        self.list.iter_mut().find(named).unwrap().valid = false;
    }

    /// The application takes a region away, and the window with it.
    pub(super) fn deregister(&mut self, which: usize) {
        self.regions[which] = None;
        for area in self.list.iter_mut().filter(|area| area.memory == which) {
            area.valid = false;
        }
    }

    /// Compares all memory.
    pub(super) fn check(&self) {
        for (which, (memory, known)) in self.memories.iter().zip(&self.known).enumerate() {
            assert!(memory.to_vec() == *known, "memory {which}");
        }
    }
}

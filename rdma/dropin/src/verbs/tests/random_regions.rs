//! Random registrations of a program's memory, against a peer that reads and writes anywhere.
//!
//! Memory without granted access never changes, though access rights are lost meanwhile.

use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::slice;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use proptest::collection::vec;
use proptest::prelude::*;

use super::testbed::{Bed, LEN, request, rkey};
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
};
use crate::abi::verbs::{Rdma, Target, ibv_mr};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr};

/// The byte that the peer writes; the memory has zeros.
const WRITTEN: u8 = 0xa5;
/// Bytes around a region that the peer also accesses.
const AROUND: usize = 64;
const LONGEST: u32 = 256;

/// Change to registered memory, before the peer's access of this number.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Stays,
    IsGone(usize),
    IsReadOnly(usize),
}

/// A part of a mapping of [`LEN`] bytes, as it is registered.
#[derive(Clone, Copy, Debug)]
struct Grant {
    start: usize,
    len: usize,
    writable: bool,
    fate: Fate,
}

/// An access of the peer's: bytes from here on, [`AROUND`] being the region's first.
#[derive(Clone, Copy, Debug)]
struct Access {
    grant: usize,
    from: usize,
    len: u32,
    read: bool,
    /// The access ends this many bytes behind the region, whatever its length.
    beyond: Option<usize>,
}

impl Access {
    /// The access, for a region of `len` bytes.
    fn fitted(mut self, len: usize) -> Self {
        if let Some(beyond) = self.beyond {
            let end = AROUND + len + beyond;
            self.from = self.from.min(end).max(end.saturating_sub(LONGEST as usize));
            self.len = u32::try_from(end - self.from).expect("not more than the longest");
        }
        self
    }
}

fn grant() -> impl Strategy<Value = Grant> {
    let fate = prop_oneof![
        2 => Just(Fate::Stays),
        1 => (0..8_usize).prop_map(Fate::IsGone),
        1 => (0..8_usize).prop_map(Fate::IsReadOnly),
    ];
    (AROUND..LEN / 2, 1..400_usize, any::<bool>(), fate).prop_map(|(start, len, writable, fate)| {
        Grant {
            start,
            len,
            writable,
            fate,
        }
    })
}

fn access() -> impl Strategy<Value = Access> {
    // Most lie within, so that a connection has several accesses.
    let from = prop_oneof![4 => AROUND..AROUND + 64, 1 => 0..LEN / 2 + AROUND];
    let beyond =
        prop_oneof![2 => Just(None), 2 => Just(Some(0)), 1 => (0..20_usize).prop_map(Some)];
    (any::<usize>(), from, 0..LONGEST, any::<bool>(), beyond).prop_map(
        |(grant, from, len, read, beyond)| Access {
            grant,
            from,
            len,
            read,
            beyond,
        },
    )
}

/// Memory of a program, part of which a peer may access.
struct Region {
    grant: Grant,
    map: NonNull<u8>,
    mr: *mut ibv_mr,
}

impl Region {
    fn new(bed: &Bed, grant: Grant) -> Self {
        let len = NonZeroUsize::new(LEN).expect("a length");
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses a free place.
        let map = unsafe { mmap_anonymous(None, len, protection, MapFlags::MAP_PRIVATE) };
        let map = map.expect("memory").cast::<u8>();
        let mut rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
        if grant.writable {
            rights |= IBV_ACCESS_REMOTE_WRITE;
        }
        let start = map.as_ptr().wrapping_add(grant.start);
        let mr = ibv_reg_mr(bed.b.pd, start.cast(), grant.len, rights.cast_signed());
        assert!(!mr.is_null(), "{grant:?}");
        Self { grant, map, mr }
    }

    /// Takes access rights to its memory away, if that is due.
    fn suffer(&self, access: usize) {
        let protection = match self.grant.fate {
            Fate::IsGone(when) if when == access => ProtFlags::PROT_NONE,
            Fate::IsReadOnly(when) if when == access => ProtFlags::PROT_READ,
            Fate::Stays | Fate::IsGone(_) | Fate::IsReadOnly(_) => return,
        };
        // SAFETY: nothing of the test refers to the mapping.
        unsafe { mprotect(self.map.cast(), LEN, protection) }.expect("a mapping");
    }

    fn target(&self, from: usize) -> Target {
        let first = (self.map.as_ptr().addr() + self.grant.start) as u64;
        let rdma = Rdma {
            remote_addr: first + from as u64 - AROUND as u64,
            rkey: rkey(self.mr),
        };
        Target { rdma }
    }

    /// Deregisters it. Memory without granted access is unchanged.
    fn end(self) {
        assert_eq!(ibv_dereg_mr(self.mr), 0);
        // SAFETY: nothing refers to the mapping.
        unsafe { mprotect(self.map.cast(), LEN, ProtFlags::PROT_READ) }.expect("a mapping");
        // SAFETY: the mapping has that many bytes, and no thread writes them now.
        let bytes = unsafe { slice::from_raw_parts(self.map.as_ptr(), LEN) };
        let granted = self.grant.start..self.grant.start + self.grant.len;
        for (at, byte) in bytes.iter().enumerate() {
            let changed = self.grant.writable && granted.contains(&at) && *byte == WRITTEN;
            assert!(
                *byte == 0 || changed,
                "byte {at} of {:?} is {byte}",
                self.grant
            );
        }
        // SAFETY: nothing refers to the mapping.
        unsafe { munmap(self.map.cast(), LEN) }.expect("a mapping");
    }
}

/// Makes host A access a region of host B. Returns false once the connection has ended.
fn try_access(bed: &Bed, region: &Region, access: Access) -> bool {
    let mut piece = [bed.a.sge(if access.read { LEN / 2 } else { 0 }, access.len)];
    let opcode = if access.read {
        IBV_WR_RDMA_READ
    } else {
        IBV_WR_RDMA_WRITE
    };
    let mut wr = request(1, opcode, &mut piece);
    wr.wr = region.target(access.from);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    let done = bed.a.completion().status == IBV_WC_SUCCESS;
    done && is_placed(bed)
}

/// A Read behind a Write shows that the Write was placed, or refused.
fn is_placed(bed: &Bed) -> bool {
    let mut piece = [bed.a.sge(LEN / 2, 1)];
    let mut wr = request(2, IBV_WR_RDMA_READ, &mut piece);
    wr.wr = bed.b.remote(0);
    assert_eq!(bed.a.post_send(&mut wr), 0);
    bed.a.completion().status == IBV_WC_SUCCESS
}

/// Whether a connection may survive this.
fn is_allowed(region: &Region, access: Access, number: usize) -> bool {
    let Grant {
        len,
        writable,
        fate,
        ..
    } = region.grant;
    let inside = access.from >= AROUND && access.from - AROUND + access.len as usize <= len;
    let there = match fate {
        Fate::IsGone(when) => number < when,
        Fate::IsReadOnly(when) => access.read || number < when,
        Fate::Stays => true,
    };
    // An access of no bytes touches nothing, and nothing is checked (RFC 5040 §5.1).
    access.len == 0 || inside && there && (access.read || writable)
}

fn run(grants: &[Grant], accesses: &[Access]) {
    let bed = Bed::new();
    bed.a.write(0, &[WRITTEN; LONGEST as usize]);
    let regions: Vec<_> = grants.iter().map(|it| Region::new(&bed, *it)).collect();
    for (number, access) in accesses.iter().enumerate() {
        for region in &regions {
            region.suffer(number);
        }
        let region = &regions[access.grant % regions.len()];
        let access = access.fitted(region.grant.len);
        let survived = try_access(&bed, region, access);
        assert_eq!(survived, is_allowed(region, access, number), "{access:?}");
        if !survived {
            break;
        }
    }
    regions.into_iter().for_each(Region::end);
    bed.end();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn what_was_not_granted_never_changes(
        grants in vec(grant(), 1..4),
        accesses in vec(access(), 0..12),
    ) {
        run(&grants, &accesses);
    }
}

//! Memory mapping for frames and regions: huge pages where there are any, near the NIC (decision
//! record driver/0030).
#![allow(unsafe_code)]

use std::ffi::{c_ulong, c_void};
use std::io;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes of a huge page, the smaller kind of x86-64 and arm64.
const HUGE_PAGE: usize = 2 << 20;
/// `MPOL_PREFERRED` of <linux/mempolicy.h>: pages of this memory node, and others when it has none.
const PREFERRED: c_ulong = 1;
/// Memory nodes that a mask has room for, as many as Linux has at most (`MAX_NUMNODES`).
const NODES: usize = 1024;
const NODES_PER_WORD: usize = c_ulong::BITS as usize;

/// Where pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// The huge pages that the administrator has set aside (`vm.nr_hugepages`).
    Huge,
    /// Whatever the kernel has: huge ones if it makes them on request (`shmem_enabled`).
    Any,
}

impl Pages {
    /// The kinds of pages that a mapping tries, in this order. A small mapping is not worth a huge
    /// page.
    pub(crate) fn tried_for(bytes: usize) -> &'static [Self] {
        if bytes < HUGE_PAGE {
            &[Self::Any]
        } else {
            &[Self::Huge, Self::Any]
        }
    }
}

/// Anonymous memory that a forked child shares, so that a fork copies none of it: the kernel goes
/// on writing where the parent reads.
pub(crate) struct SharedMapping {
    start: NonNull<c_void>,
    bytes: usize,
    /// The addresses that are this one's own: those of the memory, and some around it.
    _addresses: Addresses,
}

/// A range of addresses that nothing else is mapped to.
struct Addresses {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Addresses {
    fn reserve(bytes: usize) -> io::Result<Self> {
        let len = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: the kernel chooses an address where nothing is.
        let start = unsafe { mmap_anonymous(None, len, ProtFlags::PROT_NONE, flags) }?;
        Ok(Self { start, bytes })
    }

    /// The first address where a huge page can begin.
    fn aligned(&self) -> Option<NonZeroUsize> {
        let start = self.start.addr().get();
        NonZeroUsize::new(start.checked_next_multiple_of(HUGE_PAGE)?)
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: the range is this one's own, and every access to memory in it keeps it from being
        // dropped.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

// SAFETY: it is only an address and a length. The memory is reached through the arena that owns it.
unsafe impl Send for SharedMapping {}
// SAFETY: as for Send.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` at least, of zeros. Its pages come when they are used first or pinned, from the
    /// memory node if that has any.
    pub(crate) fn new(bytes: usize, pages: Pages, node: Option<u32>) -> io::Result<Self> {
        let flags = match pages {
            Pages::Any => MapFlags::empty(),
            Pages::Huge => MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB,
        };
        let bytes = match pages {
            Pages::Any => bytes,
            Pages::Huge => bytes.next_multiple_of(HUGE_PAGE),
        };
        let len = NonZeroUsize::new(bytes).ok_or(io::ErrorKind::InvalidInput)?;
        // A huge page begins at a multiple of its size, in memory and in the addresses.
        let addresses = Addresses::reserve(bytes.saturating_add(HUGE_PAGE))?;
        let flags = flags | MapFlags::MAP_SHARED | MapFlags::MAP_FIXED;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: these addresses lie in the reserved range, and nothing is mapped to them.
        let start = unsafe { mmap_anonymous(addresses.aligned(), len, protection, flags) }?;
        let mapping = Self {
            start,
            bytes,
            _addresses: addresses,
        };
        if pages == Pages::Any {
            mapping.ask_for_huge_pages();
        }
        if let Some(node) = node {
            mapping.prefer(node);
        }
        Ok(mapping)
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start.cast()
    }

    fn ask_for_huge_pages(&self) {
        // SAFETY: the advice changes which pages the mapping gets, and not what is in them.
        let advised = unsafe { madvise(self.start, self.bytes, MmapAdvise::MADV_HUGEPAGE) };
        if let Err(errno) = advised {
            log::debug!("the kernel makes no huge pages: {errno}");
        }
    }

    /// Asks for pages of a memory node. If the kernel takes others, accesses are only slower.
    fn prefer(&self, node: u32) {
        let mut mask = [0; NODES / NODES_PER_WORD];
        let node = node as usize;
        let Some(word) = mask.get_mut(node / NODES_PER_WORD) else {
            return;
        };
        *word = (1 as c_ulong) << (node % NODES_PER_WORD);
        let (start, flags) = (self.start.as_ptr(), 0 as c_ulong);
        // SAFETY: the kernel reads as many bits as the mask has, and no bytes of the mapping.
        let bound = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start,
                self.bytes,
                PREFERRED,
                mask.as_ptr(),
                NODES as c_ulong,
                flags,
            )
        };
        if let Err(errno) = Errno::result(bound) {
            log::debug!("no memory of node {node} is asked for: {errno}");
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::fs;

    use super::*;

    /// The line of this file of /proc/self that begins with the mapping's address.
    fn line(file: &str, mapping: &SharedMapping) -> String {
        let content = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
        let begin = format!("{:x}", mapping.start.addr());
        let line = content.lines().find(|line| line.starts_with(&begin));
        line.expect("the mapping is listed").to_owned()
    }

    #[test]
    fn pages_are_preferred_of_the_memory_node() {
        if fs::metadata("/proc/self/numa_maps").is_err() {
            return; // a kernel without memory nodes
        }
        let of = |node| SharedMapping::new(1 << 20, Pages::Any, node).unwrap();
        let (near, anywhere, nowhere) = (of(Some(0)), of(None), of(Some(u32::MAX)));
        assert!(line("numa_maps", &near).contains(" prefer:0 "));
        assert!(line("numa_maps", &anywhere).contains(" default "));
        assert!(line("numa_maps", &nowhere).contains(" default "));
    }

    #[test]
    fn kernel_is_asked_for_huge_pages() {
        let mapping = SharedMapping::new(4 * HUGE_PAGE, Pages::Any, None).unwrap();
        assert_eq!(mapping.start.addr().get() % HUGE_PAGE, 0);
        let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
        let begin = format!("{:x}-", mapping.start.addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&begin));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).unwrap();
        let known = fs::metadata("/sys/kernel/mm/transparent_hugepage").is_ok();
        assert_eq!(flags.contains(" hg"), known, "{flags}");
    }

    #[test]
    fn huge_pages_are_whole_ones_or_an_error() {
        match SharedMapping::new(HUGE_PAGE + 1, Pages::Huge, None) {
            Ok(mapping) => assert_eq!(mapping.bytes, 2 * HUGE_PAGE),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOMEM), "{error}"),
        }
    }

    #[test]
    fn small_memory_takes_no_huge_page() {
        assert_eq!(Pages::tried_for(HUGE_PAGE - 1), [Pages::Any]);
        assert_eq!(Pages::tried_for(HUGE_PAGE), [Pages::Huge, Pages::Any]);
    }
}

//! Rings shared with the kernel. Each has a producer and a consumer; we are one of them, and the
//! kernel is the other.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memmap2::MmapRaw;
use nix::libc;

/// Type of a ring's entries.
///
/// # Safety
///
/// Any bytes are a value of the type.
pub(crate) unsafe trait Entry: Copy {}

/// An address in the UMEM: fill and completion ring have these.
// SAFETY: any eight bytes are a number.
unsafe impl Entry for u64 {}

/// A piece of a frame: the receive and the transmit ring have these (`struct xdp_desc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    addr: u64,
    len: u32,
    options: u32,
}

// SAFETY: it is made of numbers, without padding, so any sixteen bytes are one.
unsafe impl Entry for Descriptor {}

impl Descriptor {
    /// `len` bytes from `addr` on; with `more` the frame continues in the next descriptor.
    pub(crate) fn new(addr: usize, len: usize, more: bool) -> Self {
        Self {
            addr: addr as u64,
            // More than any chunk has, which the kernel refuses.
            len: u32::try_from(len).unwrap_or(u32::MAX),
            options: if more { libc::XDP_PKT_CONTD } else { 0 },
        }
    }

    /// The same piece, in front of which metadata lies if `described` says so (Linux 6.8).
    #[must_use]
    pub(crate) fn described(mut self, described: bool) -> Self {
        self.options |= if described { libc::XDP_TX_METADATA } else { 0 };
        self
    }

    /// True if metadata lies in front.
    #[cfg(test)]
    pub(crate) fn is_described(&self) -> bool {
        self.options & libc::XDP_TX_METADATA != 0
    }

    /// Where its bytes begin.
    pub(crate) fn addr(&self) -> u64 {
        self.addr
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the frame continues in the next descriptor.
    pub(crate) fn more(&self) -> bool {
        self.options & libc::XDP_PKT_CONTD != 0
    }
}

/// Where the parts of a ring lie in its mapping, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub(super) producer: usize,
    pub(super) consumer: usize,
    pub(super) flags: usize,
    pub(super) entries: usize,
}

/// A ring's memory, both ends.
struct Memory<E> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<E>,
    /// Entries, a power of two.
    size: u32,
    /// Shared with the ring's second end where this process has both, as in tests.
    _mapping: Arc<MmapRaw>,
}

// SAFETY: the pointers lead into the mapping, which goes where this goes. The ends of a ring have
// one owner each.
unsafe impl<E: Entry> Send for Memory<E> {}

impl<E: Entry> Memory<E> {
    /// A ring of `size` entries in a mapping. Refuses a mapping that has not the parts where they
    /// are said to be.
    fn new(mapping: Arc<MmapRaw>, offsets: &Offsets, size: u32) -> io::Result<Self> {
        if !size.is_power_of_two() {
            return Err(unusable("a ring has a power of two of entries"));
        }
        let entries = part(&mapping, offsets.entries, size as usize)?;
        Ok(Self {
            producer: part(&mapping, offsets.producer, 1)?,
            consumer: part(&mapping, offsets.consumer, 1)?,
            flags: part(&mapping, offsets.flags, 1)?,
            entries,
            size,
            _mapping: mapping,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: `part` found the number in the mapping and aligned. Both sides access it by
        // atomic operations only.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }

    /// The entry with a running number.
    #[inline]
    fn entry(&self, number: u32) -> NonNull<E> {
        let at = number & (self.size - 1);
        // SAFETY: `at` is below `size`, and `part` found that many entries in the mapping.
        unsafe { self.entries.add(at as usize) }
    }
}

/// Finds `count` values in a mapping.
fn part<T>(mapping: &MmapRaw, offset: usize, count: usize) -> io::Result<NonNull<T>> {
    let end = size_of::<T>()
        .checked_mul(count)
        .and_then(|bytes| bytes.checked_add(offset));
    if end.is_none_or(|end| end > mapping.len()) || !offset.is_multiple_of(align_of::<T>()) {
        return Err(unusable("the kernel's ring is not where it says"));
    }
    // SAFETY: `offset` was just found to be inside the mapping.
    let start = unsafe { mapping.as_mut_ptr().add(offset) };
    NonNull::new(start.cast()).ok_or_else(|| unusable("a mapping at address 0"))
}

fn unusable(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// The end of a ring where entries are put in. The kernel takes them out.
pub(crate) struct Producer<E> {
    memory: Memory<E>,
    /// Running number of the next entry.
    next: u32,
    /// Running number of the first entry that the kernel had not taken out when we looked last.
    taken: u32,
}

impl<E: Entry> Producer<E> {
    pub(super) fn new(mapping: Arc<MmapRaw>, offsets: &Offsets, size: u32) -> io::Result<Self> {
        Ok(Self {
            memory: Memory::new(mapping, offsets, size)?,
            next: 0,
            taken: 0,
        })
    }

    /// True if `entries` more can be pushed. It looks at what the kernel has taken out only if it
    /// must.
    #[inline]
    pub(crate) fn has_room(&mut self, entries: usize) -> bool {
        if entries <= self.known_room() {
            return true;
        }
        self.taken = self.memory.consumer().load(Ordering::Acquire);
        entries <= self.known_room()
    }

    #[inline]
    fn known_room(&self) -> usize {
        let used = self.next.wrapping_sub(self.taken);
        self.memory.size.saturating_sub(used) as usize
    }

    /// Puts an entry in, which the kernel sees after [`publish`](Self::publish). False if the ring
    /// is full.
    ///
    /// # Safety
    ///
    /// The memory that the entry names is of the ring's UMEM. Until the kernel returns it, no code
    /// of ours accesses what is in the fill ring, and none writes what is in the transmit ring.
    #[inline]
    pub(crate) unsafe fn push(&mut self, entry: E) -> bool {
        if !self.has_room(1) {
            return false;
        }
        let slot = self.memory.entry(self.next);
        // SAFETY: the slot is in the mapping and aligned, and free: the kernel has taken out what
        // was there, and reads it again only after the next `publish`.
        unsafe { slot.write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries that were pushed.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    /// Entries that the kernel has been shown and has not taken out.
    pub(crate) fn occupied(&self) -> usize {
        let taken = self.memory.consumer().load(Ordering::Relaxed);
        let used = self.next.wrapping_sub(taken);
        used.min(self.memory.size) as usize
    }

    /// Running number of the next entry that the kernel takes out.
    pub(crate) fn taken(&self) -> u32 {
        self.memory.consumer().load(Ordering::Relaxed)
    }

    /// True if the kernel takes entries out only when it is called.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.memory.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// The end of a ring where entries are taken out. The kernel puts them in.
pub(crate) struct Consumer<E> {
    memory: Memory<E>,
    /// Running number of the next entry.
    next: u32,
    /// Running number that the kernel's next entry had when we looked last.
    filled: u32,
}

impl<E: Entry> Consumer<E> {
    pub(super) fn new(mapping: Arc<MmapRaw>, offsets: &Offsets, size: u32) -> io::Result<Self> {
        Ok(Self {
            memory: Memory::new(mapping, offsets, size)?,
            next: 0,
            filled: 0,
        })
    }

    /// How many entries can be popped, at most `wanted`. It looks at what the kernel has put in
    /// only if it must.
    #[inline]
    pub(crate) fn available(&mut self, wanted: usize) -> usize {
        if wanted > self.known() {
            self.filled = self.memory.producer().load(Ordering::Acquire);
        }
        self.known().min(wanted)
    }

    /// Entries that the kernel has put in and that were not popped.
    pub(crate) fn occupied(&self) -> usize {
        let filled = self.memory.producer().load(Ordering::Relaxed);
        filled.wrapping_sub(self.next).min(self.memory.size) as usize
    }

    #[inline]
    fn known(&self) -> usize {
        self.filled.wrapping_sub(self.next).min(self.memory.size) as usize
    }

    /// Takes out one of the entries that [`available`](Self::available) counted.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<E> {
        if self.next == self.filled {
            return None;
        }
        let slot = self.memory.entry(self.next);
        self.next = self.next.wrapping_add(1);
        // SAFETY: the slot is in the mapping and aligned. The kernel has filled it, and overwrites
        // it only after the next `release`. Any bytes are an entry.
        Some(unsafe { slot.read() })
    }

    /// Gives the kernel the room of all entries that were popped.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }

    /// Says whether the kernel must be called. It does so at this end of the fill ring and of the
    /// transmit ring.
    #[cfg(test)]
    pub(super) fn ask_for_wakeup(&self, asks: bool) {
        let flags = if asks { libc::XDP_RING_NEED_WAKEUP } else { 0 };
        self.memory.flags().store(flags, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::super::double::{self, OFFSETS, mapping};
    use super::*;

    /// Both ends of one ring, beginning with the running number `from`: the kernel's part is the
    /// other end.
    fn ends(size: u32, from: u32) -> (Producer<u64>, Consumer<u64>) {
        let (mut producer, mut consumer) = double::ends(size);
        (producer.next, producer.taken) = (from, from);
        (consumer.next, consumer.filled) = (from, from);
        producer.publish();
        consumer.release();
        (producer, consumer)
    }

    fn push(producer: &mut Producer<u64>, entry: u64) -> bool {
        // SAFETY: the entry is only a number, which no code takes for an address.
        unsafe { producer.push(entry) }
    }

    #[test]
    fn entries_are_seen_when_they_are_published_and_room_when_it_is_released() {
        let (mut producer, mut consumer) = ends(4, 0);
        for entry in 0..4 {
            assert!(push(&mut producer, entry));
        }
        assert!(!push(&mut producer, 4), "the ring is full");
        assert_eq!(consumer.available(9), 0);
        assert_eq!(consumer.pop(), None);
        producer.publish();
        assert_eq!(consumer.available(3), 3);
        assert_eq!(consumer.pop(), Some(0));
        assert_eq!(consumer.pop(), Some(1));
        assert!(!producer.has_room(1));
        consumer.release();
        assert!(producer.has_room(2));
        assert!(!producer.has_room(3));
    }

    #[test]
    fn running_numbers_that_no_kernel_would_write_do_no_harm() {
        let (mut producer, mut consumer) = ends(4, 7);
        producer.memory.consumer().store(9000, Ordering::Relaxed);
        for entry in 0..4 {
            assert!(push(&mut producer, entry));
        }
        assert!(!push(&mut producer, 4));
        assert_eq!(producer.occupied(), 4);
        consumer.memory.producer().store(9000, Ordering::Relaxed);
        assert_eq!((consumer.available(64), consumer.occupied()), (4, 4));
        for _ in 0..20_000 {
            consumer.pop();
        }
        assert_eq!(consumer.pop(), None);
    }

    #[test]
    fn ring_is_refused_that_does_not_lie_in_its_mapping() {
        let wrong = [
            Offsets {
                entries: 4096,
                ..OFFSETS
            },
            Offsets {
                entries: usize::MAX - 8,
                ..OFFSETS
            },
            Offsets {
                producer: 2,
                ..OFFSETS
            },
            Offsets {
                flags: usize::MAX,
                ..OFFSETS
            },
        ];
        for offsets in wrong {
            assert!(Producer::<Descriptor>::new(mapping(64), &offsets, 64).is_err());
        }
        assert!(Consumer::<u64>::new(mapping(64), &OFFSETS, 63).is_err());
    }

    #[test]
    fn kernel_that_sleeps_asks_to_be_woken() {
        let (producer, consumer) = ends(4, 0);
        assert!(!producer.needs_wakeup());
        consumer.ask_for_wakeup(true);
        assert!(producer.needs_wakeup());
        consumer.ask_for_wakeup(false);
        assert!(!producer.needs_wakeup());
    }

    #[test]
    fn descriptor_is_the_kernels() {
        assert_eq!(size_of::<Descriptor>(), size_of::<libc::xdp_desc>());
        let descriptor = Descriptor::new(4096, 3000, true);
        assert!(descriptor.more() && !Descriptor::new(0, 1, false).more());
        assert_eq!((descriptor.addr(), descriptor.len()), (4096, 3000));
    }

    proptest! {
        /// Whatever is put in and taken out when, everything comes out once and in order, also
        /// where running numbers wrap.
        #[test]
        fn ring_is_a_queue(steps in proptest::collection::vec((0_u64..6, 0_usize..6), 1..60), from in prop_oneof![Just(0), Just(u32::MAX - 9)]) {
            let (mut producer, mut consumer) = ends(8, from);
            let (mut number, mut model) = (0, VecDeque::new());
            for (puts, takes) in steps {
                for _ in 0..puts {
                    let pushed = push(&mut producer, number);
                    prop_assert_eq!(pushed, model.len() < 8);
                    if pushed {
                        model.push_back(number);
                        number += 1;
                    }
                }
                producer.publish();
                let available = consumer.available(takes);
                prop_assert_eq!(available, takes.min(model.len()));
                for _ in 0..available {
                    prop_assert_eq!(consumer.pop(), model.pop_front());
                }
                consumer.release();
            }
        }
    }
}

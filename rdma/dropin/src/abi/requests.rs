//! Work requests of C: lists of them, and the memory that they point to.

use std::marker::PhantomData;
use std::slice;

use super::numbers::IBV_SEND_INLINE;
use super::verbs::{Atomic, Rdma, ibv_recv_wr, ibv_send_wr, ibv_sge};

/// A list of work requests for a send queue: an iterator over the remaining ones.
#[derive(Clone, Debug)]
pub struct SendList<'a>(*const ibv_send_wr, PhantomData<&'a ibv_send_wr>);

/// A list of work requests for a receive queue.
#[derive(Clone, Debug)]
pub struct RecvList<'a>(*const ibv_recv_wr, PhantomData<&'a ibv_recv_wr>);

/// A work request for a send queue, with the memory that it points to.
#[derive(Clone, Copy)]
pub struct SendWr<'a>(&'a ibv_send_wr);

/// A work request for a receive queue, with the memory that it points to.
#[derive(Clone, Copy)]
pub struct RecvWr<'a>(&'a ibv_recv_wr);

/// A value in the program's memory, at any address: libiscsi has its lists in packed structs.
#[derive(Clone, Copy)]
#[repr(C, packed)]
pub struct Unaligned<T>(T);

/// A scatter/gather element.
pub type Element = Unaligned<ibv_sge>;

impl<T: Copy> Unaligned<T> {
    /// Its fields.
    #[inline]
    pub fn fields(self) -> T {
        self.0
    }
}

impl<T> From<T> for Unaligned<T> {
    #[inline]
    fn from(fields: T) -> Self {
        Self(fields)
    }
}

impl SendList<'_> {
    /// The list that begins with `first`.
    ///
    /// # Safety
    ///
    /// Each request is null or readable, and so is what it points to, for as long as the list is
    /// used.
    pub const unsafe fn new(first: *const ibv_send_wr) -> Self {
        Self(first, PhantomData)
    }
}

impl RecvList<'_> {
    /// The list that begins with `first`.
    ///
    /// # Safety
    ///
    /// As [`SendList::new`].
    pub const unsafe fn new(first: *const ibv_recv_wr) -> Self {
        Self(first, PhantomData)
    }
}

impl<'a> Iterator for SendList<'a> {
    type Item = SendWr<'a>;

    #[inline]
    fn next(&mut self) -> Option<SendWr<'a>> {
        // SAFETY: the caller that made the list vouches that its requests are null or readable.
        let request = unsafe { self.0.as_ref() }?;
        self.0 = request.next;
        Some(SendWr(request))
    }
}

impl<'a> Iterator for RecvList<'a> {
    type Item = RecvWr<'a>;

    #[inline]
    fn next(&mut self) -> Option<RecvWr<'a>> {
        // SAFETY: the caller that made the list vouches that its requests are null or readable.
        let request = unsafe { self.0.as_ref() }?;
        self.0 = request.next;
        Some(RecvWr(request))
    }
}

/// Elements of the longest list that is read: more than any device takes. A larger number is an
/// error of the program.
const LONGEST: usize = 64;

/// The elements of a list of C; none if their number is impossible, or there is no list.
///
/// # Safety
///
/// The list is null, or has that many elements that are readable.
#[inline]
pub(crate) unsafe fn elements<'a, T>(
    list: *const T,
    number: impl TryInto<usize>,
) -> Option<&'a [Unaligned<T>]> {
    let number = number.try_into().ok().filter(|number| *number <= LONGEST)?;
    if number == 0 {
        return Some(&[]);
    }
    if list.is_null() {
        return None;
    }
    // SAFETY: the caller vouches for the list.
    Some(unsafe { slice::from_raw_parts(list.cast(), number) })
}

/// The element of a list of one; `None` for other lists.
///
/// # Safety
///
/// As [`elements`].
#[inline]
unsafe fn only_element<'a>(list: *const ibv_sge, number: i32) -> Option<&'a Element> {
    if number != 1 {
        return None;
    }
    // SAFETY: the caller vouches for the list.
    unsafe { list.cast::<Element>().as_ref() }
}

impl<'a> SendWr<'a> {
    /// Its own fields.
    #[inline]
    pub fn fields(self) -> &'a ibv_send_wr {
        self.0
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u32) -> bool {
        self.0.send_flags & flag != 0
    }

    /// The request's scatter/gather list; none if there is none or its number of elements is wrong.
    #[inline]
    pub fn sges(self) -> Option<&'a [Element]> {
        // SAFETY: the caller that made the list vouches for what they point to.
        unsafe { elements(self.0.sg_list, self.0.num_sge) }
    }

    /// The element of a scatter/gather list of one.
    #[inline]
    pub fn only_sge(self) -> Option<&'a Element> {
        // SAFETY: the caller that made the list vouches for what they point to.
        unsafe { only_element(self.0.sg_list, self.0.num_sge) }
    }

    /// The inline data if they are in one piece of at most `most` bytes.
    #[inline]
    pub fn inline_piece(self, most: usize) -> Option<&'a [u8]> {
        debug_assert!(self.has(IBV_SEND_INLINE));
        let piece = self.only_sge()?.fields();
        let len = usize::try_from(piece.length).ok()?;
        let from = piece.addr as *const u8;
        if len > most || from.is_null() {
            return None;
        }
        // SAFETY: the caller that made the list vouches for what they point to. By the manual page,
        // it does not change before the call is over.
        Some(unsafe { slice::from_raw_parts(from, len) })
    }

    /// Copies the inline data to the beginning of `into`, and returns their length, or nothing if
    /// they do not fit.
    #[inline]
    pub fn copy_inline(self, into: &mut [u8]) -> Option<usize> {
        debug_assert!(self.has(IBV_SEND_INLINE));
        let mut len = 0_usize;
        for sge in self.sges()?.iter().map(|sge| sge.fields()) {
            let piece = usize::try_from(sge.length).ok()?;
            let place = into.get_mut(len..len.checked_add(piece)?)?;
            let from = sge.addr as *const u8;
            // SAFETY: the caller that made the list vouches for what they point to; `place` is as
            // long, and ours.
            unsafe { from.copy_to_nonoverlapping(place.as_mut_ptr(), piece) };
            len += piece;
        }
        Some(len)
    }

    /// The key of the region that a window is bound to, if there is one.
    pub fn bound_region(self) -> Option<u32> {
        // SAFETY: the caller that made the list vouches for what they point to.
        unsafe { self.0.bind_info.mr.as_ref() }.map(|region| region.lkey)
    }

    /// The peer's memory of a Write or Read.
    #[inline]
    pub fn rdma(self) -> Rdma {
        // SAFETY: all fields of the union are integers.
        unsafe { self.0.wr.rdma }
    }

    /// The peer's memory of an atomic operation.
    #[inline]
    pub fn atomic(self) -> Atomic {
        // SAFETY: all fields of the union are integers.
        unsafe { self.0.wr.atomic }
    }
}

impl<'a> RecvWr<'a> {
    /// Its own fields.
    #[inline]
    pub fn fields(self) -> &'a ibv_recv_wr {
        self.0
    }

    /// The element of a scatter/gather list of one.
    #[inline]
    pub fn only_sge(self) -> Option<&'a Element> {
        // SAFETY: the caller that made the list vouches for what they point to.
        unsafe { only_element(self.0.sg_list, self.0.num_sge) }
    }

    /// The request's scatter/gather list; none if there is none or its number of elements is wrong.
    #[inline]
    pub fn sges(self) -> Option<&'a [Element]> {
        // SAFETY: the caller that made the list vouches for what they point to.
        unsafe { elements(self.0.sg_list, self.0.num_sge) }
    }
}

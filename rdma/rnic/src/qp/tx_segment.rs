//! TX segment: a TCP segment that FPDUs are being written into.

use xwarp_tcp::ConnMut;

/// See the module.
pub(super) struct TxSegment {
    mulpdu: usize,
    len: usize,
    fpdus: u64,
}

impl TxSegment {
    /// A segment without FPDUs, whose ULPDUs may have `mulpdu` bytes.
    pub(super) fn new(mulpdu: usize) -> Self {
        Self {
            mulpdu,
            len: 0,
            fpdus: 0,
        }
    }

    /// Largest ULPDU that it could hold.
    pub(super) fn mulpdu(&self) -> usize {
        self.mulpdu
    }

    /// Bytes of sealed FPDUs.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Sealed FPDUs.
    pub(super) fn fpdus(&self) -> u64 {
        self.fpdus
    }

    /// True if nothing was sealed.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Room for an FPDU of `len` bytes behind the others, if TCP can send it with them now.
    #[inline]
    pub(super) fn room<'a>(&self, tcp: &'a mut ConnMut<'_>, len: usize) -> Option<&'a mut [u8]> {
        if self.len == 0 {
            return tcp.writable(len);
        }
        self.rest(tcp)?.get_mut(..len)
    }

    /// Room for FPDUs behind the others, if TCP can send one of `len` bytes with them now. `more`: others follow that one.
    #[inline]
    pub(super) fn open<'a>(
        &self,
        tcp: &'a mut ConnMut<'_>,
        len: usize,
        more: bool,
    ) -> Option<&'a mut [u8]> {
        if self.len > 0 {
            return self.rest(tcp);
        }
        if !more {
            return tcp.writable(len);
        }
        tcp.writable(len)?;
        self.rest(tcp)
    }

    /// All the room behind the sealed FPDUs.
    fn rest<'a>(&self, tcp: &'a mut ConnMut<'_>) -> Option<&'a mut [u8]> {
        tcp.widen()?.get_mut(self.len..)
    }

    /// An FPDU of `len` bytes was sealed in that room.
    #[inline]
    pub(super) fn add(&mut self, len: usize) {
        self.len += len;
        self.fpdus += 1;
    }
}

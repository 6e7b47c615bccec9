//! TX segment: a TCP segment that FPDUs are being written into.

use xwarp_driver::PartialSum;
use xwarp_tcp::ConnMut;

/// See the module.
pub(super) struct TxSegment {
    mulpdu: usize,
    len: usize,
    fpdus: u64,
    /// Bytes of those FPDUs whose sum is known, and their sum.
    summed: (usize, PartialSum),
}

impl TxSegment {
    /// A segment without FPDUs, whose ULPDUs may have `mulpdu` bytes.
    pub(super) fn new(mulpdu: usize) -> Self {
        Self {
            mulpdu,
            len: 0,
            fpdus: 0,
            summed: (0, PartialSum::default()),
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

    /// The sum of the sealed FPDUs, if that of each is known.
    pub(super) fn sum(&self) -> Option<PartialSum> {
        let (len, sum) = self.summed;
        (len == self.len).then_some(sum)
    }

    /// Sealed FPDUs.
    pub(super) fn fpdus(&self) -> u64 {
        self.fpdus
    }

    /// True if nothing was sealed.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Room for an FPDU of `len` bytes after the sealed ones, if TCP can send it with them now.
    #[inline]
    pub(super) fn room<'a>(&self, tcp: &'a mut ConnMut<'_>, len: usize) -> Option<&'a mut [u8]> {
        if self.len == 0 {
            return tcp.writable(len);
        }
        self.rest(tcp)?.get_mut(..len)
    }

    /// Room for FPDUs after the sealed ones, if TCP can send one of `len` bytes with them now.
    /// `more`: further FPDUs follow.
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

    /// An FPDU of `len` bytes was sealed in that room. Its sum may be known: the length is even
    /// (RFC 5044 §4.1).
    #[inline]
    pub(super) fn add(&mut self, len: usize, sum: Option<PartialSum>) {
        if let Some(sum) = sum {
            self.summed = (self.summed.0 + len, self.summed.1 + sum);
        }
        self.len += len;
        self.fpdus += 1;
    }
}

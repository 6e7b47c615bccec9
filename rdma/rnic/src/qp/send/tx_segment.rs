//! TX segment: a TCP segment that FPDUs are being written into.

use xwarp_driver::PartialSum;
use xwarp_tcp::ConnMut;

/// A TCP segment that FPDUs are being written into.
pub(super) struct TxSegment {
    mulpdu: usize,
    len: usize,
    fpdus: u64,
    /// Length in bytes of the FPDUs whose checksum was computed, and their checksum.
    summed: (usize, PartialSum),
}

impl TxSegment {
    /// A segment without FPDUs, for ULPDUs of up to `mulpdu` bytes.
    pub(super) fn new(mulpdu: usize) -> Self {
        Self {
            mulpdu,
            len: 0,
            fpdus: 0,
            summed: (0, PartialSum::default()),
        }
    }

    /// Largest ULPDU that it can hold, in bytes.
    pub(super) fn mulpdu(&self) -> usize {
        self.mulpdu
    }

    /// Bytes of sealed FPDUs.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The checksum of the sealed FPDUs, if that of each was computed.
    pub(super) fn sum(&self) -> Option<PartialSum> {
        let (len, sum) = self.summed;
        (len == self.len).then_some(sum)
    }

    /// Number of sealed FPDUs.
    pub(super) fn fpdus(&self) -> u64 {
        self.fpdus
    }

    /// True if nothing was sealed.
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Room for an FPDU of `len` bytes after the sealed ones, if TCP can send all of them now.
    #[inline]
    pub(super) fn room<'a>(&self, tcp: &'a mut ConnMut<'_>, len: usize) -> Option<&'a mut [u8]> {
        if self.len == 0 {
            return tcp.writable(len);
        }
        self.rest(tcp)?.get_mut(..len)
    }

    /// Room for FPDUs after the sealed ones, if TCP can send one of `len` bytes with them now.
    /// `more`: whether further FPDUs follow.
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

    /// All room after the sealed FPDUs.
    fn rest<'a>(&self, tcp: &'a mut ConnMut<'_>) -> Option<&'a mut [u8]> {
        tcp.widen()?.get_mut(self.len..)
    }

    /// Records a sealed FPDU of `len` bytes. Checksums can be added, as the length is even (RFC
    /// 5044 §4.1).
    #[inline]
    pub(super) fn add(&mut self, len: usize, sum: Option<PartialSum>) {
        if let Some(sum) = sum {
            self.summed = (self.summed.0 + len, self.summed.1 + sum);
        }
        self.len += len;
        self.fpdus += 1;
    }
}

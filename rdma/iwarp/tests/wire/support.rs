//! Regions and streams for the tests.

use std::collections::VecDeque;
use xwarp_iwarp::mpa::{Framer, Step, fpdu_len, next_fpdu, seal_fpdu};
use xwarp_iwarp::{
    AccessError, AccessKind, Inbound, InvalidateError, Message, Receiver, Resources, Segment, Stag,
    StreamConfig, Violation,
};
pub(crate) use xwarp_test_kit::hex;

/// `STag` A of vectors.md: the peer's region.
pub(crate) const A: Stag = Stag(0x1122_3344);
/// `STag` B of vectors.md: the requester's region.
pub(crate) const B: Stag = Stag(0x5566_7788);

/// Byte `i` has the value `i` mod 256.
pub(crate) fn counting(len: u32) -> Vec<u8> {
    (0..len).map(|i| i.to_le_bytes()[0]).collect()
}

/// A region and its permissions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) stag: Stag,
    pub(crate) base: u64,
    pub(crate) len: u64,
    pub(crate) ours: bool,
    pub(crate) rights: bool,
    pub(crate) invalidate: Result<(), InvalidateError>,
}

impl Region {
    /// A region with all permissions.
    pub(crate) fn new(stag: Stag, base: u64, len: u64) -> Self {
        Self {
            stag,
            base,
            len,
            ours: true,
            rights: true,
            invalidate: Ok(()),
        }
    }
}

/// Regions and posted receive buffers of a test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) regions: Vec<Region>,
    pub(crate) receives: VecDeque<u64>,
}

impl Resources for Table {
    type Place = ();

    fn take_receive(&mut self) -> Option<u64> {
        self.receives.pop_front()
    }

    fn admit(&self, stag: Stag, to: u64, len: u64, _: AccessKind) -> Result<(), AccessError> {
        assert!(len > 0, "zero-length accesses are not checked");
        let region = self
            .regions
            .iter()
            .find(|region| region.stag == stag)
            .ok_or(AccessError::InvalidStag)?;
        if !region.ours {
            return Err(AccessError::NotAssociated);
        }
        if !region.rights {
            return Err(AccessError::Rights);
        }
        let end = to.checked_add(len).ok_or(AccessError::Wrap)?;
        let inside = to >= region.base && end <= region.base + region.len;
        if inside {
            Ok(())
        } else {
            Err(AccessError::Bounds)
        }
    }

    fn check_invalidate(&self, stag: Stag) -> Result<(), InvalidateError> {
        let region = self
            .regions
            .iter()
            .find(|region| region.stag == stag)
            .ok_or(InvalidateError::InvalidStag)?;
        region.invalidate
    }
}

/// Receive side of a stream in Full Operation, CRC on.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) receiver: Receiver,
    pub(crate) table: Table,
}

impl Stream {
    /// IRD and ORD 4, no region, no receive.
    pub(crate) fn new() -> Self {
        Self::with_ird(4)
    }

    pub(crate) fn with_ird(ird: u16) -> Self {
        Self::with_config(StreamConfig::new(ird, 4))
    }

    /// With RFC 7306 enabled.
    pub(crate) fn extended() -> Self {
        Self::with_config(StreamConfig {
            extensions: true,
            ..StreamConfig::new(4, 4)
        })
    }

    pub(crate) fn with_config(config: StreamConfig) -> Self {
        Self {
            receiver: Receiver::new(config),
            table: Table::default(),
        }
    }

    /// Adds a region.
    pub(crate) fn region(mut self, region: Region) -> Self {
        self.table.regions.push(region);
        self
    }

    /// A page at TO 0x1000 of [`A`].
    pub(crate) fn page(self) -> Self {
        self.region(Region::new(A, 0x1000, 0x1000))
    }

    /// Posts a receive buffer.
    pub(crate) fn receive(mut self, len: u64) -> Self {
        self.table.receives.push_back(len);
        self
    }

    /// One ULPDU.
    pub(crate) fn ulpdu<'a>(&mut self, ulpdu: &'a [u8]) -> Result<Inbound<'a>, Violation> {
        self.receiver.on_ulpdu(ulpdu, &mut self.table)
    }

    /// One whole FPDU with a good CRC.
    pub(crate) fn fpdu<'a>(&mut self, fpdu: &'a [u8]) -> Result<Inbound<'a>, Violation> {
        self.ulpdu(ulpdu_of(fpdu))
    }

    /// The code for refusing this ULPDU, as `layer/etype/code`.
    pub(crate) fn refusal(&mut self, ulpdu: &[u8]) -> String {
        let violation = self.ulpdu(ulpdu).expect_err("is to be refused");
        let code = violation.terminate().code();
        format!("{:x}/{:x}/{:02x}", code.layer(), code.etype(), code.code())
    }
}

/// The ULPDU of one whole FPDU with a good CRC.
pub(crate) fn ulpdu_of(fpdu: &[u8]) -> &[u8] {
    match next_fpdu(fpdu, true) {
        Ok(Step::Fpdu { ulpdu, consumed }) if consumed == fpdu.len() => ulpdu,
        other => panic!("one whole FPDU, not {other:?}"),
    }
}

/// The FPDU that carries `ulpdu`.
pub(crate) fn sealed(ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0xEE; fpdu_len(ulpdu.len())];
    fpdu[2..2 + ulpdu.len()].copy_from_slice(ulpdu);
    seal_fpdu(&mut fpdu, ulpdu.len(), true);
    fpdu
}

/// The ULPDU of a segment of a message with this `payload`.
pub(crate) fn ulpdu_from(segment: &Segment, payload: &[u8]) -> Vec<u8> {
    let range = segment.payload.start as usize..segment.payload.end as usize;
    [&segment.header, &payload[range]].concat()
}

/// The message as FPDUs.
pub(crate) fn fpdus(mut message: Message, payload: &[u8], mulpdu: usize) -> Vec<Vec<u8>> {
    let mut fpdus = Vec::new();
    while let Some(len) = message.next_len(mulpdu) {
        let segment = message.next_segment(mulpdu).expect("not done");
        let ulpdu = ulpdu_from(&segment, payload);
        assert_eq!(ulpdu.len(), len);
        assert_eq!(segment.last, message.is_done());
        fpdus.push(sealed(&ulpdu));
    }
    fpdus
}

/// The FPDU of `ulpdu` as this framer's next.
pub(crate) fn framed(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0xEE; framer.fpdu_len(ulpdu.len())];
    fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
    framer.seal(&mut fpdu, ulpdu.len());
    fpdu
}

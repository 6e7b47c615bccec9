//! Ethernet headers: parsed, and written for answers.

use std::ops::Deref;

use arrayvec::ArrayVec;

/// Ethertype of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
/// Ethertypes of the C-tag and the S-tag (IEEE 802.1Q).
const TAGS: [u16; 2] = [0x8100, 0x88a8];
/// Two addresses of 6 bytes.
const ADDRESSES: usize = 12;
/// A tag's ethertype and its value.
const TAG: usize = 4;
/// Bytes of the longest header: addresses, two tags, ethertype.
pub(crate) const MAX_HEADER: usize = ADDRESSES + 2 * TAG + 2;

/// A received frame, split into header and packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framed<'a> {
    /// Addresses, up to two tags, ethertype.
    header: &'a [u8],
    pub(crate) ethertype: u16,
    pub(crate) payload: &'a [u8],
}

impl<'a> Framed<'a> {
    /// Returns `None` if the frame ends in its header or has more than two tags.
    pub(crate) fn parse(frame: &'a [u8]) -> Option<Self> {
        let mut at = ADDRESSES;
        while at <= ADDRESSES + 2 * TAG {
            let ethertype = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?);
            if !TAGS.contains(&ethertype) {
                let (header, payload) = frame.split_at_checked(at + 2)?;
                return Some(Self {
                    header,
                    ethertype,
                    payload,
                });
            }
            at += TAG;
        }
        None
    }

    /// Bytes of the header, tags included.
    pub(crate) fn header_len(&self) -> usize {
        self.header.len()
    }

    /// True if the frame is addressed to `station`.
    pub(crate) fn is_for(&self, station: [u8; 6]) -> bool {
        self.header.first_chunk() == Some(&station)
    }

    /// True for a unicast destination (IEEE 802.3 §3.2.3: the first byte's lowest bit).
    pub(crate) fn is_unicast(&self) -> bool {
        self.header.first().is_some_and(|byte| byte & 1 == 0)
    }

    /// True if the frame has a tag.
    pub(crate) fn is_tagged(&self) -> bool {
        self.header.len() > ADDRESSES + 2
    }

    /// True if a tag names a VLAN. VLAN identifier 0 only carries a priority, and the frame counts
    /// as untagged (IEEE 802.1Q §6.9).
    pub(crate) fn is_of_a_vlan(&self) -> bool {
        let tags = self.header.get(ADDRESSES..).unwrap_or_default();
        let names_a_vlan =
            |tag: &[u8]| matches!(tag, [_, _, high, low] if high & 0x0f != 0 || *low != 0);
        tags.chunks_exact(TAG).any(names_a_vlan)
    }
}

/// Ethernet header of all frames of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkHeader(ArrayVec<u8, MAX_HEADER>);

impl LinkHeader {
    /// An untagged header.
    pub(crate) fn new(destination: [u8; 6], source: [u8; 6], ethertype: u16) -> Self {
        let parts = [&destination[..], &source, &ethertype.to_be_bytes()];
        Self(parts.into_iter().flatten().copied().collect())
    }

    /// The header of an answer to `received`, with its tags.
    pub(crate) fn answer(received: &Framed<'_>, source: [u8; 6]) -> Self {
        let sender = received.header.iter().skip(6).take(6);
        let tags_and_type = received.header.iter().skip(ADDRESSES);
        Self(
            sender
                .chain(&source)
                .chain(tags_and_type)
                .copied()
                .take(MAX_HEADER)
                .collect(),
        )
    }
}

impl LinkHeader {
    /// Sets the source address. A header to its own source stays so.
    pub(crate) fn set_source(&mut self, source: [u8; 6]) {
        let (destination, rest) = self.0.split_at_mut(ADDRESSES / 2);
        let Some(place) = rest.first_chunk_mut() else {
            return;
        };
        if destination == place {
            destination.copy_from_slice(&source);
        }
        *place = source;
    }

    /// The destination address.
    pub(crate) fn destination(&self) -> [u8; 6] {
        self.0.first_chunk().copied().unwrap_or_default()
    }

    /// True if the destination is the source.
    pub(crate) fn leads_back(&self) -> bool {
        let (destination, rest) = self.0.split_at(ADDRESSES / 2);
        rest.starts_with(destination)
    }

    /// Sets the destination address. Returns false if it was set already, or if frames go to their
    /// own source.
    pub(crate) fn set_destination(&mut self, destination: [u8; 6]) -> bool {
        let (present, rest) = self.0.split_at_mut(ADDRESSES / 2);
        let other = present != destination && !rest.starts_with(present);
        if other {
            present.copy_from_slice(&destination);
        }
        other
    }
}

impl Deref for LinkHeader {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const TWO_TAGS: [u8; 23] = [
        2, 0, 0, 0, 0, 1,       // destination
        2, 0, 0, 0, 0, 2,       // source
        0x88, 0xa8, 0x00, 0x64, // S-tag, VLAN 100
        0x81, 0x00, 0xe0, 0x07, // C-tag, priority 7, VLAN 7
        0x86, 0xdd, 0x60,       // IPv6 and its first byte
    ];

    #[test]
    fn tags_are_skipped_and_mirrored() {
        let framed = Framed::parse(&TWO_TAGS).unwrap();
        assert_eq!((framed.ethertype, framed.payload), (IPV6, &[0x60][..]));
        assert!(framed.is_unicast());
        assert!(framed.is_for([2, 0, 0, 0, 0, 1]) && !framed.is_for([2, 0, 0, 0, 0, 2]));
        let mut expected = TWO_TAGS[..22].to_vec();
        expected[..6].copy_from_slice(&[2, 0, 0, 0, 0, 2]);
        expected[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
        assert_eq!(*LinkHeader::answer(&framed, [2, 9, 9, 9, 9, 9]), *expected);
    }

    #[test]
    fn vlan_is_named_by_any_tag_whose_identifier_is_not_zero() {
        let of_a_vlan = |outer: [u8; 2], inner: [u8; 2]| {
            let mut frame = TWO_TAGS;
            frame[14..16].copy_from_slice(&outer);
            frame[18..20].copy_from_slice(&inner);
            Framed::parse(&frame).unwrap().is_of_a_vlan()
        };
        assert!(!of_a_vlan([0xf0, 0], [0x10, 0]), "priorities");
        assert!(of_a_vlan([0, 1], [0, 0]) && of_a_vlan([0, 0], [0, 1]));
        assert!(of_a_vlan([1, 0], [0, 0]) && of_a_vlan([0, 0], [0x0f, 0xff]));
        let untagged = [&TWO_TAGS[..12], &[0x86, 0xdd, 0x60]].concat();
        assert!(!Framed::parse(&untagged).unwrap().is_of_a_vlan());
    }

    #[test]
    fn frame_that_ends_in_its_header_is_refused() {
        for len in 0..22 {
            assert_eq!(Framed::parse(&TWO_TAGS[..len]), None, "{len} bytes");
        }
        assert!(Framed::parse(&TWO_TAGS[..22]).is_some());
    }

    #[test]
    fn third_tag_is_refused() {
        let mut frame = TWO_TAGS.to_vec();
        frame.splice(12..12, [0x81, 0, 0, 1]);
        assert_eq!(Framed::parse(&frame), None);
    }

    #[test]
    fn header_to_its_own_source_stays_one() {
        let mut header = LinkHeader::new([1; 6], [1; 6], IPV4);
        header.set_source([3; 6]);
        assert_eq!(*header, [3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 8, 0]);
        let mut header = LinkHeader::new([1; 6], [2; 6], IPV4);
        header.set_source([3; 6]);
        assert_eq!(header[..12], [1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3]);
    }

    #[test]
    fn new_header_is_untagged() {
        let header = LinkHeader::new([1; 6], [2; 6], IPV4);
        assert_eq!(*header, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 8, 0]);
    }
}

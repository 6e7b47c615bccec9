//! A frame that the XDP program steers: Ethernet, IPv4 and TCP headers, and nothing that matters
//! behind them.

use std::net::Ipv4Addr;

use anyhow::Context;

/// The port that all frames come from and go to.
pub(crate) const PORT: u16 = 7000;
/// Bytes of the three headers.
const HEADERS: usize = 14 + 20 + 20;

/// `02:00:00:00:00:01`, for example.
pub(crate) fn parse_mac(text: &str) -> anyhow::Result<[u8; 6]> {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16))
        .collect::<Result<_, _>>()
        .with_context(|| format!("{text} is no Ethernet address"))?;
    bytes
        .try_into()
        .map_err(|_| anyhow::anyhow!("{text} is no Ethernet address"))
}

/// Where the frame's number is: behind the headers.
const NUMBER: std::ops::Range<usize> = HEADERS..HEADERS + 8;

/// The headers of frames of one length. Their checksums are not TCP's, as neither side checks them.
pub(crate) struct Headers {
    bytes: usize,
    headers: [u8; HEADERS],
}

impl Headers {
    /// Of frames of `bytes`, from the first address of each pair to the second.
    pub(crate) fn new(
        bytes: usize,
        macs: ([u8; 6], [u8; 6]),
        addresses: (Ipv4Addr, Ipv4Addr),
    ) -> anyhow::Result<Self> {
        let ip_bytes = bytes.checked_sub(14).filter(|_| bytes >= NUMBER.end);
        let ip_bytes = ip_bytes.and_then(|bytes| u16::try_from(bytes).ok());
        let ip_bytes = ip_bytes
            .with_context(|| format!("no frame has {bytes} bytes; the least are {}", NUMBER.end))?;
        Ok(Self {
            bytes,
            headers: headers(ip_bytes, macs, addresses),
        })
    }

    /// Bytes of a frame.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Writes the headers and a number into a frame.
    pub(crate) fn write(&self, frame: &mut [u8], number: u64) {
        frame[..HEADERS].copy_from_slice(&self.headers);
        frame[NUMBER].copy_from_slice(&number.to_be_bytes());
    }
}

/// The number in a frame; 0 if it is too short to have one.
pub(crate) fn number(frame: &[u8]) -> u64 {
    let bytes = frame.get(NUMBER).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_be_bytes)
}

fn headers(
    ip_bytes: u16,
    (from_mac, to_mac): ([u8; 6], [u8; 6]),
    (from, to): (Ipv4Addr, Ipv4Addr),
) -> [u8; HEADERS] {
    let mut frame = [0; HEADERS];
    frame[..6].copy_from_slice(&to_mac);
    frame[6..12].copy_from_slice(&from_mac);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..16].copy_from_slice(&[0x45, 0]);
    frame[16..18].copy_from_slice(&ip_bytes.to_be_bytes());
    frame[22..24].copy_from_slice(&[64, 6]);
    frame[26..30].copy_from_slice(&from.octets());
    frame[30..34].copy_from_slice(&to.octets());
    // A bridge between the hosts may look at it.
    let checksum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&PORT.to_be_bytes());
    frame[36..38].copy_from_slice(&PORT.to_be_bytes());
    frame[46] = 5 << 4;
    frame[47] = 0x10;
    frame
}

/// The Internet checksum (RFC 1071) of a header of whole words.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

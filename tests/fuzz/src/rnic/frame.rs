//! Frames between the peer and the RNIC: changed, forged, and with their checksums right again.

use std::net::{IpAddr, SocketAddr};

use super::sides::{PEER, RNIC};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const TCP_PROTOCOL: u8 = 6;

/// What happens to a frame of the peer's on its way to the RNIC.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit {
    /// High bits of the operation. 0 is XOR, 1 XOR and right checksums, 2 cut there, 3 lost. 4 is
    /// twice, 5 after the next one, 6 followed by bytes, 7 cut there with right checksums.
    pub(super) kind: u8,
    /// Which byte behind the Ethernet header.
    pub(super) at: u8,
    pub(super) xor: u8,
}

impl Edit {
    /// What arrives now, and what arrives after the next frame.
    pub(super) fn apply(self, mut frame: Vec<u8>) -> (Vec<Vec<u8>>, Option<Vec<u8>>) {
        let at = ETHERNET + usize::from(self.at);
        match self.kind & 7 {
            kind @ (0 | 1) => {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= self.xor;
                }
                if kind == 1 {
                    fix_checksums(&mut frame);
                }
                (vec![frame], None)
            }
            kind @ (2 | 7) => {
                frame.truncate(at);
                if kind == 7 {
                    fix_checksums(&mut frame);
                }
                (vec![frame], None)
            }
            3 => (vec![], None),
            4 => (vec![frame.clone(), frame], None),
            5 => (vec![], Some(frame)),
            _ => {
                frame.extend(std::iter::repeat_n(self.xor, usize::from(self.at)));
                (vec![frame], None)
            }
        }
    }
}

/// The Ethernet header of a frame for the RNIC.
pub(super) fn ethernet(ipv6: bool) -> Vec<u8> {
    let mut frame = [RNIC.mac(), PEER.mac()].concat();
    frame.extend(if ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    frame
}

/// What a segment says in its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) from: SocketAddr,
    pub(super) to: SocketAddr,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
}

impl Segment {
    /// A frame for the RNIC with these options, padded to whole words, and this payload.
    pub(super) fn frame(&self, options: &[u8], payload: &[u8]) -> Vec<u8> {
        let words = options.len().div_ceil(4).min(10);
        let len = TCP + 4 * words + payload.len();
        let mut frame = ethernet(self.to.is_ipv6());
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let [high, low] = u16::try_from(IPV4 + len).unwrap_or(u16::MAX).to_be_bytes();
                frame.extend([0x45, 0, high, low, 0, 0, 0x40, 0, 64, TCP_PROTOCOL, 0, 0]);
                frame.extend(from.octets().iter().chain(&to.octets()));
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let [high, low] = u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
                frame.extend([0x60, 0, 0, 0, high, low, TCP_PROTOCOL, 64]);
                frame.extend(from.octets().iter().chain(&to.octets()));
            }
            _ => unreachable!("both ends have addresses of one family"),
        }
        frame.extend(self.from.port().to_be_bytes());
        frame.extend(self.to.port().to_be_bytes());
        frame.extend(self.seq.to_be_bytes());
        frame.extend(self.ack.to_be_bytes());
        let offset = u8::try_from(5 + words).unwrap_or(15) << 4;
        frame.extend([offset, self.flags]);
        frame.extend(self.window.to_be_bytes());
        frame.extend([0; 4]);
        let options = options.iter().copied().chain(std::iter::repeat(1));
        frame.extend(options.take(4 * words));
        frame.extend_from_slice(payload);
        fix_checksums(&mut frame);
        frame
    }
}

/// Ports, sequence number and acknowledgement number of a frame, if it carries TCP: from, to, the
/// next byte, the other's next.
pub(super) fn numbers(frame: &[u8]) -> Option<(u16, u16, u32, u32)> {
    let (tcp, payload_end) = tcp_of(frame)?;
    let segment = frame.get(tcp..payload_end)?;
    let pair = |at: usize| Some(u16::from_be_bytes(*segment.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_be_bytes(*segment.get(at..)?.first_chunk()?));
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let flags = *segment.get(13)?;
    let bytes = u32::try_from(segment.len().checked_sub(header)?).ok()?;
    let next = word(4)?.wrapping_add(bytes + u32::from(flags & 1) + u32::from(flags >> 1 & 1));
    Some((pair(0)?, pair(2)?, next, word(8)?))
}

/// Where the TCP segment of a frame begins and ends.
fn tcp_of(frame: &[u8]) -> Option<(usize, usize)> {
    let length = |at: usize| {
        Some(usize::from(u16::from_be_bytes(
            *frame.get(at..)?.first_chunk()?,
        )))
    };
    match frame.get(12..14)? {
        [0x08, 0x00] => {
            let header = usize::from(frame.get(ETHERNET)? & 0x0f) * 4;
            let end = ETHERNET + length(ETHERNET + 2)?;
            Some((ETHERNET + header.max(IPV4), end.min(frame.len())))
        }
        [0x86, 0xdd] => {
            let end = ETHERNET + IPV6 + length(ETHERNET + 4)?;
            Some((ETHERNET + IPV6, end.min(frame.len())))
        }
        _ => None,
    }
}

/// Makes the checksums of IPv4 and TCP right, as far as the headers are there.
pub(super) fn fix_checksums(frame: &mut [u8]) {
    let Some((tcp, end)) = tcp_of(frame).filter(|(tcp, end)| tcp + TCP <= *end) else {
        return;
    };
    let is_v4 = frame[ETHERNET] >> 4 == 4;
    let addresses = if is_v4 {
        ETHERNET + 12..ETHERNET + 20
    } else {
        ETHERNET + 8..ETHERNET + 40
    };
    if is_v4 {
        frame[ETHERNET + 10..ETHERNET + 12].fill(0);
        let sum = !folded(sum_of(&frame[ETHERNET..tcp]));
        frame[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum.to_be_bytes());
    }
    frame[tcp + 16..tcp + 18].fill(0);
    let pseudo = sum_of(&frame[addresses]) + u64::from(TCP_PROTOCOL) + (end - tcp) as u64;
    let sum = !folded(pseudo + sum_of(&frame[tcp..end]));
    frame[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
}

fn sum_of(bytes: &[u8]) -> u64 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let sum: u64 = pairs
        .iter()
        .map(|pair| u64::from(u16::from_be_bytes(*pair)))
        .sum();
    sum + rest.first().map_or(0, |last| u64::from(*last) << 8)
}

/// RFC 1071.
fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(u16::MAX)
}

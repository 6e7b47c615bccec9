//! IPv6 extension headers before the TCP header (RFC 8200 §4): skipped where Linux would skip them.
//!
//! A header that cannot be skipped has its packet dropped, without the ICMP message that RFC 8200
//! has for it.

use crate::wire::discard::Discard;

const TCP: u8 = 6;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Maximum number of headers in a packet, as in steer.bpf.c.
const MAX_HEADERS: usize = 8;
/// A fragment header's offset and its flag "more fragments". The two bits between them are reserved
/// (RFC 8200 §4.5).
const OFFSET_AND_MORE: u16 = 0xfff9;
/// Routing headers for mobile hosts, RPL and segment routing: only a kernel that is configured for
/// them can process one.
const CONFIGURED_ROUTING: std::ops::RangeInclusive<u8> = 2..=4;
const PAD1: u8 = 0;
const PADN: u8 = 1;
/// Option with a value of two bytes (RFC 2711 §2.1).
const ROUTER_ALERT: u8 = 5;
/// Action for an unknown option (RFC 8200 §4.2). 0: skip it.
const ACTION: u8 = 0b1100_0000;
/// Maximum number of consecutive padding bytes that alignment to 8 bytes can need.
const MAX_PADDING: usize = 7;
/// Maximum number of options in a header, without padding. RFC 8504 §5.3 allows this limit.
const MAX_OPTIONS: usize = 8;

/// Length in bytes of the extension headers before the TCP segment. `first` is the type of the
/// header that `payload` begins with.
pub(super) fn skip(first: u8, payload: &[u8]) -> Result<usize, Discard> {
    if first == TCP {
        return Ok(0);
    }
    walk(first, payload)
}

/// Length in bytes of the extension headers, if there are any.
#[cold]
fn walk(first: u8, payload: &[u8]) -> Result<usize, Discard> {
    let mut kind = first;
    let mut rest = payload;
    for n in 0..=MAX_HEADERS {
        if kind == TCP {
            return Ok(payload.len() - rest.len());
        }
        if !matches!(kind, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION) {
            return Err(Discard::NotTcp);
        }
        // Hop-by-hop options come first or not at all (RFC 8200 §4.1).
        if n == MAX_HEADERS || (kind == HOP_BY_HOP && n > 0) {
            break;
        }
        let (header, behind) = split(kind, rest).ok_or(Discard::BadIp)?;
        judge(kind, header)?;
        kind = header.first().copied().unwrap_or_default();
        rest = behind;
    }
    Err(Discard::BadExtension)
}

/// Splits `rest` into its first header and the bytes behind it.
fn split(kind: u8, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let units = usize::from(*rest.get(1)?);
    let len = if kind == FRAGMENT { 8 } else { (units + 1) * 8 };
    rest.split_at_checked(len)
}

fn judge(kind: u8, header: &[u8]) -> Result<(), Discard> {
    let Some((&[_, _, third, fourth], options)) = header.first_chunk().zip(header.get(2..)) else {
        return Err(Discard::BadIp);
    };
    let is_part = u16::from_be_bytes([third, fourth]) & OFFSET_AND_MORE != 0;
    match kind {
        ROUTING if fourth != 0 || CONFIGURED_ROUTING.contains(&third) => Err(Discard::SourceRoute),
        FRAGMENT if is_part => Err(Discard::Fragment),
        // A routing header that has arrived, or a fragment that is a whole packet (RFC 6946 §4).
        ROUTING | FRAGMENT => Ok(()),
        _ if are_skippable(kind, options) => Ok(()),
        _ => Err(Discard::BadExtension),
    }
}

/// True if all options may be skipped by a host that does not know them, and all padding is zero.
fn are_skippable(header: u8, options: &[u8]) -> bool {
    let mut rest = options;
    let mut padding = 0;
    let mut count = 0;
    while !rest.is_empty() {
        let Some((kind, value, next)) = option(rest) else {
            return false;
        };
        let alert = header == HOP_BY_HOP && kind == ROUTER_ALERT;
        let sound = if matches!(kind, PAD1 | PADN) {
            padding += rest.len() - next.len();
            padding <= MAX_PADDING && value.iter().all(|byte| *byte == 0)
        } else {
            (padding, count) = (0, count + 1);
            kind & ACTION == 0 && count <= MAX_OPTIONS && (!alert || value.len() == 2)
        };
        if !sound {
            return false;
        }
        rest = next;
    }
    true
}

/// Splits the first option off `rest`: its type, its value, and the bytes behind it.
fn option(rest: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, behind) = rest.split_first()?;
    if kind == PAD1 {
        return Some((kind, &[], behind));
    }
    let (&len, behind) = behind.split_first()?;
    let (value, behind) = behind.split_at_checked(len.into())?;
    Some((kind, value, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of `skip` for these headers with 20 bytes behind them.
    fn skipped(first: u8, headers: &[u8]) -> Result<usize, Discard> {
        skip(first, &[headers, &[0xee; 20]].concat())
    }

    #[test]
    fn headers_that_say_nothing_are_stepped_over() {
        let eight = [
            &[DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(7)[..],
            &[TCP, 0, 1, 4, 0, 0, 0, 0],
        ]
        .concat();
        #[rustfmt::skip]
        let cases: [(u8, &[u8]); 14] = [
            (TCP, &[]),
            (HOP_BY_HOP, &[TCP, 0, 1, 4, 0, 0, 0, 0]),                 // PadN
            (HOP_BY_HOP, &[TCP, 0, 0, 0, 0, 0, 0, 0]),                 // six Pad1
            (HOP_BY_HOP, &[TCP, 0, 5, 2, 0, 0, 1, 0]),                 // router alert, PadN
            // has no meaning in this header
            (DESTINATION, &[TCP, 0, 5, 3, 0, 0, 0, 0]),
            (DESTINATION, &[TCP, 0, 0x1e, 4, 9, 9, 9, 9]),             // unknown, to be skipped
            (DESTINATION, &[TCP, 1, 0x3e, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]),
            // eight
            (DESTINATION, &[TCP, 2, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 1, 4, 0, 0, 0, 0]),
            (ROUTING, &[TCP, 0, 0, 0, 9, 9, 9, 9]),                    // type 0, arrived
            (ROUTING, &[TCP, 2, 253, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]),
            (FRAGMENT, &[TCP, 0, 0, 0, 0, 0, 0, 7]),                   // a whole packet
            (FRAGMENT, &[TCP, 0xff, 0, 6, 0, 0, 0, 7]),                // reserved bits
            (HOP_BY_HOP, &[DESTINATION, 0, 1, 4, 0, 0, 0, 0, ROUTING, 0, 1, 4, 0, 0, 0, 0, FRAGMENT, 0, 0, 0, 0, 0, 0, 0, TCP, 0, 0, 0, 0, 0, 0, 1]),
            (DESTINATION, &eight),
        ];
        for (first, headers) in cases {
            assert_eq!(skipped(first, headers), Ok(headers.len()), "{headers:02x?}");
        }
    }

    #[test]
    fn each_header_that_must_not_be_stepped_over_has_its_cause() {
        let nine = [
            &[DESTINATION, 0, 1, 4, 0, 0, 0, 0].repeat(8)[..],
            &[TCP, 0, 1, 4, 0, 0, 0, 0],
        ]
        .concat();
        #[rustfmt::skip]
        let cases: [(Discard, u8, &[u8]); 25] = [
            (Discard::NotTcp, 17, &[]),
            (Discard::NotTcp, DESTINATION, &[17, 0, 1, 4, 0, 0, 0, 0]),
            // authentication header: for the kernel's IPsec
            (Discard::NotTcp, 51, &[TCP, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            (Discard::NotTcp, 50, &[0; 16]),
            (Discard::SourceRoute, ROUTING, &[TCP, 0, 0, 1, 0, 0, 0, 0]),
            (Discard::SourceRoute, ROUTING, &[TCP, 0, 253, 255, 0, 0, 0, 0]),
            (Discard::SourceRoute, ROUTING, &[TCP, 0, 2, 0, 0, 0, 0, 0]),
            (Discard::SourceRoute, ROUTING, &[TCP, 0, 3, 0, 0, 0, 0, 0]),
            (Discard::SourceRoute, ROUTING, &[TCP, 0, 4, 0, 0, 0, 0, 0]),
            (Discard::Fragment, FRAGMENT, &[TCP, 0, 0, 1, 0, 0, 0, 7]),
            (Discard::Fragment, FRAGMENT, &[TCP, 0, 0, 8, 0, 0, 0, 7]),
            (Discard::Fragment, FRAGMENT, &[TCP, 0, 0x80, 0, 0, 0, 0, 7]),
            (Discard::BadExtension, HOP_BY_HOP, &[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 1, 4, 0, 0, 0, 0]),
            (Discard::BadExtension, DESTINATION, &nine),
            (Discard::BadExtension, HOP_BY_HOP, &[TCP, 0, 0xc2, 4, 0, 1, 0, 0]),    // jumbo payload
            // home address
            (Discard::BadExtension, DESTINATION, &[TCP, 2, 0xc9, 16, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 0]),
            // unknown: discard
            (Discard::BadExtension, DESTINATION, &[TCP, 0, 0x40, 0, 1, 2, 0, 0]),
            // unknown: discard and report
            (Discard::BadExtension, DESTINATION, &[TCP, 0, 0x80, 0, 1, 2, 0, 0]),
            // padding that is not zero
            (Discard::BadExtension, DESTINATION, &[TCP, 0, 1, 4, 0, 0, 0, 1]),
            // more padding than needed
            (Discard::BadExtension, DESTINATION, &[TCP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            // beyond the header
            (Discard::BadExtension, DESTINATION, &[TCP, 0, 1, 5, 0, 0, 0, 0]),
            // ends without a length
            (Discard::BadExtension, DESTINATION, &[TCP, 0, 1, 3, 0, 0, 0, 1]),
            // router alert of three bytes
            (Discard::BadExtension, HOP_BY_HOP, &[TCP, 0, 5, 3, 0, 0, 0, 0]),
            // nine
            (Discard::BadExtension, DESTINATION, &[TCP, 2, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 0x1e, 0, 1, 2, 0, 0]),
            // beyond the packet
            (Discard::BadIp, DESTINATION, &[TCP, 3, 1, 4, 0, 0, 0, 0]),
        ];
        for (discard, first, headers) in cases {
            assert_eq!(skipped(first, headers), Err(discard), "{headers:02x?}");
        }
    }

    #[test]
    fn headers_that_end_early_are_refused_at_every_length() {
        let headers = [
            DESTINATION,
            1,
            0x1e,
            12,
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            10,
            11,
            12,
            TCP,
            0,
            1,
            4,
            0,
            0,
            0,
            0,
        ];
        for len in 0..headers.len() {
            let refused = skip(DESTINATION, &headers[..len]);
            assert_eq!(refused, Err(Discard::BadIp), "{len} bytes");
        }
        assert_eq!(skip(DESTINATION, &headers), Ok(headers.len()));
    }
}

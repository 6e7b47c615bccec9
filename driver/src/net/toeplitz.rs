//! Toeplitz's hash, by which NICs choose the receive queue of a TCP segment.

use std::net::{IpAddr, SocketAddr};

use super::ethtool::Rss;

impl Rss {
    /// The receive queue of TCP segments from one endpoint to another: by their addresses and ports
    /// in this order, as RSS of TCP has it. `None` if the hash function is another one, or the
    /// driver does not report enough.
    pub fn queue_of(&self, from: SocketAddr, to: SocketAddr) -> Option<u32> {
        if !self.toeplitz || self.table.is_empty() {
            return None;
        }
        let hash = toeplitz(&self.key, &input(from, to))?;
        let remainder = usize::try_from(hash).ok()? % self.table.len();
        self.table.get(remainder).copied()
    }
}

/// The bytes that are hashed: both addresses, then both ports.
fn input(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(36);
    for end in [from, to] {
        match end.ip() {
            IpAddr::V4(address) => bytes.extend(address.octets()),
            IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    for end in [from, to] {
        bytes.extend(end.port().to_be_bytes());
    }
    bytes
}

/// For each bit of the input that is set, the 32 bits of the key that begin at its place, added
/// without carry. `None` if the key is too short.
fn toeplitz(key: &[u8], input: &[u8]) -> Option<u32> {
    let mut hash = 0;
    for (place, byte) in input.iter().enumerate() {
        let [a, b, c, d, next] = *key.get(place..)?.first_chunk()?;
        let mut window = u32::from_be_bytes([a, b, c, d]);
        for bit in (0..8).rev() {
            if byte >> bit & 1 == 1 {
                hash ^= window;
            }
            window = window << 1 | u32::from(next >> bit & 1);
        }
    }
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the published verification suite of RSS.
    const KEY: [u8; 40] = [
        0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f,
        0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
        0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
    ];

    #[test]
    fn hash_is_that_of_the_verification_suite() {
        for (from, to, hash) in [
            ("66.9.149.187:2794", "161.142.100.80:1766", 0x51cc_c178),
            ("199.92.111.2:14230", "65.69.140.83:4739", 0xc626_b0ea),
            (
                "[3ffe:2501:200:1fff::7]:2794",
                "[3ffe:2501:200:3::1]:1766",
                0x4020_7d3d,
            ),
        ] {
            let input = input(from.parse().unwrap(), to.parse().unwrap());
            assert_eq!(toeplitz(&KEY, &input), Some(hash), "{from}");
        }
    }

    #[test]
    fn queue_is_what_the_table_has_at_the_remainder() {
        let rss = Rss {
            toeplitz: true,
            table: (0..128).map(|at| at + 1000).collect(),
            key: KEY.to_vec(),
        };
        let (from, to) = (
            "66.9.149.187:2794".parse().unwrap(),
            "161.142.100.80:1766".parse().unwrap(),
        );
        assert_eq!(rss.queue_of(from, to), Some(1000 + 0x78));
        let unlike = |change: fn(&mut Rss)| {
            let mut other = rss.clone();
            change(&mut other);
            other.queue_of(from, to)
        };
        assert_eq!(unlike(|rss| rss.toeplitz = false), None);
        assert_eq!(unlike(|rss| rss.table.clear()), None);
        assert_eq!(unlike(|rss| rss.key.truncate(15)), None, "too short");
    }
}

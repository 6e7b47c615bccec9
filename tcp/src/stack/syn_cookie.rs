//! SYN cookies: answers to SYNs that find the backlog full, without keeping state (RFC 4987 §3.6).
//!
//! Decision record tcp/0008 has the alternatives. The state travels as our initial sequence number,
//! which the peer's ACK returns:
//!
//! ```text
//!  31                            8 7     5 4         1 0
//! +-------------------------------+-------+-----------+----+
//! |      tag over all fields      |  MSS  |  window   |SACK|
//! |                               | index |   scale   |    |
//! +-------------------------------+-------+-----------+----+
//! ```
//!
//! The low byte is masked, so that the numbers of one flow do not look alike. Timestamps need no
//! bit: the ACK itself shows whether they are used (RFC 7323 §3.2), and the tag covers that. There
//! is no room for ECN, which is not used on such a connection.
//!
//! Of the 2^32 numbers 256 are right in each epoch, one for each low byte, and two epochs are
//! valid. A guess succeeds with a probability of 2^-23.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use siphasher::sip::SipHasher24;

use crate::time::Instant;
use crate::wire::flow::Flow;
use crate::wire::inbound::Options;

/// Seconds per epoch. A cookie is valid in its own epoch and the next: for 64 to 128 s.
const EPOCH: u64 = 64;
/// Maximum segment sizes that a cookie can encode; the peer's is rounded down. 88 is below any
/// serious value; 536 is the default (RFC 9293 §3.7.1). The others are IPv6's minimum MTU, tunnels
/// in Ethernet, IPv6 and IPv4 on Ethernet, and both on jumbo frames of 9000 bytes.
const SIZES: [u16; 8] = [88, 536, 1220, 1360, 1440, 1460, 8940, 8960];
/// MSS of a peer whose SYN has no such option (RFC 9293 §3.7.1), for IPv4 and IPv6.
const DEFAULT_MSS: (u16, u16) = (536, 1220);
/// Code for a peer that does not scale windows.
const UNSCALED: u8 = 15;
/// Largest scale (RFC 7323 §2.3).
const MAX_SCALE: u8 = 14;

/// Contents of a SYN that a cookie keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// MSS in bytes: at most the peer's, but never below 88.
    pub(super) mss: u16,
    /// The peer's window scale, if its SYN had the option; at most 14.
    pub(super) wscale: Option<u8>,
    pub(super) sack: bool,
}

impl Opened {
    /// Contents of a SYN's options.
    pub(super) fn of(options: &Options, local: IpAddr) -> Self {
        let mss = options.mss.unwrap_or(match local {
            IpAddr::V4(_) => DEFAULT_MSS.0,
            IpAddr::V6(_) => DEFAULT_MSS.1,
        });
        Self {
            mss,
            wscale: options.shift,
            sack: options.sack_permitted,
        }
    }

    /// The options of such a SYN.
    pub(super) fn options(self, timestamp: Option<(u32, u32)>) -> Options {
        Options {
            mss: Some(self.mss),
            shift: self.wscale,
            sack_permitted: self.sack,
            timestamp,
            ..Options::default()
        }
    }
}

/// Maximum lifetime of a cookie. If none was made within this time, no ACK can return one.
const MEMORY: Duration = Duration::from_secs(128);

/// SYN cookies of one stack, and when the last one was made.
///
/// Every ACK of no flow is checked, without a limit: four hashes cost less than the RST that would
/// refuse it, and an honest client's ACK may be among them. A guess succeeds with a probability of
/// 2^-23, so 20,000 guesses a second make one connection in seven minutes. An attacker can make a
/// connection of its own at any time. Such a connection takes a place in the listener's queue until
/// it is polled, is silent, and is ended like any other silent one.
#[derive(Debug)]
pub(super) struct SynCookies {
    cookies: Cookies,
    /// When the last cookie was made.
    made: Option<Instant>,
}

impl SynCookies {
    /// `secret` is random, never disclosed, and has no other use.
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self {
            cookies: Cookies::new(secret),
            made: None,
        }
    }

    /// Our initial sequence number in answer to a SYN.
    pub(super) fn make(&mut self, peer: &Peer, opened: Opened, now: Instant) -> u32 {
        self.made = Some(now);
        self.cookies.make(peer, opened, now)
    }

    /// The contents of the SYN that `cookie` was made for, if it was made recently.
    pub(super) fn check(&self, peer: &Peer, cookie: u32, now: Instant) -> Option<Opened> {
        self.made.filter(|made| now - *made < MEMORY)?;
        self.cookies.check(peer, cookie, now)
    }
}

/// Encoder and decoder of cookies.
struct Cookies {
    secret: [u8; 16],
}

/// Purposes of the hashes: none serves for another.
#[derive(Hash)]
enum Purpose {
    Mask,
    Tag(u8),
}

/// Values that the peer's SYN and its later ACK have in common.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Peer {
    pub(super) flow: Flow,
    /// Initial sequence number of the peer.
    pub(super) isn: u32,
    /// Both sides use timestamps.
    pub(super) timestamps: bool,
}

impl Cookies {
    fn new(secret: [u8; 16]) -> Self {
        Self { secret }
    }

    /// Our initial sequence number in answer to a SYN.
    fn make(&self, peer: &Peer, opened: Opened, now: Instant) -> u32 {
        self.seal(peer, encode(opened), epoch(now))
    }

    /// The contents of the SYN, if `cookie` (one less than the peer acknowledges) was made for it
    /// recently.
    fn check(&self, peer: &Peer, cookie: u32, now: Instant) -> Option<Opened> {
        let newest = epoch(now);
        let epochs = [Some(newest), newest.checked_sub(1)];
        epochs.into_iter().flatten().find_map(|epoch| {
            let [a, b, c, low] = cookie.to_be_bytes();
            let data = low ^ self.mask(peer, epoch);
            (self.tag(peer, data, epoch) == [a, b, c]).then(|| decode(data))
        })
    }

    fn seal(&self, peer: &Peer, data: u8, epoch: u64) -> u32 {
        let [a, b, c] = self.tag(peer, data, epoch);
        u32::from_be_bytes([a, b, c, data ^ self.mask(peer, epoch)])
    }

    fn tag(&self, peer: &Peer, data: u8, epoch: u64) -> [u8; 3] {
        let [a, b, c, ..] = self.hash(peer, epoch, &Purpose::Tag(data));
        [a, b, c]
    }

    fn mask(&self, peer: &Peer, epoch: u64) -> u8 {
        let [mask, ..] = self.hash(peer, epoch, &Purpose::Mask);
        mask
    }

    fn hash(&self, peer: &Peer, epoch: u64, purpose: &Purpose) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        (peer, epoch, purpose).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    }
}

impl std::fmt::Debug for Cookies {
    /// Does not print the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cookies").finish_non_exhaustive()
    }
}

fn epoch(now: Instant) -> u64 {
    now.since_origin().as_secs() / EPOCH
}

fn encode(opened: Opened) -> u8 {
    let fitting = SIZES.iter().skip(1).filter(|size| **size <= opened.mss);
    let index = fitting.fold(0, |index, _| index + 1);
    let scale = opened.wscale.map_or(UNSCALED, |scale| scale.min(MAX_SCALE));
    index << 5 | scale << 1 | u8::from(opened.sack)
}

fn decode(data: u8) -> Opened {
    let scale = data >> 1 & 15;
    Opened {
        mss: SIZES[usize::from(data >> 5)],
        wscale: (scale != UNSCALED).then_some(scale),
        sack: data & 1 == 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OPENED: Opened = Opened {
        mss: 1460,
        wscale: Some(7),
        sack: true,
    };

    fn peer(port: u16) -> Peer {
        let endpoint = |text: &str| text.parse::<std::net::SocketAddr>().unwrap().into();
        Peer {
            flow: Flow {
                local: endpoint("10.0.0.1:7000"),
                remote: endpoint(&format!("10.0.0.2:{port}")),
            },
            isn: 0x1234_5678,
            timestamps: true,
        }
    }

    fn cookies() -> Cookies {
        Cookies::new([42; 16])
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn every_byte_of_data_is_a_statement_of_its_own() {
        for data in 0..=u8::MAX {
            assert_eq!(encode(decode(data)), data);
        }
    }

    #[test]
    fn sizes_are_rounded_down_and_scales_kept() {
        let kept = |mss, wscale| {
            let opened = Opened {
                mss,
                wscale,
                sack: false,
            };
            let kept = decode(encode(opened));
            (kept.mss, kept.wscale)
        };
        assert_eq!(kept(0, None), (88, None));
        assert_eq!(kept(535, Some(0)), (88, Some(0)));
        assert_eq!(kept(536, Some(14)), (536, Some(14)));
        assert_eq!(kept(1459, Some(15)), (1440, Some(14)));
        assert_eq!(kept(u16::MAX, Some(255)), (8960, Some(14)));
    }

    #[test]
    fn cookie_is_good_for_64_to_128_seconds() {
        let cookies = cookies();
        for (made, last) in [(0, 127), (63, 127), (64, 191), (100, 191)] {
            let cookie = cookies.make(&peer(1), OPENED, at(made));
            assert_eq!(cookies.check(&peer(1), cookie, at(made)), Some(OPENED));
            assert_eq!(cookies.check(&peer(1), cookie, at(last)), Some(OPENED));
            assert_eq!(cookies.check(&peer(1), cookie, at(last + 1)), None);
        }
        let later = cookies.make(&peer(1), OPENED, at(64));
        assert_eq!(cookies.check(&peer(1), later, at(63)), None, "not yet made");
    }

    #[test]
    fn cookie_is_good_for_its_peer_only() {
        let cookie = cookies().make(&peer(1), OPENED, at(0));
        let turned = Flow {
            local: peer(1).flow.remote,
            remote: peer(1).flow.local,
        };
        let others = [
            peer(2),
            Peer {
                isn: 0x1234_5679,
                ..peer(1)
            },
            Peer {
                timestamps: false,
                ..peer(1)
            },
            Peer {
                flow: turned,
                ..peer(1)
            },
        ];
        for other in others {
            assert_eq!(cookies().check(&other, cookie, at(0)), None, "{other:?}");
        }
        assert_eq!(Cookies::new([43; 16]).check(&peer(1), cookie, at(0)), None);
    }

    #[test]
    fn changed_bit_is_noticed_wherever_it_is() {
        let cookie = cookies().make(&peer(1), OPENED, at(0));
        for bit in 0..32 {
            let forged = cookie ^ 1 << bit;
            assert_eq!(cookies().check(&peer(1), forged, at(0)), None, "bit {bit}");
        }
    }

    /// The low byte of one cookie reveals nothing about the next flow's.
    #[test]
    #[cfg_attr(miri, ignore = "needs minutes, and is arithmetic")]
    fn same_data_look_different_for_each_flow_and_epoch() {
        let low = |port, seconds| cookies().make(&peer(port), OPENED, at(seconds)) & 255;
        let mut seen = [false; 256];
        for port in 0..2000 {
            seen[low(port, 0) as usize] = true;
        }
        assert!(seen.iter().all(|seen| *seen));
        assert!((0..100).any(|epoch| low(1, epoch * 64) != low(1, 0)));
    }

    /// Odds of a guess: for each low byte, one of the 2^24 tags above it is right.
    #[test]
    #[cfg_attr(miri, ignore = "needs hours, and is arithmetic")]
    fn one_number_is_right_for_each_low_byte() {
        let cookies = cookies();
        let (peer, epoch) = (peer(1), epoch(at(1000)));
        for data in 0..=u8::MAX {
            let right = cookies.seal(&peer, data, epoch);
            assert_eq!(cookies.check(&peer, right, at(1000)), Some(decode(data)));
            let others = (1..1000_u32).map(|step| right.wrapping_add(step << 8));
            let taken = others.filter(|it| cookies.check(&peer, *it, at(1000)).is_some());
            assert_eq!(
                taken.count(),
                0,
                "0.06 are to be expected, in the epoch before"
            );
        }
        let mut right: Vec<u8> = (0..=u8::MAX)
            .map(|data| cookies.seal(&peer, data, epoch).to_be_bytes()[3])
            .collect();
        right.sort_unstable();
        assert!(right.into_iter().eq(0..=u8::MAX), "each low byte once");
    }

    #[test]
    fn guesses_fail() {
        const GUESSES: u32 = if cfg!(miri) { 200 } else { 200_000 };
        let cookies = cookies();
        let guesses = (0..GUESSES).map(|n| n.wrapping_mul(2_654_435_761));
        let right = guesses
            .filter(|guess| cookies.check(&peer(1), *guess, at(1000)).is_some())
            .count();
        assert_eq!(right, 0, "0.02 are to be expected");
    }

    proptest! {
        #[test]
        fn what_a_cookie_keeps_comes_back(
            port: u16, isn: u32, timestamps: bool, data: u8, secret: [u8; 16], made in 0..u64::MAX / 2_000_000, age in 0..64_u64,
        ) {
            let cookies = Cookies::new(secret);
            let peer = Peer { isn, timestamps, ..peer(port) };
            let opened = decode(data);
            let cookie = cookies.make(&peer, opened, at(made));
            prop_assert_eq!(cookies.check(&peer, cookie, at(made + age)), Some(opened));
        }

        #[test]
        fn no_input_panics(cookie: u32, mss: u16, wscale: Option<u8>, sack: bool, now: std::time::Duration) {
            let now = Instant::ORIGIN + now;
            cookies().check(&peer(1), cookie, now);
            let opened = Opened { mss, wscale, sack };
            let cookie = cookies().make(&peer(1), opened, now);
            prop_assert!(cookies().check(&peer(1), cookie, now).is_some());
        }
    }
}

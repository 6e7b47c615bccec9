//! Keys of a stack's hashes. An attacker who knows one can predict sequence numbers, timestamps or
//! cookies (RFC 6528 §3).

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use siphasher::sip::SipHasher24;

/// 128 bits, the key size of `SipHash`.
pub(super) type Key = [u8; 16];

/// One independent key for each purpose.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    /// Of initial sequence numbers.
    pub(super) isns: Key,
    /// Of the offsets of timestamps.
    pub(super) stamps: Key,
    /// Of SYN cookies.
    pub(super) cookies: Key,
}

impl Keys {
    /// Random keys, or keys derived from `seed`.
    pub(super) fn new(seed: Option<u64>) -> Self {
        let key = |purpose| seed.map_or_else(draw, |seed| expand(seed, purpose));
        Self {
            isns: key(0),
            stamps: key(1),
            cookies: key(2),
        }
    }
}

/// 128 random bits from the kernel. If the kernel refuses, from the standard library's hashes,
/// whose keys are random.
fn draw() -> Key {
    let mut key = [0; 16];
    if getrandom::fill(&mut key).is_err() {
        key = halves(|half| RandomState::new().hash_one(half));
    }
    key
}

fn expand(seed: u64, purpose: u8) -> Key {
    halves(|half| {
        let mut hasher = SipHasher24::new_with_keys(seed, 0);
        (purpose, half).hash(&mut hasher);
        hasher.finish()
    })
}

fn halves(half: impl Fn(u8) -> u64) -> Key {
    let both = u128::from(half(0)) << 64 | u128::from(half(1));
    both.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(keys: &Keys) -> [u128; 3] {
        [keys.isns, keys.stamps, keys.cookies].map(u128::from_be_bytes)
    }

    /// Number of distinct halves of some keys: all differ if each key has 128 bits of its own.
    fn different_halves(keys: impl IntoIterator<Item = u128>) -> usize {
        let mut halves: Vec<u128> = keys
            .into_iter()
            .flat_map(|key| [key >> 64, key & u128::from(u64::MAX)])
            .collect();
        halves.sort_unstable();
        halves.dedup();
        halves.len()
    }

    #[test]
    fn each_bit_of_each_key_is_drawn() {
        let drawn: Vec<[u128; 3]> = (0..200).map(|_| all(&Keys::new(None))).collect();
        for purpose in 0..3 {
            let keys = || drawn.iter().map(|keys| keys[purpose]);
            assert_eq!(keys().fold(0, |or, key| or | key), u128::MAX, "{purpose}");
            assert_eq!(keys().fold(u128::MAX, |and, key| and & key), 0, "{purpose}");
        }
        assert_eq!(different_halves(drawn.into_iter().flatten()), 1200);
    }

    #[test]
    fn seed_is_expanded_to_the_whole_width() {
        let seeded: Vec<[u128; 3]> = (0..200).map(|seed| all(&Keys::new(Some(seed)))).collect();
        assert_eq!(all(&Keys::new(Some(7))), seeded[7]);
        assert_eq!(different_halves(seeded.into_iter().flatten()), 1200);
    }
}

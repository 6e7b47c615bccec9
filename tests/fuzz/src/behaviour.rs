//! Rough behaviour of a target under an input: enough to keep inputs that do something new.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Equal for inputs that did about the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Behaviour(u64);

impl Behaviour {
    /// Of a text with numbers, which count by their length only, and a set of words.
    pub(crate) fn of(text: &str, words: &BTreeSet<String>) -> Self {
        let mut hasher = DefaultHasher::new();
        for number in text
            .split(|c: char| !c.is_ascii_digit())
            .filter(|number| !number.is_empty())
        {
            let value: u64 = number.parse().unwrap_or(u64::MAX);
            // 0, 1, 2 to 3, 4 to 15, and so on.
            hasher.write_u32((u64::BITS - value.leading_zeros()).div_ceil(2));
        }
        words.hash(&mut hasher);
        Self(hasher.finish())
    }
}

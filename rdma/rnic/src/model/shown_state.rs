//! Published state: counters and levels of an engine as words, for other processes.

use xwarp_driver::{IoCounters, QueueLevels};
use xwarp_tcp::StackCounters;

use super::{EngineCounters, RnicCounters};

/// The groups of names, in the order of their words.
const GROUPS: [&[&str]; 4] = [
    QueueLevels::NAMES,
    IoCounters::NAMES,
    StackCounters::NAMES,
    EngineCounters::NAMES,
];

/// Meaning of the words of an engine's state.
#[derive(Debug)]
pub struct ShownState;

impl ShownState {
    /// Key of the names and their order: a version with different names has a different key.
    pub const KEY: u64 = key(&GROUPS);
    /// Number of levels, which rise and fall and come first. All further values only rise.
    pub const LEVELS: usize = QueueLevels::NAMES.len();

    /// The name of each word.
    pub fn names() -> impl Iterator<Item = &'static str> {
        GROUPS.into_iter().flatten().copied()
    }

    /// The words of a state.
    pub fn words(levels: &QueueLevels, counters: &RnicCounters) -> Vec<u64> {
        let RnicCounters { io, tcp, rdma } = counters;
        let levels = levels.values();
        [
            &levels[..],
            &io.values()[..],
            &tcp.values()[..],
            &rdma.values()[..],
        ]
        .concat()
    }
}

/// The FNV-1a hash of all names, each with a terminator that no name contains.
const fn key(groups: &[&[&str]]) -> u64 {
    let mut hash = FNV_OFFSET;
    let mut group = 0;
    while group < groups.len() {
        let mut name = 0;
        while name < groups[group].len() {
            hash = with_name(hash, groups[group][name].as_bytes());
            name += 1;
        }
        group += 1;
    }
    hash
}

const fn with_name(mut hash: u64, name: &[u8]) -> u64 {
    let mut at = 0;
    while at < name.len() {
        hash = with_byte(hash, name[at]);
        at += 1;
    }
    with_byte(hash, END)
}

const fn with_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(FNV_PRIME)
}

/// The constants of the hash for 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// Terminator of a name.
const END: u8 = 0;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_word_has_a_name_of_its_own() {
        let words = ShownState::words(&QueueLevels::default(), &RnicCounters::default());
        let names: Vec<_> = ShownState::names().collect();
        assert_eq!(words.len(), names.len());
        let different: HashSet<_> = names.iter().collect();
        assert_eq!(different.len(), names.len());
    }

    #[test]
    fn words_are_where_their_names_are() {
        let mut counters = RnicCounters::default();
        counters.io.rx_frames = 3;
        counters.tcp.drop_no_tx_frame = 5;
        counters.rdma.terminates_in = 7;
        let words = ShownState::words(&QueueLevels::default(), &counters);
        let found: Vec<_> = ShownState::names()
            .zip(words)
            .filter(|(_, word)| *word > 0)
            .collect();
        let expected = [
            ("rx_frames", 3),
            ("drop_no_tx_frame", 5),
            ("terminates_in", 7),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn other_names_have_another_key() {
        let keys = [
            key(&[&["a", "b"]]),
            key(&[&["b", "a"]]),
            key(&[&["ab"]]),
            key(&[&["a", "b", "c"]]),
        ];
        let different: HashSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(key(&[&["a"], &["b"]]), keys[0], "groups do not matter");
    }
}

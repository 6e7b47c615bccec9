//! Readings of the state that the engines of an interface publish, by name.

use anyhow::ensure;
use xwarp_driver::attach::{self, AttachError, Shown};
use xwarp_driver::net::Interface;
use xwarp_rnic::model::ShownState;

/// A name and its value.
pub(super) type Named = (&'static str, u64);

/// State of one queue's engine.
pub(super) struct Reading {
    pub(super) queue: u32,
    /// Process of the RNIC.
    pub(super) process: u32,
    /// Values that rise and fall.
    pub(super) levels: Vec<Named>,
    /// Values that only rise.
    pub(super) counters: Vec<Named>,
    /// Counters of the XDP program's verdicts on frames, summed over all queues.
    pub(super) verdicts: Vec<Named>,
}

/// Engines of an interface; none without an RNIC.
pub(super) fn of(interface: &Interface) -> anyhow::Result<Vec<Reading>> {
    let shown = match attach::shown(interface.index) {
        Err(AttachError::NotAttached(_)) => Vec::new(),
        shown => shown?,
    };
    (shown.into_iter())
        .map(|it| Reading::new(&interface.name, it))
        .collect()
}

impl Reading {
    fn new(dev: &str, shown: Shown) -> anyhow::Result<Self> {
        ensure!(
            shown.key == ShownState::KEY,
            "the RNIC on {dev} is of another version of xwarp: ask with the `xwarp` that process {} belongs to",
            shown.process
        );
        let mut levels: Vec<_> = ShownState::names().zip(shown.words).collect();
        let counters = levels.split_off(ShownState::LEVELS.min(levels.len()));
        let verdicts = shown.verdicts.iter();
        Ok(Self {
            queue: shown.queue,
            process: shown.process,
            levels,
            counters,
            verdicts: verdicts.map(|(it, frames)| (it.name(), frames)).collect(),
        })
    }

    /// The value of this name.
    pub(super) fn value(&self, name: &str) -> u64 {
        let all = [&self.levels, &self.counters, &self.verdicts];
        let mut all = all.into_iter().flatten();
        all.find(|(found, _)| *found == name)
            .map_or(0, |(_, value)| *value)
    }

    /// Counters of everything that was dropped or refused.
    pub(super) fn drops(&self) -> impl Iterator<Item = Named> {
        let drops = (self.counters.iter()).filter(|(name, _)| name.starts_with("drop_"));
        drops.copied()
    }
}

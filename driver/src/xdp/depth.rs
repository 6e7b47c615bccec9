//! Fill depth: the number of chunks that the kernel has to receive into.
//!
//! The kernel fills chunks in the order in which it got them, so with many chunks each frame lies
//! outside all caches. At first the kernel gets 320: one for each of the 256 segments that a
//! connection may have in flight, and a batch of 64. After a burst that fills a quarter of them it
//! gets four times as many, and half as many again after some time without a burst. The end of a
//! sudden burst may be lost once.

/// A burst that fills one in `LARGE` of the chunks or more makes their number grow.
const LARGE: usize = 4;
/// Factor by which the number of chunks grows.
const GROWTH: usize = 4;
/// A burst that fills less than one in `SMALL` of the chunks is small: fewer would do.
const SMALL: usize = 16;
/// Small bursts must fill this many times the number of chunks before it is halved.
const QUIET_ROUNDS: usize = 4;

/// The kernel fills chunks in the order in which it was given them. With few of them, all that is
/// written and read is still in the processors' caches: a frame comes and goes several hundred
/// nanoseconds sooner. Many are for bursts that come faster than they are taken, whose end is lost
/// otherwise. So there are few until bursts come, and few again when none have come for long.
pub(super) struct Depth {
    least: usize,
    most: usize,
    now: usize,
    /// Chunks of the burst that is being taken.
    burst: usize,
    /// Chunks filled since the last burst that was not small.
    quiet: usize,
}

impl Depth {
    /// Between `least` and `most` chunks, which may be fewer than `least`.
    pub(super) fn new(least: usize, most: usize) -> Self {
        let least = least.min(most);
        Self {
            least,
            most,
            now: least,
            burst: 0,
            quiet: 0,
        }
    }

    /// Chunks that the kernel is to have.
    pub(super) fn chunks(&self) -> usize {
        self.now
    }

    /// Records that `chunks` filled chunks were taken. `all` means that the ring is empty now.
    pub(super) fn taken(&mut self, chunks: usize, all: bool) {
        if chunks == 0 && self.burst == 0 {
            return;
        }
        self.burst += chunks;
        self.quiet += chunks;
        if self.burst * LARGE >= self.now {
            self.now = (self.now * GROWTH).min(self.most);
        }
        if self.burst * SMALL >= self.now {
            self.quiet = 0;
        } else if self.quiet >= self.now * QUIET_ROUNDS {
            self.now = (self.now / 2).max(self.least);
            self.quiet = 0;
        }
        if all {
            self.burst = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_come_one_by_one_need_few_chunks() {
        let mut depth = Depth::new(192, 2048);
        for _ in 0..if cfg!(miri) { 5000 } else { 100_000 } {
            depth.taken(1, true);
            depth.taken(0, true);
            assert_eq!(depth.chunks(), 192);
        }
    }

    #[test]
    fn bursts_get_more_however_they_are_taken() {
        for each in [1, 16, 48] {
            let mut depth = Depth::new(192, 2048);
            for _ in 0..47 / each {
                depth.taken(each, false);
            }
            assert_eq!(depth.chunks(), 192);
            depth.taken(each.max(47 % each), false);
            assert_eq!(depth.chunks(), 768, "48 in pieces of {each}");
        }
    }

    #[test]
    fn depth_never_leaves_its_limits() {
        let mut depth = Depth::new(192, 100);
        assert_eq!(depth.chunks(), 100);
        depth.taken(5000, false);
        assert_eq!(depth.chunks(), 100);
        depth.taken(5000, true);
        for _ in 0..5000 {
            depth.taken(1, true);
        }
        assert_eq!(depth.chunks(), 100);
    }

    #[test]
    fn what_bursts_needed_is_kept_while_they_come_and_given_up_when_they_do_not() {
        let mut depth = Depth::new(192, 2048);
        for _ in 0..3 {
            depth.taken(600, true);
        }
        assert_eq!(depth.chunks(), 2048);
        for _ in 0..10_000 {
            depth.taken(100, true);
            depth.taken(128, true);
        }
        assert_eq!(depth.chunks(), 2048, "each second burst needs as many");
        let mut frames = 0;
        while depth.chunks() > 192 {
            depth.taken(1, true);
            frames += 1;
        }
        assert!((8192..20_000).contains(&frames), "{frames}");
    }
}

//! Windowed maximum: the greatest recent value, in constant space.

/// Running maximum over a window of time, after K. Nichols' filter in the BBR draft
/// (draft-cardwell-iccrg-bbr-congestion-control-00 §4.1.1.3). It keeps the three best values of the
/// window, each later than the one before. When the best expires, the next takes its place. For a
/// minimum, use [`std::cmp::Reverse`].
///
/// Time is any number that never goes back: microseconds, round trips.
#[derive(Clone, Debug)]
pub(crate) struct WindowedMax<T> {
    window: u64,
    /// Best, second and third value, each with its time. All equal at first.
    best: Option<[(T, u64); 3]>,
}

impl<T: Copy + Ord> WindowedMax<T> {
    pub(crate) fn new(window: u64) -> Self {
        Self { window, best: None }
    }

    /// Greatest value in the window, as of the last update.
    pub(crate) fn best(&self) -> Option<T> {
        self.best.map(|[(value, _), ..]| value)
    }

    pub(crate) fn update(&mut self, value: T, time: u64) {
        let new = (value, time);
        let Some(best) = &mut self.best else {
            self.best = Some([new; 3]);
            return;
        };
        if value >= best[0].0 || time.saturating_sub(best[2].1) > self.window {
            *best = [new; 3];
            return;
        }
        if value >= best[1].0 {
            best[1] = new;
            best[2] = new;
        } else if value >= best[2].0 {
            best[2] = new;
        }
        let age = time.saturating_sub(best[0].1);
        if age > self.window {
            *best = [best[1], best[2], new];
            if time.saturating_sub(best[0].1) > self.window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].1 == best[0].1 && age > self.window / 4 {
            best[1] = new;
            best[2] = new;
        } else if best[2].1 == best[1].1 && age > self.window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn best_is_replaced_when_it_is_too_old() {
        let mut max = WindowedMax::new(10);
        max.update(9, 0);
        max.update(5, 4);
        max.update(7, 8);
        assert_eq!(max.best(), Some(9));
        max.update(1, 11);
        assert_eq!(max.best(), Some(7));
        max.update(8, 12);
        assert_eq!(max.best(), Some(8));
        max.update(1, 1000);
        assert_eq!(max.best(), Some(1));
    }

    proptest! {
        /// Three entries cannot give the exact maximum. But their result was seen in the window and
        /// is no less than the newest value.
        #[test]
        fn maximum_is_a_value_of_the_window(steps in prop::collection::vec((0u32..50, 0u64..6), 1..200)) {
            let mut max = WindowedMax::new(20);
            let (mut time, mut seen) = (0, Vec::new());
            for (value, gap) in steps {
                time += gap;
                seen.push((value, time));
                max.update(value, time);
                let best = max.best().unwrap();
                prop_assert!(best >= value);
                prop_assert!(seen.iter().any(|&(v, t)| v == best && time - t <= 20));
            }
        }
    }
}

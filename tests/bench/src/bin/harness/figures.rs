//! Figures of several rounds: medians, spreads, and how tables print them.

use std::fmt;

/// What one round measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) figure: f64,
    /// Processor seconds of both ends for a unit of what was carried.
    pub(crate) cost: Option<f64>,
    /// Frames that were dropped on the way.
    pub(crate) dropped: Option<f64>,
}

impl Sample {
    pub(crate) fn of(figure: f64) -> Self {
        Self {
            figure,
            ..Self::default()
        }
    }

    pub(crate) fn with_cost(figure: f64, cost: f64) -> Self {
        Self {
            cost: Some(cost),
            ..Self::of(figure)
        }
    }
}

/// The samples of one contender.
#[derive(Default)]
pub(crate) struct Samples(Vec<Sample>);

impl Samples {
    pub(crate) fn figures(&self) -> Figures {
        Figures::new(self.0.iter().map(|it| it.figure))
    }

    pub(crate) fn costs(&self) -> Figures {
        Figures::new(self.0.iter().filter_map(|it| it.cost))
    }

    /// The most frames that were dropped in a round.
    pub(crate) fn dropped(&self) -> f64 {
        let dropped = self.0.iter().filter_map(|it| it.dropped);
        dropped.fold(0.0, f64::max)
    }
}

/// Rounds of all contenders in turn, so that a busy minute hits each of them.
pub(crate) fn take_turns<const N: usize>(
    rounds: usize,
    contenders: [&dyn Fn() -> Sample; N],
) -> [Samples; N] {
    let mut all = [(); N].map(|()| Samples::default());
    for _ in 0..rounds {
        for (contender, samples) in contenders.iter().zip(&mut all) {
            samples.0.push(contender());
        }
    }
    all
}

/// Figures in order, at least one.
pub(crate) struct Figures(Vec<f64>);

impl Figures {
    fn new(figures: impl Iterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.collect();
        assert!(!figures.is_empty(), "a contender was not measured");
        figures.sort_by(f64::total_cmp);
        Self(figures)
    }

    /// The middle one; of an even number the less of both in the middle.
    pub(crate) fn median(&self) -> f64 {
        self.0[(self.0.len() - 1) / 2]
    }

    pub(crate) fn least(&self) -> f64 {
        self.0[0]
    }

    pub(crate) fn most(&self) -> f64 {
        self.0[self.0.len() - 1]
    }
}

/// Median, least and most.
impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, least, most] = [self.median(), self.least(), self.most()].map(general);
        f.pad(&format!("{median} ({least}-{most})"))
    }
}

/// A number with three significant digits, as `%.3g` of C prints it.
pub(crate) fn general(number: f64) -> String {
    let scientific = format!("{number:.2e}");
    let parts = scientific.split_once('e');
    let parts = parts.and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)));
    let Some((digits, exponent)) = parts else {
        return scientific;
    };
    if (-4..3).contains(&exponent) {
        let decimals = usize::try_from(2 - exponent).unwrap_or(0);
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let exponent = exponent.unsigned_abs();
    format!("{}e{sign}{exponent:02}", without_zeros(digits))
}

/// A decimal number without the zeros at the end of its fraction.
fn without_zeros(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(figures: &[f64]) -> Figures {
        Figures::new(figures.iter().copied())
    }

    #[test]
    fn median_is_the_middle_figure() {
        assert!((figures(&[9.0, 1.0, 5.0, 3.0, 7.0]).median() - 5.0).abs() < f64::EPSILON);
        assert!((figures(&[4.0, 2.0]).median() - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn cell_has_median_least_and_most() {
        let cell = figures(&[8.54, 8.0, 8.34]);
        assert_eq!(cell.to_string(), "8.34 (8-8.54)");
        assert_eq!(format!("{cell:>15}"), "  8.34 (8-8.54)");
    }

    #[test]
    fn number_has_three_significant_digits() {
        for (number, text) in [
            (0.0, "0"),
            (0.077_36, "0.0774"),
            (0.000_012_3, "1.23e-05"),
            (0.773_4, "0.773"),
            (3.0, "3"),
            (2.996, "3"),
            (9.996, "10"),
            (44.52, "44.5"),
            (961.4, "961"),
            (999.7, "1e+03"),
            (4003.0, "4e+03"),
            (1230.0, "1.23e+03"),
        ] {
            assert_eq!(general(number), text, "{number}");
        }
    }

    #[test]
    fn contenders_take_turns() {
        let order = std::cell::RefCell::new(Vec::new());
        let [first, second] = take_turns(
            2,
            [
                &|| {
                    order.borrow_mut().push('a');
                    Sample::of(1.0)
                },
                &|| {
                    order.borrow_mut().push('b');
                    Sample::with_cost(2.0, 0.5)
                },
            ],
        );
        assert_eq!(order.into_inner(), ['a', 'b', 'a', 'b']);
        assert!((first.figures().most() - 1.0).abs() < f64::EPSILON);
        assert!((second.costs().median() - 0.5).abs() < f64::EPSILON);
    }
}

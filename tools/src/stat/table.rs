//! Tables and JSON of readings.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::reading::{Named, Reading};
use crate::output::{OutputError, print_line};

/// Tables between two headings.
pub(super) const HEADING_EVERY: usize = 20;

/// Contents of a column, from two readings.
enum Column {
    /// Rise of a counter per second.
    Rate(&'static str),
    /// Rise of a counter.
    Rise(&'static str),
    /// Value of a level.
    Level(&'static str),
    /// Rise of all drops together.
    Drops,
}

/// Headings and contents of the columns after the queue's.
const COLUMNS: [(&str, Column); 14] = [
    ("rx/s", Column::Rate("rx_frames")),
    ("tx/s", Column::Rate("tx_frames")),
    ("rxB/s", Column::Rate("rx_bytes")),
    ("txB/s", Column::Rate("tx_bytes")),
    ("fill", Column::Level("fill_ring")),
    ("rx", Column::Level("rx_ring")),
    ("tx", Column::Level("tx_ring")),
    ("cmpl", Column::Level("completion_ring")),
    ("held", Column::Level("rx_chunks_held")),
    ("free", Column::Level("tx_frames_free")),
    ("flight", Column::Level("tx_frames_in_flight")),
    ("kept", Column::Level("tx_frames_kept")),
    ("resent", Column::Rise("retransmissions")),
    ("drops", Column::Drops),
];

impl Column {
    fn between(&self, earlier: &Reading, now: &Reading, time: Duration) -> u64 {
        let rise = |name| now.value(name).saturating_sub(earlier.value(name));
        match self {
            Self::Rate(name) => per_second(rise(name), time),
            Self::Rise(name) => rise(name),
            Self::Level(name) => now.value(name),
            Self::Drops => risen_drops(earlier, now).map(|(_, rise)| rise).sum(),
        }
    }
}

/// Rate per second of `count` events in `time`.
pub(super) fn per_second(count: u64, time: Duration) -> u64 {
    let nanos = time.as_nanos().max(1);
    u64::try_from(u128::from(count) * 1_000_000_000 / nanos).unwrap_or(u64::MAX)
}

/// Drops since an earlier reading.
fn risen_drops(earlier: &Reading, now: &Reading) -> impl Iterator<Item = Named> {
    now.drops()
        .map(|(name, value)| (name, value.saturating_sub(earlier.value(name))))
        .filter(|(_, rise)| *rise > 0)
}

/// Prints a line for each queue, and one for each kind of drop since the earlier reading.
pub(super) fn print_change(
    earlier: &[Reading],
    now: &[Reading],
    time: Duration,
    tables: usize,
) -> Result<(), OutputError> {
    if tables.is_multiple_of(HEADING_EVERY) {
        print_line!("{}", heading())?;
    }
    for now in now {
        let Some(earlier) = earlier.iter().find(|it| it.queue == now.queue) else {
            continue;
        };
        print_line!("{}", line(earlier, now, time))?;
        for (name, rise) in risen_drops(earlier, now) {
            print_line!("      {name} +{rise}")?;
        }
    }
    Ok(())
}

fn heading() -> String {
    let columns = COLUMNS.iter().map(|(name, _)| cell(name));
    "queue".to_owned() + &columns.collect::<String>()
}

fn line(earlier: &Reading, now: &Reading, time: Duration) -> String {
    let values = COLUMNS
        .iter()
        .map(|(_, column)| cell(&short(column.between(earlier, now, time))));
    format!("{:>5}", now.queue) + &values.collect::<String>()
}

/// Characters per cell.
const WIDTH: usize = 7;

pub(super) fn cell(text: &str) -> String {
    format!(" {text:>WIDTH$}")
}

/// A number that fits into a cell: above 9,999,999 with its first digits and a decimal unit.
pub(super) fn short(number: u64) -> String {
    let units = [("M", 6_u32), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    let fits = |power: u32| number / 10_u64.pow(power) < 10_000;
    match units.into_iter().find(|(_, power)| fits(*power)) {
        Some((unit, power)) if number > 9_999_999 => {
            let tenths = number / 10_u64.pow(power - 1);
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
        _ => number.to_string(),
    }
}

/// Prints every name with its value, one per line.
pub(super) fn print_all(readings: &[Reading]) -> Result<(), OutputError> {
    for reading in readings {
        print_line!("queue {}, process {}", reading.queue, reading.process)?;
        for group in [&reading.levels, &reading.counters, &reading.verdicts] {
            for (name, value) in group {
                print_line!("{name:>24} {value:>12}")?;
            }
        }
    }
    Ok(())
}

/// All readings, with names and values as members.
pub(super) fn json(dev: &str, readings: &[Reading]) -> Value {
    let queues: Vec<Value> = (readings.iter())
        .map(|reading| {
            json!({
                "queue": reading.queue,
                "process": reading.process,
                "levels": members(&reading.levels),
                "counters": members(&reading.counters),
                "verdicts": members(&reading.verdicts),
            })
        })
        .collect();
    json!({ "dev": dev, "queues": queues })
}

fn members(group: &[Named]) -> Map<String, Value> {
    let each = group.iter();
    each.map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(received: u64, dropped: u64, free: u64) -> Reading {
        Reading {
            queue: 3,
            process: 1,
            levels: vec![("tx_frames_free", free)],
            counters: vec![
                ("rx_frames", received),
                ("drop_vlan", dropped),
                ("drop_fragment", 9),
            ],
            verdicts: vec![("redirected", 2)],
        }
    }

    #[test]
    fn line_has_rates_and_levels_below_their_headings() {
        let time = Duration::from_millis(1500);
        let line = line(&reading(100, 5, 70), &reading(250, 7, 60), time);
        let names = heading();
        let mut cells = names.split_whitespace().zip(line.split_whitespace());
        let mut shown = |wanted| cells.find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!(shown("queue"), "3");
        assert_eq!(shown("rx/s"), "100");
        assert_eq!(shown("free"), "60");
        assert_eq!(shown("drops"), "2");
    }

    #[test]
    fn number_fits_into_its_cell() {
        for (number, shown) in [
            (0, "0"),
            (9_999_999, "9999999"),
            (10_000_000, "10.0M"),
            (281_625_642, "281.6M"),
            (9_999_999_999, "9999.9M"),
            (10_000_000_000, "10.0G"),
            (u64::MAX, "18.4E"),
        ] {
            assert_eq!(short(number), shown);
            assert!(shown.len() <= WIDTH);
        }
    }

    #[test]
    fn drops_that_rose_are_named() {
        let risen: Vec<_> = risen_drops(&reading(0, 5, 0), &reading(0, 7, 0)).collect();
        assert_eq!(risen, [("drop_vlan", 2)]);
    }

    #[test]
    fn every_column_is_of_a_name_that_is_shown() {
        let names: Vec<_> = xwarp_rnic::model::ShownState::names().collect();
        for (heading, column) in &COLUMNS {
            if let Column::Rate(name) | Column::Rise(name) | Column::Level(name) = column {
                assert!(names.contains(name), "{heading}: {name}");
            }
        }
    }
}

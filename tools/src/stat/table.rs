//! Tables and JSON of readings.

use serde_json::{Map, Value, json};

use super::reading::{Named, Reading};
use crate::output::{OutputError, print_line};

/// Tables between two headings.
const HEADING_EVERY: usize = 20;

/// What a column shows of two readings, one second apart.
enum Column {
    /// How much a counter rose.
    Rise(&'static str),
    /// Where a level is.
    Level(&'static str),
    /// How much all drops together rose.
    Drops,
}

/// Heading and contents of the columns behind the queue's.
const COLUMNS: [(&str, Column); 14] = [
    ("rx/s", Column::Rise("rx_frames")),
    ("tx/s", Column::Rise("tx_frames")),
    ("rxB/s", Column::Rise("rx_bytes")),
    ("txB/s", Column::Rise("tx_bytes")),
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
    fn between(&self, earlier: &Reading, now: &Reading) -> u64 {
        match self {
            Self::Rise(name) => now.value(name).saturating_sub(earlier.value(name)),
            Self::Level(name) => now.value(name),
            Self::Drops => risen_drops(earlier, now).map(|(_, rise)| rise).sum(),
        }
    }
}

/// Drops that came since an earlier reading.
fn risen_drops(earlier: &Reading, now: &Reading) -> impl Iterator<Item = Named> {
    now.drops()
        .map(|(name, value)| (name, value.saturating_sub(earlier.value(name))))
        .filter(|(_, rise)| *rise > 0)
}

/// A line for each queue, and one for each kind of drop that it has had since the earlier reading.
pub(super) fn print_change(
    earlier: &[Reading],
    now: &[Reading],
    tables: usize,
) -> Result<(), OutputError> {
    if tables.is_multiple_of(HEADING_EVERY) {
        print_line!("{}", heading())?;
    }
    for now in now {
        let Some(earlier) = earlier.iter().find(|it| it.queue == now.queue) else {
            continue;
        };
        print_line!("{}", line(earlier, now))?;
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

fn line(earlier: &Reading, now: &Reading) -> String {
    let values = COLUMNS
        .iter()
        .map(|(_, column)| cell(&column.between(earlier, now).to_string()));
    format!("{:>5}", now.queue) + &values.collect::<String>()
}

fn cell(text: &str) -> String {
    let width = 7;
    format!(" {text:>width$}")
}

/// Every name with its value, one a line.
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

/// All of it, with names and values as members.
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
    fn line_has_rises_and_levels_below_their_headings() {
        let line = line(&reading(100, 5, 70), &reading(250, 7, 60));
        let names = heading();
        let mut cells = names.split_whitespace().zip(line.split_whitespace());
        let mut shown = |wanted| cells.find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!(shown("queue"), "3");
        assert_eq!(shown("rx/s"), "150");
        assert_eq!(shown("free"), "60");
        assert_eq!(shown("drops"), "2");
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
            if let Column::Rise(name) | Column::Level(name) = column {
                assert!(names.contains(name), "{heading}: {name}");
            }
        }
    }
}

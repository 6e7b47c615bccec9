//! Live counters of a software switch.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use xwarp_driver::switch::{SwitchObserver, SwitchState};

use super::table::{HEADING_EVERY, cell, per_second, short};
use super::{INTERVAL, StatArgs};
use crate::output::{OutputError, print_line};
use crate::switch_status::{Members, counters};

/// Headings of the columns.
const HEADINGS: [&str; 5] = ["clients", "pairs", "frames/s", "RSTs/s", "drops"];

/// Prints tables until the switch ends, which is an error.
pub(super) fn run(observer: &SwitchObserver, args: &StatArgs) -> anyhow::Result<()> {
    let mut earlier: Option<(Instant, SwitchState)> = None;
    let mut tables = 0;
    loop {
        let at = Instant::now();
        let now = observer.state()?;
        if args.json {
            print_line!("{}", json(&observer.device().name, &now))?;
        } else if args.once {
            print_all(&now)?;
        } else if let Some((before, earlier)) = &earlier
            // The counters of another switch begin at 0.
            && earlier.generation == now.generation
        {
            print_change(earlier, &now, at - *before, tables)?;
            tables += 1;
        }
        if args.once {
            return Ok(());
        }
        earlier = Some((at, now));
        thread::sleep(INTERVAL);
    }
}

/// Pairs of clients that exchange frames without the switch, which does not count these.
fn pairs(state: &SwitchState) -> u64 {
    let peers: u64 = state.clients.iter().map(|it| u64::from(it.peers)).sum();
    peers / 2
}

/// Frames that were dropped or withheld since an earlier state, by reason.
fn risen_drops(earlier: &SwitchState, now: &SwitchState) -> Vec<(&'static str, u64)> {
    let both = counters(&now.counters).zip(counters(&earlier.counters));
    let rises = both.map(|((name, now), (_, earlier))| (name, now.saturating_sub(earlier)));
    let is_drop = |name: &str| name.starts_with("drop_") || name == "resets_withheld";
    rises
        .filter(|(name, rise)| is_drop(name) && *rise > 0)
        .collect()
}

fn print_change(
    earlier: &SwitchState,
    now: &SwitchState,
    time: Duration,
    tables: usize,
) -> Result<(), OutputError> {
    if tables.is_multiple_of(HEADING_EVERY) {
        print_line!("{}", HEADINGS.map(cell).concat())?;
    }
    print_line!("{}", line(earlier, now, time))?;
    for (name, rise) in risen_drops(earlier, now) {
        print_line!("      {name} +{rise}")?;
    }
    Ok(())
}

/// The line below the headings.
fn line(earlier: &SwitchState, now: &SwitchState, time: Duration) -> String {
    let (then, counted) = (earlier.counters, now.counters);
    let rate = |then, now: u64| per_second(now.saturating_sub(then), time);
    let drops = risen_drops(earlier, now).iter().map(|(_, rise)| rise).sum();
    let values = [
        u64::from(now.count),
        pairs(now),
        rate(then.delivered, counted.delivered),
        rate(then.resets, counted.resets),
        drops,
    ];
    values.map(|value| cell(&short(value))).concat()
}

/// Prints every name with its value, one per line.
fn print_all(state: &SwitchState) -> Result<(), OutputError> {
    let levels = [("clients", u64::from(state.count)), ("pairs", pairs(state))];
    for (name, value) in levels.into_iter().chain(counters(&state.counters)) {
        print_line!("{name:>24} {value:>12}")?;
    }
    Ok(())
}

fn json(dev: &str, state: &SwitchState) -> Value {
    json!({
        "dev": dev, "generation": state.generation,
        "levels": { "clients": state.count, "pairs": pairs(state) },
        "counters": counters(&state.counters).collect::<Members>().0,
    })
}

#[cfg(test)]
mod tests {
    use xwarp_driver::switch::{ClientState, Counters};

    use super::*;

    fn state(counters: Counters) -> SwitchState {
        let client = ClientState {
            uid: 1000,
            process: None,
            ports: 1,
            peers: 1,
            may_pair: true,
        };
        SwitchState {
            generation: 1,
            counters,
            may_pair: true,
            count: 2,
            clients: vec![client; 2],
        }
    }

    #[test]
    fn line_has_rates_and_drops_are_named() {
        let earlier = state(Counters {
            delivered: 100,
            drop_spoofed: 7,
            drop_no_port: 3,
            ..Counters::default()
        });
        let now = state(Counters {
            delivered: 250,
            drop_spoofed: 7,
            drop_no_port: 5,
            resets: 3,
            resets_withheld: 1,
            ..Counters::default()
        });
        let line = line(&earlier, &now, Duration::from_millis(1500));
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["2", "1", "100", "2", "3"]);
        let drops = risen_drops(&earlier, &now);
        assert_eq!(drops, [("drop_no_port", 2), ("resets_withheld", 1)]);
    }
}

//! Client: sends pings and compares the answers.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use xwarp::{MemoryRegion, Rnic};

use super::ends::End;
use super::place::Place;
use super::{PingArgs, text};
use crate::connection::ONLY;
use crate::host::named;
use crate::output::{OutputError, print_line};
use crate::signals::Interrupted;

pub(crate) fn run(
    rnic: &Rnic,
    server: SocketAddr,
    args: &PingArgs,
    interrupted: &Interrupted,
) -> anyhow::Result<()> {
    let mut end = End::new(rnic, interrupted)?;
    end.connections.connect(ONLY, server, &[])?;
    if !args.quiet {
        print_line!("ping {}  {} B  {rnic}", named(server), args.size())?;
    }
    let mut times = Vec::new();
    let outcome = ping_all(&mut end, server, args, &mut times);
    let printed = if times.is_empty() {
        Ok(())
    } else {
        print_summary(server, &times)
    };
    outcome?;
    printed?;
    end.connections.close()
}

/// Runs all pings. `times` holds the time of each, even after a failure.
fn ping_all(
    end: &mut End<'_>,
    server: SocketAddr,
    args: &PingArgs,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let size = usize::try_from(args.size())?;
    for number in 0..args.count() {
        let began = Instant::now();
        ping(end, number, size).with_context(|| format!("ping {number} to {server} failed"))?;
        let time = began.elapsed();
        times.push(time);
        if !args.quiet {
            print_line!("ping {number:>5}  verified  {:>10.1} us", micros(time))?;
        }
        pause(end, args, number, began)?;
    }
    Ok(())
}

/// Runs one ping: the server reads the message, and writes it back.
fn ping(end: &mut End<'_>, number: u64, size: usize) -> anyhow::Result<()> {
    let message = text::message(number, size);
    end.data.bytes().write(0, &message)?;
    end.echo.bytes().write(0, &vec![0; size])?;
    let place = |region: &MemoryRegion| -> anyhow::Result<Place> {
        Ok(Place {
            address: region.remote(0),
            len: u32::try_from(size)?,
        })
    };
    end.send(place(&end.data)?)?;
    end.receive()?;
    end.send(place(&end.echo)?)?;
    end.receive()?;
    let mut echo = vec![0; size];
    end.echo.bytes().read(0, &mut echo)?;
    let wrong = echo
        .iter()
        .zip(&message)
        .position(|(got, sent)| got != sent);
    if let Some(at) = wrong {
        bail!("DATA MISMATCH: byte {at} is not what was sent");
    }
    Ok(())
}

/// Waits until the next ping is due.
fn pause(end: &End<'_>, args: &PingArgs, number: u64, began: Instant) -> anyhow::Result<()> {
    let interval = args.interval.filter(|_| number + 1 < args.count());
    let left = interval.and_then(|interval| interval.checked_sub(began.elapsed()));
    end.connections.pause(left.unwrap_or_default())
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

fn print_summary(server: SocketAddr, times: &[Duration]) -> Result<(), OutputError> {
    let total: Duration = times.iter().sum();
    let count = u32::try_from(times.len()).unwrap_or(u32::MAX).max(1);
    let mean = micros(total / count);
    let edge = |time: Option<&Duration>| time.copied().map_or(0.0, micros);
    let min = edge(times.iter().min());
    let max = edge(times.iter().max());
    print_line!(
        "{}: {} pings, all verified, min {min:.1} us, mean {mean:.1} us, max {max:.1} us",
        named(server),
        times.len()
    )
}

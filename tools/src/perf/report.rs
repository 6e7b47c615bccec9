//! Report of a test: its parameters, then aligned columns with units; or JSON.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use xwarp::{QueuePair, Rnic};

use super::hello::{Hello, Kind, Style};
use super::{PerfArgs, bandwidth, latency};
use crate::host::named;
use crate::output::{OutputError, print_line};

/// Result of a test.
pub(crate) enum Measured {
    Bandwidth(bandwidth::Run),
    Latency(latency::Run),
}

impl Measured {
    /// Messages that the client sent or read on a connection.
    pub(crate) fn messages_of(&self, which: usize) -> u64 {
        match self {
            Self::Bandwidth(run) => run.messages[which],
            Self::Latency(run) => run.messages,
        }
    }
}

/// The server's only line.
pub(crate) fn print_listening(
    rnic: &Rnic,
    kind: Kind,
    addresses: &str,
    args: &PerfArgs,
) -> Result<(), OutputError> {
    if args.json {
        return Ok(());
    }
    print_line!("{kind} server  {rnic}  engine {}", args.engine_text())?;
    print_line!("waiting for a client at {addresses}")
}

/// The client's first line: the test, and the mode in effect.
pub(crate) fn print_setup(
    rnic: &Rnic,
    hello: &Hello,
    qp: &QueuePair,
    args: &PerfArgs,
) -> Result<(), OutputError> {
    if args.json {
        return Ok(());
    }
    let depth = match hello.kind.style {
        Style::Bandwidth => format!("  depth {}", hello.depth),
        Style::Latency => String::new(),
    };
    print_line!(
        "{}  RC  {}{depth}  {rnic}  {}  engine {}",
        hello.kind,
        hello.connections,
        mpa_text(qp),
        args.engine_text()
    )
}

/// The server's line about its client and the connection.
pub(crate) fn print_client(
    client: SocketAddr,
    hello: &Hello,
    qp: &QueuePair,
    args: &PerfArgs,
) -> Result<(), OutputError> {
    if args.json {
        return Ok(());
    }
    let client = named(client);
    print_line!("client {client}  {}  {}", hello.connections, mpa_text(qp))
}

/// Result of MPA start-up.
fn mpa_text(qp: &QueuePair) -> String {
    qp.connection()
        .map_or_else(|| "not connected".to_owned(), |it| it.to_string())
}

/// Actual parameters of the connections, for the JSON report.
pub(crate) fn setup_json(rnic: &Rnic, qp: &QueuePair, args: &PerfArgs) -> serde_json::Value {
    let nic = rnic.info().map(|info| {
        json!({
            "interface": info.name,
            "mtu": info.mtu,
            "xdp_mode": info.mode.to_string(),
            "program_found": info.program_found,
            "af_xdp_mode": if info.zero_copy { "zero copy" } else { "copy" },
            "queues": info.queues.served.len(),
            "engines": info.engines,
        })
    });
    let switch = rnic
        .switch()
        .map(|switch| json!({ "device": switch.name, "socket": switch.socket, "mtu": switch.mtu }));
    let mpa = qp.connection().map(|it| {
        json!({
            "revision": it.revision,
            "markers_sent": it.send_markers,
            "markers_received": it.receive_markers,
            "ird": it.ird,
            "ord": it.ord,
        })
    });
    json!({
        "nic": nic, "switch": switch, "mpa": mpa,
        "crc": qp.crc(), "engine": args.engine_text(),
    })
}

/// The client's result.
pub(crate) fn print_result(
    hello: &Hello,
    measured: &Measured,
    verified: Option<u64>,
    retransmitted: u64,
) -> Result<(), OutputError> {
    let data = match verified {
        None => "not checked",
        Some(_) => "verified",
    };
    match measured {
        Measured::Bandwidth(run) => print_bandwidth(hello, run, data)?,
        Measured::Latency(run) => print_latency(hello, run, data)?,
    }
    if let Some(bytes) = verified {
        print_line!("data: {bytes} bytes of buffers compared, every byte as sent")?;
    }
    if retransmitted > 0 {
        print_line!("note: {retransmitted} TCP segments were retransmitted")?;
    }
    Ok(())
}

/// Decimal gigabits of payload per second.
fn gigabits(hello: &Hello, run: &bandwidth::Run) -> f64 {
    message_rate(run) * f64::from(hello.size) * 8.0 / 1e3
}

/// Millions of messages per second.
#[expect(clippy::cast_precision_loss, reason = "2^53 messages are years")]
fn message_rate(run: &bandwidth::Run) -> f64 {
    run.total() as f64 / run.elapsed.as_secs_f64() / 1e6
}

fn print_bandwidth(hello: &Hello, run: &bandwidth::Run, data: &str) -> Result<(), OutputError> {
    print_line!(
        "{:>10} {:>12} {:>12} {:>14}  data",
        "bytes",
        "messages",
        "BW [Gb/s]",
        "rate [Mmsg/s]"
    )?;
    print_line!(
        "{:>10} {:>12} {:>12.2} {:>14.3}  {data}",
        hello.size,
        run.total(),
        gigabits(hello, run),
        message_rate(run)
    )
}

/// Columns of a latency table.
const PERCENTILES: [(&str, f64); 5] = [
    ("p50", 50.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
];

/// True if `samples` samples determine a percentile: at least one of them lies beyond it.
#[expect(clippy::cast_precision_loss, reason = "2^53 messages are years")]
fn is_known(percentile: f64, samples: u64) -> bool {
    // Percentiles are decimal fractions, so the product may be a little less than 1.
    samples as f64 * (100.0 - percentile) / 100.0 > 0.999
}

fn print_latency(hello: &Hello, run: &latency::Run, data: &str) -> Result<(), OutputError> {
    let names: String = PERCENTILES.map(|(name, _)| format!(" {name:>9}")).concat();
    print_line!(
        "{:>10} {:>12} {:>9}{names} {:>9}  data",
        "bytes",
        "messages",
        "min [us]",
        "max"
    )?;
    let micros = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64() * 1e6;
    let value = |percentile| {
        let nanos = run.histogram.value_at_percentile(percentile);
        if is_known(percentile, run.histogram.len()) {
            format!("{:.2}", micros(nanos))
        } else {
            "-".to_owned()
        }
    };
    let values = PERCENTILES.map(|(_, percentile)| format!(" {:>9}", value(percentile)));
    let values = values.concat();
    print_line!(
        "{:>10} {:>12} {:>9.2}{values} {:>9.2}  {data}",
        hello.size,
        run.histogram.len(),
        micros(run.histogram.min()),
        micros(run.histogram.max())
    )
}

/// The client's result as JSON.
pub(crate) fn print_json(
    hello: &Hello,
    setup: &serde_json::Value,
    measured: &Measured,
    verified: Option<u64>,
    retransmitted: u64,
) -> anyhow::Result<()> {
    let report = json!({
        "test": hello.kind.to_string(),
        "bytes": hello.size,
        "depth": hello.depth,
        "qps": hello.connections.get(),
        "setup": setup,
        "verified_bytes": verified,
        "tcp_segments_retransmitted": retransmitted,
        "result": result_json(hello, measured),
    });
    Ok(print_line!("{}", serde_json::to_string_pretty(&report)?)?)
}

/// The measurements as JSON.
fn result_json(hello: &Hello, measured: &Measured) -> serde_json::Value {
    match measured {
        Measured::Bandwidth(run) => json!({
            "messages": run.total(),
            "seconds": run.elapsed.as_secs_f64(),
            "gigabits_per_second": gigabits(hello, run),
            "million_messages_per_second": message_rate(run),
        }),
        Measured::Latency(run) => {
            let percentiles: serde_json::Map<String, serde_json::Value> = PERCENTILES
                .iter()
                .filter(|(_, percentile)| is_known(*percentile, run.histogram.len()))
                .map(|&(name, p)| (name.to_owned(), json!(run.histogram.value_at_percentile(p))))
                .collect();
            json!({
                "messages": run.histogram.len(),
                "min_nanoseconds": run.histogram.min(),
                "mean_nanoseconds": run.histogram.mean(),
                "max_nanoseconds": run.histogram.max(),
                "percentiles_nanoseconds": percentiles,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_known_by_a_sample_beyond_it() {
        for (samples, known) in [
            (0, 0),
            (9, 0),
            (10, 2),
            (100, 3),
            (999, 3),
            (1000, 4),
            (10_000, 5),
        ] {
            let shown = PERCENTILES
                .iter()
                .filter(|(_, percentile)| is_known(*percentile, samples));
            // Two samples determine a median.
            let median = usize::from((2..10).contains(&samples));
            assert_eq!(shown.count(), known + median, "{samples}");
        }
    }
}

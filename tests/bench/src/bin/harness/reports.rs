//! Reports in JSON of the programs that are measured, as far as they are read.

use serde::Deserialize;

/// What `xwarp perf --json` prints.
#[derive(Deserialize)]
pub(crate) struct PerfReport<T> {
    pub(crate) result: T,
}

/// The result of a bandwidth test of `xwarp perf`.
#[derive(Deserialize)]
pub(crate) struct Bandwidth {
    pub(crate) messages: f64,
    pub(crate) gigabits_per_second: f64,
    pub(crate) million_messages_per_second: f64,
}

/// The result of a latency test of `xwarp perf`.
#[derive(Deserialize)]
pub(crate) struct Latency {
    pub(crate) percentiles_nanoseconds: Percentiles,
}

/// Half of round trips, or whole ones of Reads.
#[derive(Deserialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
}

/// What `iperf3 --json` prints at a client.
#[derive(Deserialize)]
pub(crate) struct Iperf {
    end: IperfEnd,
}

#[derive(Deserialize)]
struct IperfEnd {
    sum_received: IperfSum,
}

/// All streams of iperf3 together.
#[derive(Deserialize)]
pub(crate) struct IperfSum {
    pub(crate) bytes: f64,
    pub(crate) bits_per_second: f64,
}

impl Iperf {
    pub(crate) fn received(&self) -> &IperfSum {
        &self.end.sum_received
    }
}

/// What `fio --output-format=json` prints.
#[derive(Deserialize)]
pub(crate) struct Fio {
    pub(crate) jobs: [FioJob; 1],
}

#[derive(Deserialize)]
pub(crate) struct FioJob {
    pub(crate) write: FioDirection,
}

#[derive(Deserialize)]
pub(crate) struct FioDirection {
    pub(crate) bw_bytes: f64,
}

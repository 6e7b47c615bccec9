//! Contenders of the comparison: pairs of programs in two guests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use xwarp_interop_tests::{Ended, Guest, Job};
use xwarp_system_tests::eventually;

use crate::pace::Pace;

/// Messages of the short run that the long one is compared with.
const FEW: u32 = 64;
/// How much longer than the short run the long one takes at least.
const ENOUGH: Duration = Duration::from_secs(2);
/// Bytes of buffers at most: to touch memory for the first time takes long in User-Mode Linux.
const BUFFERS: u64 = 16 << 20;
/// Of xwarp's server. perftest's own port is not free at once when perftest has ended.
const PORT: u16 = 7471;
/// The control bytes of DDP and RDMAP of a Send of one segment (RFC 5041 §4.3, RFC 5040 §4.1), and where they are in an IPv4 packet. That
/// is after 20 bytes of IP, 32 of TCP with timestamps, and MPA's length.
const SEND: u16 = 0x4143;
const AT: usize = 54;
/// No run takes as long.
const LIMIT: Duration = Duration::from_mins(2);

/// One cell of the table.
pub(crate) struct Case {
    /// `write`, `read` or `send`.
    pub(crate) verb: &'static str,
    /// `bw` or `lat`.
    pub(crate) kind: &'static str,
    /// Bytes of a message.
    pub(crate) size: u64,
    pub(crate) crc: bool,
}

impl Case {
    /// Messages outstanding at once.
    fn depth(&self) -> u64 {
        u64::from(FEW).min(BUFFERS / self.size)
    }
}

/// How long a run is.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    messages: u32,
    /// What a short run takes, which is mostly start-up and tear-down.
    short: Duration,
}

enum Program {
    Xwarp(PathBuf),
    Perftest,
}

pub(crate) struct Contender<'a> {
    program: Program,
    client: &'a Guest<'a>,
    server: &'a Guest<'a>,
}

impl<'a> Contender<'a> {
    /// `xwarp perf`, over AF_XDP in generic mode.
    pub(crate) fn xwarp([client, server]: &'a [Guest<'a>; 2]) -> Self {
        let this = std::env::current_exe().expect("a program knows where it is");
        Self {
            program: Program::Xwarp(this.with_file_name("xwarp")),
            client,
            server,
        }
    }

    /// perftest over siw.
    ///
    /// siw's responder does not notice what reaches it too soon after its MPA Reply. What perftest sends first are Sends, which the
    /// client's network interface therefore keeps for a while; what it measures here are Writes and Reads.
    pub(crate) fn siw([client, server]: &'a [Guest<'a>; 2]) -> Self {
        client.hold_back(&format!("u16 {SEND:#x} 0xffff at {AT}"), 5);
        Self {
            program: Program::Perftest,
            client,
            server,
        }
    }

    fn command(&self, case: &Case, messages: u32) -> String {
        let Case {
            verb,
            kind,
            size,
            crc,
        } = case;
        let depth = case.depth();
        match &self.program {
            Program::Xwarp(file) => {
                let crc = if *crc { "" } else { "--no-crc" };
                format!(
                    "{} perf {verb}-{kind} --mode generic --port {PORT} --size {size} --iterations {messages} --depth {depth} {crc}",
                    file.display()
                )
            }
            Program::Perftest => {
                let depth = match *kind {
                    "bw" => format!("-N -t {depth}"),
                    _ => String::new(),
                };
                format!("ib_{verb}_{kind} -R -d siw0 -F -s {size} -n {messages} {depth}")
            }
        }
    }

    /// Starts the server, which listens when this returns.
    fn serve(&self, command: &str) -> Job<'a> {
        match self.program {
            Program::Xwarp(_) => {
                let mut server = self.server.start(&format!("{command} --dev eth0"));
                server.line("waiting for a client at ");
                server
            }
            Program::Perftest => {
                let server = self.server.start(command);
                eventually("perftest listens", || {
                    let listed = self.server.run("rdma resource show cm_id").succeeded();
                    listed.output.contains("LISTEN")
                });
                server
            }
        }
    }

    /// How long the client takes.
    fn time(&self, case: &Case, messages: u32) -> Duration {
        if let Program::Perftest = self.program {
            let wanted = if case.crc { "Y" } else { "N" };
            for guest in [self.client, self.server] {
                guest.set_siw("mpa_crc_required", wanted);
            }
        }
        let command = self.command(case, messages);
        let serving = self.serve(&command);
        let asking = format!("{command} {}", self.server.address());
        let began = Instant::now();
        let client = self.client.start(&asking).finish_within(LIMIT);
        let took = began.elapsed();
        let _: [Ended; 2] = [client, serving.finish_within(LIMIT)].map(Ended::succeeded);
        took
    }

    /// How many messages are enough for a figure, and what a run takes besides.
    pub(crate) fn enough(&self, case: &Case) -> Length {
        let short = self.time(case, FEW);
        let mut messages = 4 * FEW;
        loop {
            let longer = self.time(case, messages).saturating_sub(short);
            if longer >= ENOUGH {
                return Length { messages, short };
            }
            let missing = ENOUGH.as_millis() / longer.as_millis().max(1);
            let factor = u32::try_from(missing).map_or(16, |factor| factor + 1);
            messages *= factor.clamp(2, 16);
        }
    }

    /// What a message takes.
    pub(crate) fn pace(&self, case: &Case, length: Length) -> Pace {
        let took = self.time(case, length.messages);
        Pace::of(length.messages - FEW, took.saturating_sub(length.short))
    }
}

/// The latency as perftest counts it, in microseconds: of a Read the whole round trip, else half of a ping-pong.
pub(crate) fn latency(verb: &str, pace: Pace) -> f64 {
    match verb {
        "read" => pace.microseconds(),
        _ => pace.microseconds() / 2.0,
    }
}

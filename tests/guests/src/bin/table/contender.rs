//! Contenders of the comparison: a program of perftest in two guests, over xwarp or siw at either
//! end.

use std::fmt;
use std::time::{Duration, Instant};

use xwarp_guest_tests::siw::{Ended, Guest, Job};
use xwarp_system_tests::eventually;

use crate::pace::Pace;

/// Messages of the short run that the long one is compared with.
const FEW: u32 = 64;
/// How much longer than the short run the long one takes at least.
const ENOUGH: Duration = Duration::from_secs(2);
/// A run that takes longer has stalled.
const LIMIT: Duration = Duration::from_secs(40);

/// One line of the table.
pub(crate) struct Case {
    /// `write`, `read` or `send`.
    pub(crate) verb: &'static str,
    /// `bw` or `lat`.
    pub(crate) kind: &'static str,
    /// Bytes of a message.
    pub(crate) size: u64,
}

/// How long a run is.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    messages: u32,
    /// What a short run takes, which is mostly start-up and tear-down.
    short: Duration,
}

/// A run did not end.
#[derive(Debug)]
pub(crate) struct Stalled;

/// What a program of perftest runs on.
#[derive(Clone, Copy)]
pub(crate) enum Stack {
    Xwarp,
    Siw,
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Xwarp => "xwarp",
            Self::Siw => "siw",
        })
    }
}

impl Stack {
    /// The command that runs this program.
    fn command(self, program: &str) -> String {
        match self {
            Self::Xwarp => {
                let this = std::env::current_exe().expect("a program knows where it is");
                let xwarp = this.with_file_name("xwarp");
                // The library says when it listens.
                format!(
                    "XWARP_LOG=info {} run --dev eth0 -- {program}",
                    xwarp.display()
                )
            }
            Self::Siw => format!("{program} -d siw0"),
        }
    }

    /// The port of a server: the kernel keeps one that it has connections of in TIME-WAIT from
    /// xwarp.
    fn port(self) -> u16 {
        match self {
            Self::Xwarp => 7471,
            Self::Siw => 18515,
        }
    }

    /// Starts a server, which listens when this returns.
    fn serve<'a>(self, guest: &'a Guest<'a>, program: &str) -> Job<'a> {
        let mut server = guest.start(&self.command(program));
        match self {
            Self::Xwarp => server.line_with("listening on"),
            Self::Siw => eventually("siw listens", || {
                let listed = guest.run("rdma resource show cm_id").succeeded();
                listed.output.contains("LISTEN")
            }),
        }
        server
    }
}

pub(crate) struct Contender<'a> {
    client: (Stack, &'a Guest<'a>),
    server: (Stack, &'a Guest<'a>),
}

impl<'a> Contender<'a> {
    pub(crate) fn new(stacks: [Stack; 2], guests: &'a [Guest<'a>; 2]) -> Self {
        Self {
            client: (stacks[0], &guests[0]),
            server: (stacks[1], &guests[1]),
        }
    }

    /// How long the client takes.
    fn time(&self, case: &Case, messages: u32) -> Result<Duration, Stalled> {
        let ((client, at_client), (server, at_server)) = (self.client, self.server);
        let program = format!("{} -p {}", case.program(messages), server.port());
        let serving = server.serve(at_server, &program);
        let asking = format!("{} {}", client.command(&program), at_server.address());
        let began = Instant::now();
        let _: Ended = finish(at_client.start(&asking))?.succeeded();
        let took = began.elapsed();
        let _: Ended = finish(serving)?.succeeded();
        Ok(took)
    }

    /// How many messages are enough for a figure, and what a run takes besides.
    pub(crate) fn enough(&self, case: &Case) -> Result<Length, Stalled> {
        let short = self.time(case, FEW)?;
        let mut messages = 4 * FEW;
        loop {
            let longer = self.time(case, messages)?.saturating_sub(short);
            if longer >= ENOUGH {
                return Ok(Length { messages, short });
            }
            let missing = ENOUGH.as_millis() / longer.as_millis().max(1);
            let factor = u32::try_from(missing).map_or(16, |factor| factor + 1);
            messages *= factor.clamp(2, 16);
        }
    }

    /// What a message takes.
    pub(crate) fn pace(&self, case: &Case, length: Length) -> Result<Pace, Stalled> {
        let took = self.time(case, length.messages)?;
        let longer = took.saturating_sub(length.short);
        Ok(Pace::of(length.messages - FEW, longer))
    }
}

fn finish(job: Job<'_>) -> Result<Ended, Stalled> {
    job.try_finish_within(LIMIT).map_err(|_killed_here| Stalled)
}

impl Case {
    /// The program of perftest and its arguments at either end.
    fn program(&self, messages: u32) -> String {
        let Self { verb, kind, size } = self;
        // No peak, for which perftest needs a clock that it trusts.
        let depth = match *kind {
            "bw" => format!("-N -t {FEW}"),
            _ => String::new(),
        };
        format!("ib_{verb}_{kind} -R -F -s {size} -n {messages} {depth}")
    }

    /// What perftest would call this pace, without the unit: of a Read the whole round trip, else
    /// half of a ping-pong.
    pub(crate) fn figure(&self, pace: Pace) -> f64 {
        match (self.kind, self.verb) {
            ("bw", _) => pace.gigabits_per_second(self.size),
            (_, "read") => pace.microseconds(),
            _ => pace.microseconds() / 2.0,
        }
    }
}

//! How many honest clients a server serves while it is sent SYNs and ACKs without end:
//! `tools/bench --flood`. The client's host is both the hostile stations and the honest clients.

use std::io::pipe;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::sys::signal::Signal;
use xwarp_system_tests::{DEV, Shape};

use crate::lab::{Lab, Programs, SERVER, mac, numbers, start, start_reading};

const CLIENTS: u32 = 12;
/// SYNs and ACKs a second.
const SYNS: [u32; 2] = [60, 20_000];
const ACKS: [u32; 7] = [0, 500, 1500, 3000, 6000, 12_000, 20_000];
/// 20,000 SYNs a second have filled the backlog by then; 60 never do.
const HEAD_START: Duration = Duration::from_millis(500);

pub(crate) fn table(programs: &Programs) -> anyhow::Result<()> {
    println!(
        "\n== honest clients served of {CLIENTS} while a server is sent so many SYNs and ACKs a second; \
         the longest that one took"
    );
    println!(
        "{:>10}{:>10}{:>12}{:>12}{:>10}{:>14}",
        "SYNs/s", "ACKs/s", "SYNs sent", "ACKs sent", "served", "longest [s]"
    );
    let mut are_all_served = true;
    for syns in SYNS {
        for acks in ACKS {
            let lab = Lab::with_offloads(programs, "native", Shape::default());
            are_all_served &= row(&lab, syns, acks) == CLIENTS;
        }
    }
    ensure!(are_all_served, "some were not served");
    Ok(())
}

/// A line. Returns how many clients were served.
fn row(lab: &Lab, syns: u32, acks: u32) -> u32 {
    let xwarp = lab.programs.xwarp();
    let command = format!("{xwarp} ping --persistent --quiet --dev {DEV}");
    let mut server = lab.serve("waiting", &command);
    let (input, keep) = pipe().expect("a pipe");
    let command = format!(
        "{} flood --dev {DEV} --target {SERVER}:7174 --mac {} --syns {syns} --acks {acks}",
        lab.programs.link(),
        mac(&lab.hosts.b)
    );
    let mut flood = start_reading(&lab.hosts.a, &command, input);
    flood.line("ready");
    thread::sleep(HEAD_START);
    let (count, longest) = serve_clients(lab);
    drop(keep);
    let sent = numbers(&flood.finish().succeeded().stdout);
    server.signal(Signal::SIGTERM);
    server.finish();
    println!(
        "{syns:>10}{acks:>10}{:>12}{:>12}{count:>10}{:>14.2}",
        sent[0],
        sent[1],
        longest.as_secs_f64()
    );
    count
}

/// Sends some pings of each client, one client after the other. Returns how many were served, and
/// the longest time that one took.
fn serve_clients(lab: &Lab) -> (u32, Duration) {
    let command = format!(
        "timeout 15 {} ping --count 3 --quiet {SERVER}",
        lab.programs.xwarp()
    );
    let (mut served, mut longest) = (0, Duration::ZERO);
    for _ in 0..CLIENTS {
        let began = Instant::now();
        if start(&lab.hosts.a, &command).finish().succeeds() {
            served += 1;
            longest = longest.max(began.elapsed());
        }
    }
    (served, longest)
}

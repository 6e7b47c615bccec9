//! Processes that are killed or stopped at any moment. In each round one of client, server and
//! switch is. `XWARP_ROUNDS` sets another number of rounds than 10; `XWARP_SEED` names the only one.

use std::process::Output;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use xwarp_test_kit::timeout;

use super::processes::{Local, Running, succeeded};

/// Numbers that look like random ones (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let at = self.below(choices.len() as u64);
        choices[usize::try_from(at).expect("a few")]
    }

    fn pause(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most * 1000))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
    Switch,
}

/// What happens in a round.
#[derive(Clone, Copy, Debug)]
struct Round {
    test: &'static str,
    options: &'static str,
    victim: Victim,
    killed: bool,
    /// After the client has begun.
    at: Duration,
    /// Until it goes on, or another switch is started.
    pause: Duration,
}

impl Round {
    fn of(random: &mut Random) -> Self {
        let tests = [
            ("perf write-bw", "--verify --size 64K --iterations 1500"),
            ("ping", "--count 300"),
        ];
        let (test, options) = random.of(&tests);
        Self {
            test,
            options,
            victim: random.of(&[Victim::Client, Victim::Server, Victim::Switch]),
            killed: random.below(2) == 0,
            at: random.pause(400),
            pause: random.pause(300),
        }
    }

    fn client(&self, local: &Local, port: &str) -> Running {
        let Self { test, options, .. } = self;
        let client = format!("{test} {options} 127.0.0.1:{port}");
        Running::start(&mut local.xwarp(&client))
    }

    fn run(self, local: &mut Local) {
        let (mut server, port) = local.serve(self.test);
        let mut client = self.client(local, &port);
        std::thread::sleep(self.at);
        let signal = if self.killed {
            Signal::SIGKILL
        } else {
            Signal::SIGSTOP
        };
        let mut signal_victim = |signal| match self.victim {
            Victim::Client => client.signal(signal),
            Victim::Server => server.signal(signal),
            Victim::Switch => local.switch().signal(signal),
        };
        signal_victim(signal);
        let cause = Instant::now();
        if !self.killed {
            std::thread::sleep(self.pause);
            signal_victim(Signal::SIGCONT);
        } else if self.victim == Victim::Switch {
            drop(local.switch.take());
            std::thread::sleep(self.pause);
            local.begin();
        }
        let client = client.output();
        let ended = cause.elapsed();
        assert!(ended < timeout(), "the client has ended after {ended:?}");
        self.judge_client(&client);
        if client.status.success() && (self.victim, self.killed) != (Victim::Server, true) {
            assert!(server.wait().success(), "the client was satisfied");
            return;
        }
        if (self.victim, self.killed) == (Victim::Server, true) {
            server.wait();
            return;
        }
        // If the client never reached it, it waits for one.
        while cause.elapsed() < Duration::from_secs(1) && !server.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if !server.has_ended() {
            succeeded(&self.client(local, &port).output());
        }
        server.wait();
    }

    /// It has ended as it must.
    fn judge_client(&self, client: &Output) {
        let said = String::from_utf8_lossy(&client.stderr);
        if client.status.success() {
            assert!(succeeded(client).contains("verified"));
            return;
        }
        let fails = match (self.victim, self.killed) {
            (Victim::Client | Victim::Server, true) => true,
            // It began while there was none.
            (Victim::Switch, true) => {
                said.contains("no switch answers at") || said.contains("refused")
            }
            (_, false) => false,
        };
        assert!(fails, "{}: {said}", client.status);
        assert!(said.lines().count() <= 1, "{said}");
    }
}

/// A number from the environment.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

#[test]
fn transfers_end_verified_or_in_an_error_whoever_is_killed_or_stopped() {
    let rounds = number("XWARP_ROUNDS").unwrap_or(10);
    let only = number("XWARP_SEED");
    let mut pairs = Local::new("chaos-pairs");
    let mut no_pairs = Local::with("chaos", "--no-pairs");
    for seed in only.map_or(1..=rounds, |seed| seed..=seed) {
        let round = Round::of(&mut Random(seed));
        println!("XWARP_SEED={seed}: {round:?}");
        round.run(if seed % 2 == 0 {
            &mut pairs
        } else {
            &mut no_pairs
        });
    }
    for mut local in [pairs, no_pairs] {
        local.switch().signal(Signal::SIGTERM);
        let ended = local.switch.take().expect("it runs").wait();
        assert_eq!(ended.code(), Some(143));
        assert!(!local.socket.exists(), "an orderly end leaves no socket");
    }
}

/// A ping that is connected goes on after the switch was killed and started anew.
fn connection_outlives_the_switch(mut local: Local) {
    for _ in 0..3 {
        let (server, port) = local.serve("ping");
        let arguments = format!("ping --count 100 --interval 5ms 127.0.0.1:{port}");
        let mut client = Running::start(&mut local.xwarp(&arguments));
        client.line("ping     2 ");
        local.switch().signal(Signal::SIGKILL);
        drop(local.switch.take());
        local.begin();
        assert!(client.wait().success());
        assert!(server.wait().success());
    }
}

#[test]
fn connections_do_not_notice_a_switch_that_is_killed_and_started_anew() {
    connection_outlives_the_switch(Local::new("anew-pairs"));
}

#[test]
fn connections_by_the_switch_go_on_by_the_next_one() {
    connection_outlives_the_switch(Local::with("anew", "--no-pairs"));
}

/// The program has said in one sentence that it fails, and why: the RNIC's log may have the same.
fn failed(program: &Output, why: &str) {
    let said = String::from_utf8_lossy(&program.stderr);
    assert_eq!(program.status.code(), Some(1), "{said}");
    let first = said.lines().next().expect("a line");
    assert!(first.contains(why), "{said}");
    assert!(said.lines().all(|line| line == first), "{said}");
}

#[test]
fn stopped_switch_opens_no_rnic_and_says_so_after_5_s() {
    let mut local = Local::new("stopped");
    local.switch().signal(Signal::SIGSTOP);
    let began = Instant::now();
    let client = local.client("ping 127.0.0.1");
    failed(&client, "the switch has not answered for 5 s");
    let passed = began.elapsed();
    assert!(
        passed >= Duration::from_secs(5) && passed < timeout(),
        "{passed:?}"
    );
    local.switch().signal(Signal::SIGCONT);
    let (server, port) = local.serve("ping");
    succeeded(&local.client(&format!("ping 127.0.0.1:{port}")));
    assert!(server.wait().success());
}

#[test]
fn switch_that_stays_away_ends_connections_after_its_patience() {
    let mut local = Local::with("away", "--no-pairs");
    let (server, port) = local.serve("perf write-bw");
    let arguments = format!("perf write-bw --duration 60s 127.0.0.1:{port}");
    let client = Running::start(&mut local.xwarp(&arguments));
    std::thread::sleep(Duration::from_millis(500));
    local.switch().signal(Signal::SIGKILL);
    drop(local.switch.take());
    let began = Instant::now();
    for program in [client, server] {
        failed(&program.output(), "the switch of t0 has ended");
    }
    assert!(began.elapsed() < timeout(), "{:?}", began.elapsed());
}

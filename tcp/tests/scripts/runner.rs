//! Runner of a script, line by line. The host is an [`Endpoint`] of the kit, and the script is its
//! peer.
//!
//! - `listen`, `connect`: the host opens; the first line.
//! - `config timestamps=off min_rto=20ms ack_delay=1ms buffer=4096 keepalive=10s user_timeout=1s
//!   congestion=dctcp ecn=on mtu=9000`: in one line, before it.
//! - `< SEGMENT`: the peer sends. `<< SEGMENT`: the peer sends, in one turn with the next line.
//!   `> SEGMENT`: the host has sent this segment next. Options must match, the window if given.
//! - `write N`, `refuse N`: N bytes are written as one piece, or find no room. `read N`,
//!   `unread N`: N bytes can be read, and are read or left. `close`, `abort`.
//! - `connect mtu=900 advmss=600`: over a route with these metrics. `await`: a peer's SYN waits for
//!   metrics; `route mtu=900 advmss=600` supplies them.
//! - `toobig SEQ LEN MTU`: a router reports that the packet with this sequence number and length
//!   did not fit.
//! - `busy on`, `busy off`: transmissions do not complete.
//! - `event NAME`: the next event. `nothing`: no segment was sent.
//! - `+5ms LINE`: 5 ms pass, in which no segment is sent before the last microsecond.
//! - `#` begins a comment. A line acts only after all sent segments were expected.

use std::collections::VecDeque;
use std::time::Duration;

use xwarp_driver::{Digest, Icmp};
use xwarp_tcp::{
    CongestionControl, ConnId, ConnMut, Event, Instant, Path, RouteMetrics, StackConfig,
};
use xwarp_test_kit::{Endpoint, Side};

use crate::frames;
use crate::segment::{Origin, PEER_ISS, SegmentText, payload, stamp_in};

const FRAMES: usize = 128;

struct Runner {
    host: Endpoint,
    now: Instant,
    origin: Origin,
    conn: Option<ConnId>,
    sent: VecDeque<SegmentText>,
    events: VecDeque<Event>,
    /// The next byte to be read, by the peer's sequence numbers.
    read: u32,
}

/// Runs a script.
///
/// # Panics
/// At the first line that does not hold.
pub(crate) fn run(script: &str) {
    if let Err(problem) = try_run(script) {
        panic!("{problem}");
    }
}

/// Runs a script. The error names the first line that does not hold.
pub(crate) fn try_run(script: &str) -> Result<(), String> {
    let lines: Vec<&str> = script.lines().map(without_comment).collect();
    let config = lines.iter().find_map(|line| line.strip_prefix("config "));
    let mut runner = Runner::new(config.unwrap_or_default());
    for (number, line) in lines.iter().enumerate() {
        if line.is_empty() || line.starts_with("config ") {
            continue;
        }
        if let Err(problem) = runner.line(line) {
            let number = number + 1;
            return Err(format!("line {number}: {line}\n{problem}\nin\n{script}"));
        }
    }
    if !runner.sent.is_empty() {
        return Err(format!("unexpected: {:?}\nin\n{script}", runner.sent));
    }
    Ok(())
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn duration(text: &str) -> Duration {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().expect("a number");
    match unit {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        other => panic!("unit {other}"),
    }
}

fn config(text: &str) -> StackConfig {
    let mut config = StackConfig {
        mac: Side::B.mac(),
        seed: Some(11),
        ack_delay: Duration::ZERO,
        ..StackConfig::default()
    };
    for (key, value) in text
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
    {
        match key {
            "timestamps" => config.timestamps = value == "on",
            "ack_delay" => config.ack_delay = duration(value),
            "min_rto" => config.min_rto = duration(value),
            "buffer" => config.buffer = Some(value.parse().expect("bytes")),
            "mtu" => config.mtu = value.parse().expect("bytes"),
            "ecn" => config.ecn = value == "on",
            "congestion" => config.congestion = algorithm(value),
            "keepalive" => config.keepalive = Some(duration(value)),
            "user_timeout" => config.user_timeout = duration(value),
            "connect_timeout" => config.connect_timeout = duration(value),
            other => panic!("config {other}"),
        }
    }
    config
}

fn metrics(text: &str) -> RouteMetrics {
    let of = |key: &str| {
        let value = text.split_whitespace().find_map(|it| it.strip_prefix(key));
        value.map(|value| value.parse().expect("bytes"))
    };
    RouteMetrics {
        mtu: of("mtu="),
        advmss: of("advmss="),
    }
}

fn algorithm(name: &str) -> CongestionControl {
    match name {
        "dctcp" => CongestionControl::Dctcp,
        "bbr" => CongestionControl::Bbr,
        "cubic" => CongestionControl::Cubic,
        "newreno" => CongestionControl::NewReno,
        other => panic!("algorithm {other}"),
    }
}

type Outcome = Result<(), String>;

fn expect(holds: bool, problem: impl FnOnce() -> String) -> Outcome {
    if holds { Ok(()) } else { Err(problem()) }
}

impl Runner {
    fn new(text: &str) -> Self {
        Self {
            host: Endpoint::new(FRAMES, config(text)),
            now: Instant::from_micros(1_000_000),
            origin: Origin {
                peer: PEER_ISS,
                ..Origin::default()
            },
            conn: None,
            sent: VecDeque::new(),
            events: VecDeque::new(),
            read: 1,
        }
    }

    fn line(&mut self, line: &str) -> Outcome {
        if let Some(timed) = line.strip_prefix('+') {
            let (time, rest) = timed.split_once(' ').expect("something after the time");
            self.pass(duration(time))?;
            return self.line(rest.trim());
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            ">" => return self.expect_segment(rest),
            "nothing" => return self.expect_silence(),
            "event" => return self.expect_event(rest),
            _ => self.expect_silence()?,
        }
        let number = || rest.parse::<usize>().expect("a number");
        match verb {
            "<" => self.deliver(rest),
            "<<" => {
                self.deliver(rest);
                return Ok(());
            }
            "listen" => drop(self.host.stack.listen(path().local, 4).unwrap()),
            "connect" => {
                let metrics = metrics(rest);
                let path = Path { metrics, ..path() };
                self.conn = Some(self.host.stack.connect(path, self.now).unwrap());
            }
            "await" => self.host.stack.await_metrics(),
            "route" => (self.host.stack).set_metrics(self.id(), metrics(rest), self.now),
            "close" => self.host.stack.close(self.id(), self.now),
            "abort" => self.host.stack.abort(self.id(), self.now),
            "toobig" => self.too_big(rest),
            "busy" => self.host.wire.set_busy(rest == "on"),
            "write" => self.write(number())?,
            "refuse" => {
                let room = self.conn().writable(number()).is_some();
                expect(!room, || "there is room".to_owned())?;
            }
            "read" => self.read(number())?,
            "unread" => {
                let there = self.conn().readable_len();
                expect(there == number(), || format!("{there} bytes are there"))?;
            }
            other => panic!("no such line: {other}"),
        }
        self.step();
        Ok(())
    }

    fn id(&self) -> ConnId {
        self.conn.expect("a connection")
    }

    fn conn(&mut self) -> ConnMut<'_> {
        self.host.conn(self.id())
    }

    fn deliver(&mut self, text: &str) {
        let line = SegmentText::parse(text);
        let payload = payload(line.begin, line.len);
        let repr = line.to_repr(self.origin, &payload);
        let mut frame = frames::write(&repr);
        line.mark(&mut frame);
        self.host.wire.deliver(frame);
    }

    /// ICMP of a router (RFC 1191 §4): what it has, and the beginning of what it dropped.
    fn too_big(&mut self, text: &str) {
        let mut numbers = text
            .split_whitespace()
            .map(|word| word.parse::<u32>().expect("a number"));
        let mut next = || numbers.next().expect("three numbers");
        let (seq, len, mtu) = (next(), next(), next());
        let half = |n: u32| u16::try_from(n).expect("16 bits").to_be_bytes();
        let ours = self.origin.ours.expect("our SYN");
        let mut message = [&[3, 4, 0, 0, 0, 0][..], &half(mtu), &[0x45, 0], &half(len)].concat();
        message.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1]);
        message.extend(
            [
                &half(4791)[..],
                &half(40_000),
                &ours.wrapping_add(seq).to_be_bytes(),
            ]
            .concat(),
        );
        self.host.wire.deliver_icmp(Icmp::V4(message));
    }

    fn write(&mut self, len: usize) -> Outcome {
        let now = self.now;
        let mut conn = self.conn();
        let Some(room) = conn.writable(len) else {
            return Err("there is no room".to_owned());
        };
        room.fill(0x5a);
        // What is sent again must not use the sum, as it may be cut by then.
        let mut digest = Digest::default();
        digest.add(room);
        conn.commit_summed(len, Some(digest.checksum()), now);
        Ok(())
    }

    fn read(&mut self, len: usize) -> Outcome {
        let from = self.read;
        let mut conn = self.conn();
        let slice = conn.readable(len);
        expect(slice.len() >= len, || {
            format!("{} bytes are there", slice.len())
        })?;
        let right = slice[..len] == payload(from, len)[..];
        expect(right, || "the bytes differ".to_owned())?;
        conn.consume(len);
        self.read += u32::try_from(len).unwrap();
        Ok(())
    }

    /// Lets the host run until it has nothing to do.
    fn step(&mut self) {
        while self.host.step(self.now) > 0 {}
        for event in self.host.events() {
            if let Event::Incoming { conn, .. } | Event::RouteWanted(conn) = event {
                self.conn = Some(conn);
            }
            self.events.push_back(event);
        }
        for frame in self.host.sent() {
            let seen = frames::read(&frame);
            if seen.syn {
                self.origin.ours.get_or_insert(seen.seq);
            }
            if let Some(stamp) = stamp_in(&seen.options) {
                self.origin.our_stamp.get_or_insert(stamp);
            }
            self.sent.push_back(SegmentText::of(&seen, self.origin));
        }
    }

    /// Lets time pass; nothing may be sent but in the last microsecond.
    fn pass(&mut self, time: Duration) -> Outcome {
        let end = self.now + time;
        self.expect_silence()?;
        while let Some(next) = self.host.stack.next_deadline().filter(|next| *next < end) {
            self.now = self.now.max(next);
            self.step();
            let early = format!("{:?} early", end - self.now);
            self.expect_silence()
                .map_err(|what| format!("{early}: {what}"))?;
        }
        self.now = end;
        self.step();
        Ok(())
    }

    fn expect_segment(&mut self, text: &str) -> Outcome {
        let wanted = SegmentText::parse(text);
        match self.sent.pop_front() {
            None => Err("nothing was sent".to_owned()),
            Some(seen) => expect(seen.satisfies(&wanted), || format!("sent: {seen:?}")),
        }
    }

    fn expect_silence(&mut self) -> Outcome {
        let sent = self.sent.front();
        expect(sent.is_none(), || format!("sent: {sent:?}"))
    }

    fn expect_event(&mut self, name: &str) -> Outcome {
        let event = self.events.pop_front();
        let text = match event {
            None => return expect(name == "none", || "no event".to_owned()),
            Some(Event::Incoming { .. }) => "Incoming".to_owned(),
            Some(Event::Closed { reason, .. }) => format!("{reason:?}"),
            Some(Event::Connected(_)) => "Connected".to_owned(),
            Some(Event::Readable(_)) => "Readable".to_owned(),
            Some(Event::Writable(_)) => "Writable".to_owned(),
            Some(Event::Doubtful(_)) => "Doubtful".to_owned(),
            Some(Event::RouteWanted(_)) => "RouteWanted".to_owned(),
            Some(Event::Stray(_)) => "Stray".to_owned(),
            Some(Event::PeerClosed(_)) => "PeerClosed".to_owned(),
        };
        expect(text == name, || format!("it is {text}"))
    }
}

/// From the host, which is 10.0.0.2, to the peer.
fn path() -> Path {
    Path {
        local: (Side::B.address(), 4791).into(),
        remote: (Side::A.address(), 40_000).into(),
        next_hop: Side::A.mac(),
        metrics: RouteMetrics::default(),
    }
}

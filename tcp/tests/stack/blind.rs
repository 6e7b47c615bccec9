//! Blind attackers, who know addresses and ports but see nothing of the connection (RFC 5961 §1).
//!
//! A host lives through the same events twice. Once an attacker sends it a segment in between, and
//! its later behaviour shows whether that has changed anything.

use std::time::Duration;

use proptest::prelude::*;
use smoltcp::wire::{TcpControl, TcpOption, TcpRepr, TcpTimestampRepr};
use xwarp_tcp::{ConnId, Event, Instant, Path, StackConfig};
use xwarp_test_kit::Side;

use crate::frames::{self, Seen, segment};
use crate::net::{Endpoint, config};

const FRAMES: usize = 32;
/// Initial sequence number of the peer, near half the space.
const PEER: u32 = 0x7fff_f000;
/// Start of the peer's clock.
const CLOCK: u32 = 0xffff_f000;
/// Shift of the peer's windows: 65,535 << 2 is about as large as ours.
const PEER_SHIFT: u8 = 2;
const LARGEST: i64 = 65_535 << PEER_SHIFT;
/// Shift of our windows by default, and the window.
const SHIFT: u8 = 3;
const WINDOW: i64 = 256 << 10;
/// Maximum age of an echo, in milliseconds.
const LATE: i64 = 256 * 1024;
const SPACE: i64 = 1 << 32;
const HALF: i64 = SPACE / 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    SynSent,
    SynReceived,
    /// Bytes have been carried both ways, and all are acknowledged.
    Idle,
    /// Bytes are in flight, and others have arrived out of order.
    Busy,
    FinWait,
    CloseWait,
    TimeWait,
}

const SCENARIOS: [Scenario; 7] = [
    Scenario::SynSent,
    Scenario::SynReceived,
    Scenario::Idle,
    Scenario::Busy,
    Scenario::FinWait,
    Scenario::CloseWait,
    Scenario::TimeWait,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Fin,
    Ack,
    Sack,
    Rst,
    RstAck,
    Syn,
    SynAck,
    /// Without an ACK.
    Bare,
    /// Without a timestamp.
    Unstamped,
}

const KINDS: [Kind; 10] = [
    Kind::Data,
    Kind::Fin,
    Kind::Ack,
    Kind::Sack,
    Kind::Rst,
    Kind::RstAck,
    Kind::Syn,
    Kind::SynAck,
    Kind::Bare,
    Kind::Unstamped,
];

/// An attacker's segment. Its numbers are offsets from the right ones: RCV.NXT, SND.UNA, TS.Recent,
/// and the latest echo.
#[derive(Clone, Copy, Debug)]
struct Forged {
    kind: Kind,
    len: usize,
    seq: i64,
    ack: i64,
    tsval: i64,
    tsecr: i64,
}

impl Forged {
    /// A segment with the numbers of a valid one that has an effect.
    fn right(kind: Kind, scenario: Scenario) -> Self {
        let seq = match (scenario, kind) {
            (Scenario::TimeWait, Kind::Fin) => -1, // retransmitted
            (Scenario::TimeWait, Kind::Syn) => 1,
            _ => 0,
        };
        let ack = match (scenario, kind) {
            (Scenario::SynSent | Scenario::SynReceived, _) => 1,
            (Scenario::Busy, Kind::Ack) => 1000, // half of the bytes in flight
            _ => 0,
        };
        Self {
            kind,
            len: usize::from(matches!(kind, Kind::Data | Kind::Bare | Kind::Unstamped)),
            seq,
            ack,
            tsval: 0,
            tsecr: 0,
        }
    }

    fn control(&self) -> TcpControl {
        match self.kind {
            Kind::Fin => TcpControl::Fin,
            Kind::Rst | Kind::RstAck => TcpControl::Rst,
            Kind::Syn | Kind::SynAck => TcpControl::Syn,
            Kind::Data | Kind::Ack | Kind::Sack | Kind::Bare | Kind::Unstamped => TcpControl::None,
        }
    }

    fn has_ack(&self) -> bool {
        !matches!(self.kind, Kind::Rst | Kind::Syn | Kind::Bare)
    }

    /// SEG.LEN.
    fn seq_len(&self) -> i64 {
        let len = i64::try_from(self.len).unwrap();
        len + i64::from(matches!(self.control(), TcpControl::Fin | TcpControl::Syn))
    }
}

/// True if one of the aliases of `n` lies between two others.
fn within(n: i64, from: i64, to: i64) -> bool {
    (n - from).rem_euclid(SPACE) <= to - from
}

fn wrap(base: u32, n: i64) -> u32 {
    base.wrapping_add(u32::try_from(n.rem_euclid(SPACE)).unwrap())
}

/// Host under test, whose peer and attacker are the test; and the state that the peer knows.
struct Dut {
    host: Endpoint,
    now: Instant,
    scenario: Scenario,
    timestamps: bool,
    conn: Option<ConnId>,
    iss: u32,
    /// RCV.NXT and the window that the host has announced; SND.UNA and SND.NXT.
    next: u32,
    window: i64,
    una: u32,
    flight: i64,
    /// The host's last timestamp, the latest one that the peer has echoed, and the peer's own
    /// latest.
    stamp: u32,
    stamped: Instant,
    echoed: u32,
    clock: u32,
    log: Vec<String>,
}

const BYTES: [u8; 1460] = [0x5a; 1460];

impl Dut {
    fn new(scenario: Scenario, timestamps: bool) -> Self {
        let config = StackConfig {
            timestamps,
            ack_delay: Duration::ZERO,
            ..config(Side::B)
        };
        let host = Endpoint::new(FRAMES, config);
        let mut dut = Self {
            host,
            now: Instant::from_micros(1_000_000),
            scenario,
            timestamps,
            conn: None,
            iss: 0,
            next: PEER,
            window: 0,
            una: 0,
            flight: 0,
            stamp: 0,
            stamped: Instant::ORIGIN,
            echoed: 0,
            clock: CLOCK,
            log: Vec::new(),
        };
        dut.prepare();
        dut
    }

    fn prepare(&mut self) {
        let local = "10.0.0.2:4791".parse().unwrap();
        if self.scenario == Scenario::SynSent {
            let path = Path {
                local,
                remote: "10.0.0.1:40000".parse().unwrap(),
                next_hop: Side::A.mac(),
                metrics: xwarp_tcp::RouteMetrics::default(),
            };
            self.conn = Some(self.host.stack.connect(path, self.now).unwrap());
            self.step();
            return;
        }
        self.host.stack.listen(local, 4).unwrap();
        self.say(TcpControl::Syn, 0, None, 0);
        if self.scenario == Scenario::SynReceived {
            return;
        }
        self.say(TcpControl::None, 1, Some(1), 0);
        self.say(TcpControl::None, 1, Some(1), 100);
        self.read();
        self.write();
        self.say(TcpControl::None, 101, Some(1001), 0);
        match self.scenario {
            Scenario::Busy => {
                self.write();
                self.write();
                self.say(TcpControl::None, 201, Some(1001), 100);
            }
            Scenario::FinWait | Scenario::TimeWait => {
                self.host.stack.close(self.conn.unwrap(), self.now);
                self.step();
                self.say(TcpControl::None, 101, Some(1002), 0);
                if self.scenario == Scenario::TimeWait {
                    self.say(TcpControl::Fin, 101, Some(1002), 0);
                    self.now = self.now + Duration::from_secs(1);
                }
            }
            Scenario::CloseWait => {
                self.say(TcpControl::Fin, 101, Some(1001), 0);
            }
            Scenario::SynSent | Scenario::SynReceived | Scenario::Idle => {}
        }
    }

    /// Lets the host act, and logs its events. Returns the segments that it sends.
    fn act(&mut self) -> Vec<Seen> {
        self.host.step(self.now);
        for event in self.host.events() {
            if let Event::Incoming { conn, .. } = event {
                self.conn = Some(conn);
            }
            self.log.push(format!("{event:?}"));
        }
        self.host
            .sent()
            .iter()
            .map(|frame| frames::read(frame))
            .collect()
    }

    /// Lets the host act; the peer receives the segments.
    fn step(&mut self) {
        for seen in self.act() {
            self.log.push(format!("{seen:?}"));
            self.learn(&seen);
        }
    }

    /// Updates the peer's state by a segment.
    fn learn(&mut self, seen: &Seen) {
        let end = seen.payload.len() + usize::from(seen.syn) + usize::from(seen.fin);
        if seen.syn {
            (self.iss, self.una) = (seen.seq, seen.seq);
        }
        let end = seen.seq.wrapping_add(u32::try_from(end).unwrap());
        self.flight = self.flight.max(i64::from(end.wrapping_sub(self.una)));
        if seen.ack {
            let shift = if seen.syn { 0 } else { SHIFT };
            (self.next, self.window) = (seen.ack_number, i64::from(seen.window) << shift);
        }
        let mut options = &seen.options[..];
        while let Ok((rest, option)) = TcpOption::parse(options) {
            if let TcpOption::TimeStamp { tsval, .. } = option {
                (self.stamp, self.stamped) = (tsval, self.now);
            }
            options = rest;
        }
    }

    /// Sends a segment of the peer, whose numbers count from the two SYNs.
    fn say(&mut self, control: TcpControl, seq: i64, ack: Option<i64>, len: usize) {
        self.now = self.now + Duration::from_millis(1);
        self.clock = self.clock.wrapping_add(1);
        let ack = ack.map(|ack| wrap(self.iss, ack));
        if let Some(ack) = ack
            && within(
                i64::from(ack),
                i64::from(self.una),
                i64::from(self.una) + self.flight,
            )
        {
            self.flight -= i64::from(ack.wrapping_sub(self.una));
            self.una = ack;
        }
        self.echoed = self.stamp;
        let syn = control == TcpControl::Syn;
        let repr = TcpRepr {
            max_seg_size: syn.then_some(1460),
            window_scale: syn.then_some(PEER_SHIFT),
            sack_permitted: syn,
            timestamp: self
                .timestamps
                .then(|| TcpTimestampRepr::new(self.clock, self.stamp)),
            payload: &BYTES[..len],
            ..segment(control, wrap(PEER, seq), ack)
        };
        self.host.wire.deliver(frames::write(&repr));
        self.step();
    }

    fn write(&mut self) {
        let Some(conn) = self.conn else { return };
        let written = self.host.write(conn, &[7; 1000], self.now);
        self.log.push(format!("written: {written}"));
        self.step();
    }

    fn read(&mut self) {
        let Some(conn) = self.conn else { return };
        let data = self.host.read(conn, 64);
        self.log.push(format!("read: {data:?}"));
        self.step();
    }

    /// Delivers an attacker's segment. Returns the answers, which the peer does not receive.
    fn intrude(&mut self, forged: &Forged) -> Vec<Seen> {
        let sack = wrap(self.una, 1000)..wrap(self.una, 2000);
        let stamped = self.timestamps && forged.kind != Kind::Unstamped;
        let stamp = || {
            TcpTimestampRepr::new(
                wrap(self.clock, forged.tsval),
                wrap(self.echoed, forged.tsecr),
            )
        };
        let blocks = [
            (forged.kind == Kind::Sack).then_some((sack.start, sack.end)),
            None,
            None,
        ];
        let ack = forged.has_ack().then(|| wrap(self.una, forged.ack));
        let repr = TcpRepr {
            window_len: if forged.kind == Kind::Sack {
                u16::MAX
            } else {
                1
            },
            sack_ranges: blocks,
            timestamp: stamped.then(stamp),
            payload: &[0xee; 1460][..forged.len],
            ..segment(forged.control(), wrap(self.next, forged.seq), ack)
        };
        self.host.wire.deliver(frames::write(&repr));
        self.act()
    }

    /// True if the attacker has guessed what RFC 9293 §3.10.7.3 and §3.10.7.4, RFC 5961 §3 to §5
    /// and RFC 7323 §5.3 require.
    fn admits(&self, forged: &Forged) -> bool {
        let (ack, seq) = (forged.ack, forged.seq);
        let syn_is_acked = forged.has_ack() && within(ack, 1, 1);
        let reset = forged.control() == TcpControl::Rst;
        match self.scenario {
            Scenario::SynSent => return syn_is_acked,
            Scenario::TimeWait if reset => return false,
            _ if reset => return within(seq, 0, 0),
            // another connection (RFC 6191)
            Scenario::TimeWait if forged.kind == Kind::Syn => return true,
            // the answered one
            Scenario::SynReceived if forged.kind == Kind::Syn => return within(seq, -1, -1),
            _ if forged.control() == TcpControl::Syn => return false,
            _ => {}
        }
        let len = forged.seq_len();
        // The answer to an unacceptable segment announces a scaled window, which may be larger than
        // a SYN's.
        let window = self.window.max(WINDOW);
        let in_window = match len {
            0 => within(seq, 0, window - 1),
            len => within(seq, 1 - len, window - 1),
        };
        let repeats_fin = forged.kind == Kind::Fin && within(seq + len, 0, 0);
        let plausible = match self.scenario {
            Scenario::SynReceived => syn_is_acked,
            _ => forged.has_ack() && within(ack, -LARGEST, self.flight),
        };
        // In TIME-WAIT a repeated FIN needs no echo.
        let knows_fin = repeats_fin && self.scenario == Scenario::TimeWait;
        plausible && (in_window || repeats_fin) && self.is_timely(forged, knows_fin)
    }

    fn is_timely(&self, forged: &Forged, knows_fin: bool) -> bool {
        let since = i64::try_from((self.now - self.stamped).as_millis()).unwrap();
        // Answers to an attacker have timestamps, too.
        let sent = i64::from(self.stamp.wrapping_sub(self.echoed)) + since;
        let echo = self.scenario == Scenario::SynReceived
            || knows_fin
            || within(forged.tsecr, -LATE, sent);
        // The timestamp of an out-of-order segment does not update TS.Recent (RFC 7323 §4.3).
        let recent = -i64::from(self.scenario == Scenario::Busy);
        let young = within(forged.tsval, recent, recent + HALF);
        !self.timestamps || forged.kind != Kind::Unstamped && echo && young
    }

    /// The last acknowledged number, counted from the host's SYN.
    fn una(&self) -> i64 {
        i64::from(self.una.wrapping_sub(self.iss))
    }

    /// The ACK of all sent data.
    fn sent(&self) -> i64 {
        self.una() + self.flight
    }

    /// TIME-WAIT lasts for 10 s, of which one has passed: it still exists shortly before its end,
    /// and not after.
    fn wait(&mut self) {
        self.now = self.now + Duration::from_millis(8900);
        self.step();
        self.say(TcpControl::None, 1, Some(1002), 100);
        self.now = self.now + Duration::from_millis(100);
        self.step();
        self.say(TcpControl::Fin, 101, Some(1002), 0);
    }

    /// Continues the peer's part. Returns all that the host sends and does from here.
    fn go_on(mut self) -> Vec<String> {
        self.now = self.now + Duration::from_millis(3);
        match self.scenario {
            Scenario::SynSent => self.say(TcpControl::Syn, 0, Some(1), 0),
            Scenario::SynReceived => self.say(TcpControl::None, 1, Some(1), 0),
            Scenario::TimeWait => self.wait(),
            _ => {}
        }
        self.write();
        // Some of it is new, some a duplicate, and there is a hole in between.
        let first = Some(self.una());
        self.say(TcpControl::None, 1, first, 200);
        self.say(TcpControl::None, 401, first, 100);
        self.read();
        self.write();
        self.say(TcpControl::None, 201, Some(self.sent()), 200);
        self.write();
        self.say(TcpControl::None, 501, Some(self.sent()), 0);
        self.say(TcpControl::Fin, 501, Some(self.sent()), 0);
        self.read();
        if let Some(conn) = self.conn {
            self.host.stack.close(conn, self.now);
        }
        self.step();
        self.say(TcpControl::None, 502, Some(self.sent()), 0);
        for _ in 0..3 {
            self.now = self.now + Duration::from_secs(4);
            self.step();
        }
        self.say(TcpControl::Fin, 501, Some(self.sent()), 0);
        let counters = self.host.stack.counters();
        let counted = [
            counters.undone,
            counters.duplicates_reported,
            counters.out_of_order,
        ];
        self.log.push(format!("{counted:?}"));
        if self.scenario != Scenario::SynSent {
            // A SYN makes the host repeat its own (RFC 9293 §3.5, figure 7).
            self.log
                .push(format!("repeated: {}", counters.retransmissions));
        }
        self.log
    }
}

/// Behaviour without an attacker.
struct Undisturbed {
    scenario: Scenario,
    timestamps: bool,
    log: Vec<String>,
}

impl Undisturbed {
    fn new(scenario: Scenario, timestamps: bool) -> Self {
        let log = Dut::new(scenario, timestamps).go_on();
        Self {
            scenario,
            timestamps,
            log,
        }
    }

    /// The first change that these attackers cause: the normal event, and the actual one.
    fn change(&self, forgeries: &[Forged]) -> Option<[String; 2]> {
        let mut dut = Dut::new(self.scenario, self.timestamps);
        for forged in forgeries {
            dut.intrude(forged);
        }
        let is = dut.go_on();
        let same = is.iter().zip(&self.log).take_while(|(is, was)| is == was);
        let same = same.count();
        let differ = is.len() != self.log.len() || same < is.len();
        differ.then(|| [&self.log, &is].map(|log| log.get(same).cloned().unwrap_or_default()))
    }
}

/// Next to numbers that matter, opposite to them, or anywhere.
fn near(edges: Vec<i64>) -> impl Strategy<Value = i64> {
    let turn = prop::sample::select(vec![0, HALF]);
    let close = (prop::sample::select(edges), turn, -2..=2_i64);
    prop_oneof![
        6 => close.prop_map(|(edge, turn, off)| edge + turn + off),
        1 => 0..SPACE,
    ]
}

fn forged() -> impl Strategy<Value = Forged> {
    let kind = prop::sample::select(KINDS.to_vec());
    let len = prop::sample::select(vec![0, 1, 2, 1000]);
    let seq = near(vec![0, -1, 100, WINDOW, WINDOW - 1000, -WINDOW, -1000]);
    let ack = near(vec![0, 1, 1000, 2000, -LARGEST, LARGEST]);
    let tsval = near(vec![0, 5, HALF / 2]);
    let tsecr = near(vec![0, 2, -LATE, LATE]);
    (kind, len, seq, ack, tsval, tsecr).prop_map(|(kind, len, seq, ack, tsval, tsecr)| Forged {
        kind,
        len,
        seq,
        ack,
        tsval,
        tsecr,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn stranger_who_has_not_guessed_changes_nothing(
        scenario in prop::sample::select(SCENARIOS.to_vec()),
        timestamps: bool,
        forgeries in prop::collection::vec(forged(), 1..12),
    ) {
        let dut = Dut::new(scenario, timestamps);
        let wrong: Vec<Forged> = forgeries.into_iter().filter(|it| !dut.admits(it)).collect();
        prop_assert_eq!(Undisturbed::new(scenario, timestamps).change(&wrong), None, "{:?}", wrong);
    }
}

/// The fraction of all values of one number with which a segment has an effect, if its other
/// numbers are right. It tries values around every edge; between edges nothing changes.
fn share(normal: &Undisturbed, kind: Kind, set: fn(&mut Forged, i64)) -> f64 {
    let edges = [0, WINDOW, LARGEST, LATE, 1000, 2000].map(|edge| [edge, -edge]);
    let edges = edges
        .into_iter()
        .flatten()
        .flat_map(|edge| [edge, edge + HALF]);
    let around = edges.flat_map(|edge| (-1..=1).map(move |off| (edge + off).rem_euclid(SPACE)));
    let mut places: Vec<i64> = around.collect();
    places.sort_unstable();
    places.dedup();
    let effect = |place: &i64| {
        let mut forged = Forged::right(kind, normal.scenario);
        set(&mut forged, *place);
        normal.change(&[forged]).is_some()
    };
    let effects: Vec<bool> = places.iter().map(effect).collect();
    let mut count = i64::from(effects[effects.len() - 1]);
    for (pair, both) in places.windows(2).zip(effects.windows(2)) {
        count += match both {
            [true, true] => pair[1] - pair[0],
            [true, false] => 1,
            _ => 0,
        };
    }
    if effects[0] && effects[effects.len() - 1] {
        count += places[0] + SPACE - places[places.len() - 1] - 1;
    }
    #[allow(clippy::cast_precision_loss)] // both are far below 2^52
    let share = count as f64 / SPACE as f64;
    share
}

/// The probability that a segment with random numbers has an effect.
fn chance(normal: &Undisturbed, kind: Kind) -> f64 {
    let dimensions: [fn(&mut Forged, i64); 4] = [
        |forged, n| forged.seq = n,
        |forged, n| forged.ack = n,
        |forged, n| forged.tsval = n,
        |forged, n| forged.tsecr = n,
    ];
    let shares = dimensions.map(|set| share(normal, kind, set));
    shares.into_iter().product()
}

/// The maximum of this probability.
fn most(scenario: Scenario, timestamps: bool, kind: Kind) -> f64 {
    let opens = matches!(scenario, Scenario::SynSent | Scenario::SynReceived);
    match (scenario, kind) {
        // Exactly RCV.NXT (RFC 5961 §3.2).
        (_, Kind::Rst | Kind::RstAck) if !opens => 0.5_f64.powi(32),
        // It opens another connection if its number is higher (RFC 9293 §3.6.1, RFC 6191).
        (Scenario::TimeWait, Kind::Syn) => 0.5,
        (
            Scenario::Idle | Scenario::Busy | Scenario::FinWait,
            Kind::Data | Kind::Fin | Kind::Sack | Kind::Unstamped,
        ) if !timestamps => windows(),
        _ => 0.5_f64.powi(31),
    }
}

/// RFC 5961 §5.2: probability that a sequence number lies in our window, and an ACK in the peer's
/// or in the data in flight.
#[allow(clippy::cast_precision_loss)] // both are far below 2^52
fn windows() -> f64 {
    WINDOW as f64 * (LARGEST + 2001) as f64 / (SPACE as f64 * SPACE as f64)
}

/// Without timestamps the windows of both sides determine the probability of data and ACKs. With
/// timestamps these are out of reach, and RST and SYN always are.
#[test]
fn no_kind_of_segment_is_guessed() {
    for scenario in SCENARIOS {
        for timestamps in [true, false] {
            let normal = Undisturbed::new(scenario, timestamps);
            for kind in KINDS {
                let chance = chance(&normal, kind);
                let told = format!(
                    "{scenario:?}, timestamps: {timestamps}, {kind:?}: 2^{:.1}",
                    chance.log2()
                );
                println!("{told}");
                assert!(chance <= most(scenario, timestamps, kind), "{told}");
            }
        }
    }
}

/// An attacker who has guessed everything has an effect. So the tests above do not pass because
/// nothing ever has one.
#[test]
fn stranger_who_has_guessed_everything_has_an_effect() {
    for timestamps in [true, false] {
        for (scenario, kind) in [
            (Scenario::SynSent, Kind::RstAck),
            (Scenario::SynSent, Kind::SynAck),
            (Scenario::SynReceived, Kind::Rst),
            (Scenario::SynReceived, Kind::Data),
            (Scenario::Idle, Kind::Data),
            (Scenario::Idle, Kind::Fin),
            (Scenario::Idle, Kind::Ack),
            (Scenario::Idle, Kind::Rst),
            (Scenario::Busy, Kind::Ack),
            (Scenario::Busy, Kind::Sack),
            (Scenario::FinWait, Kind::Data),
            (Scenario::FinWait, Kind::Rst),
            (Scenario::CloseWait, Kind::Ack),
            (Scenario::CloseWait, Kind::Rst),
            (Scenario::TimeWait, Kind::Fin),
            (Scenario::TimeWait, Kind::Syn),
        ] {
            let guess = Forged::right(kind, scenario);
            assert!(
                Dut::new(scenario, timestamps).admits(&guess),
                "{scenario:?} {kind:?}"
            );
            assert!(
                Undisturbed::new(scenario, timestamps)
                    .change(&[guess])
                    .is_some(),
                "{scenario:?} {kind:?}"
            );
        }
    }
}

//! A guest that stops without a word, as one does that has lost its power.

use std::ops::Range;
use std::time::{Duration, Instant};

use ::xwarp::error::ConnectError;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{CompletionStatus, ProtectionDomain, QpState, Rnic, SendRequest, WrId};
use xwarp_guest_tests::siw::{Guest, Image, Lab, Peer};
use xwarp_system_tests::eventually_within;

use crate::many::{Connection, listen};
use crate::xwarp::{Setup, Xwarp, open};
use crate::{PORT, Pair, Role, with_guest};

const KEEPALIVE: Duration = Duration::from_secs(1);
/// How long bytes, or the question whether a peer lives, may stay unanswered.
const USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Of those something is wanted of, it begins when that was first sent, or a little before.
const SOONEST: Duration = Duration::from_secs(9);
/// For what a loaded machine adds.
const MARGIN: Duration = Duration::from_secs(20);

/// How a guest is out of reach for a while.
#[derive(Clone, Copy, Debug)]
enum Absence {
    StandsStill,
    CableOut,
}

impl Absence {
    fn begin(self, lab: &Lab, guest: &Guest<'_>) {
        match self {
            Self::StandsStill => guest.stand_still(),
            Self::CableOut => lab.pull_out(1),
        }
    }

    fn end(self, lab: &Lab, guest: &Guest<'_>) {
        match self {
            Self::StandsStill => guest.go_on(),
            Self::CableOut => lab.plug_in(1),
        }
    }
}

#[test]
fn guest_out_of_reach_for_a_while_costs_only_time() {
    with_guest(|lab, guest| {
        let absences = [Absence::StandsStill, Absence::CableOut];
        for (role, absence) in Role::BOTH.into_iter().zip(absences) {
            let setup = Setup {
                keepalive: Some(KEEPALIVE),
                ..Setup::with_bytes(1 << 20)
            };
            let mut pair = Pair::connect(lab, guest, role, &setup);
            pair.exchange(role, 1000);
            absence.begin(lab, guest);
            write_while(&mut pair, || absence.end(lab, guest));
            pair.exchange(role, 1000);
        }
    });
}

/// More Writes than can be on their way, which are done only when the guest is back.
fn write_while(pair: &mut Pair<'_>, bring_back: impl FnOnce()) {
    const PIECE: u32 = 256 << 10;
    const PIECES: u64 = 8;
    for id in 0..PIECES {
        let (source, remote) = (pair.xwarp.end.source.local(0, PIECE), pair.remote);
        let write = SendRequest::write(WrId(id), source, remote);
        pair.xwarp.end.post(write);
    }
    let early = pair.xwarp.cq.wait(3 * KEEPALIVE / 2).expect("a queue");
    bring_back();
    let mut done = u64::from(early.is_some());
    while done < PIECES {
        let completion = pair.xwarp.completion();
        assert!(completion.is_success(), "{completion:?}");
        done += 1;
    }
}

#[test]
fn guest_that_stands_still_cannot_be_connected_with_until_it_goes_on() {
    with_guest(|lab, guest| {
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &Setup::default());
        pair.exchange(Role::Initiator, 1);
        drop(pair);
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        guest.stand_still();
        let waiting = xwarp.begin_connect(guest.at(PORT), Duration::from_secs(1));
        let outcome = waiting.expect("a way").wait();
        guest.go_on();
        let timed_out = matches!(outcome, Err(ConnectError::TimedOut { .. }));
        assert!(timed_out, "{outcome:?}");
        drop(xwarp);
        let mut again = Pair::connect(lab, guest, Role::Initiator, &Setup::default());
        again.exchange(Role::Initiator, 1000);
    });
}

/// Traffic of every kind over a connection, which arrives.
fn exchange(connection: &mut Connection, siw: &mut Peer<'_>) {
    connection.prepare(siw);
    connection.post_all(siw);
    connection.check_all(siw);
}

/// Ends of these numbers, connected to `siw` in this guest, after traffic of every kind.
fn connected(
    numbers: Range<usize>,
    (lab, guest): (&Lab, &Guest<'_>),
    (rnic, pd): (&Rnic, &ProtectionDomain),
    siw: &mut Peer<'_>,
) -> Vec<Connection> {
    let connections = numbers.map(|number| Connection::new(rnic, pd, siw, number));
    let mut connections: Vec<Connection> = connections.collect();
    for connection in &mut connections {
        connection.connect(lab, guest, siw, 0);
        exchange(connection, siw);
    }
    connections
}

fn assert_next_event_is_a_loss(rnic: &Rnic) {
    let event = rnic.events().try_next().ok().flatten();
    let kind = event.expect("an event of each").kind;
    let lost = matches!(kind, AsyncEventKind::ConnectionLost { .. });
    assert!(lost, "{kind:?}");
}

/// Four connections: the guest of the first three stops, and what is wanted of it differs.
#[test]
fn guest_that_is_gone_is_noticed_and_everything_is_freed() {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guests = [1, 2].map(|number| Guest::boot(&lab, &image, number));
    let setup = Setup {
        keepalive: Some(KEEPALIVE),
        user_timeout: Some(USER_TIMEOUT),
        ..Setup::with_bytes(256 << 10)
    };
    let rnic = open(&lab, &setup, 4);
    let pd = rnic.allocate_pd().expect("a protection domain");
    let mut peers = [&guests[0], &guests[1]].map(Peer::start);
    for (guest, siw) in guests.iter().zip(&mut peers) {
        listen(guest, siw, 0);
    }
    let [gone, other] = &mut peers;
    let at = (&lab, &guests[0]);
    let mut lost = connected(0..3, at, (&rnic, &pd), gone);
    let mut living = Connection::new(&rnic, &pd, other, 3);
    living.connect(&lab, &guests[1], other, 0);

    guests[0].stand_still();
    let began = Instant::now();
    // Of the first nothing is wanted.
    lost[1].post_write(500).expect("room");
    lost[2].post_read(500).expect("room");
    let all_gone = eventually_within(USER_TIMEOUT + MARGIN, || {
        exchange(&mut living, other); // the other guest is not concerned
        lost.iter().all(|one| one.qp.state() == QpState::Error)
    });
    assert!(all_gone, "not within {:?}", began.elapsed());
    assert!(began.elapsed() > SOONEST, "too soon");
    for connection in &mut lost {
        assert_lost(connection);
        assert_next_event_is_a_loss(&rnic);
    }
    lost.clear(); // which leaves room for just these
    guests[0].go_on();
    connected(10..13, at, (&rnic, &pd), gone);
}

/// What was left on a connection that is lost has come back.
fn assert_lost(connection: &mut Connection) {
    while let Some(done) = connection.cq.wait(Duration::ZERO).expect("a queue") {
        // A Write is done when TCP has taken it.
        let right = done.is_success() || done.status == CompletionStatus::Flushed;
        assert!(right, "{done:?}");
        assert_eq!(done.wr_id, WrId(500));
    }
    assert!(connection.post_write(501).is_err(), "it takes work");
}

//! Two RNICs: what they say of themselves, and the Terminates that their applications' mistakes
//! cause.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use xwarp::cm::{MpaConfig, Revision};
use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::work::Operation;
use xwarp::{Access, QpConfig, RemoteAddress, SendRequest, Sge, Stag, WrId};
use xwarp_sim_tests::{Sim, SimEnd, pattern};
use xwarp_system_tests::dissection::dissect;
use xwarp_test_kit::netsim::Seed;

use crate::support::assert_shown;

/// What a run is about. `a` is the initiator.
type Run = fn(&mut SimEnd, &mut SimEnd);

/// Two RNICs do all these runs, each on a connection of its own, and tshark gets what they sent:
/// the ULPDUs, and the ends.
fn captured(highest: Revision, runs: &[Run]) -> (Vec<Vec<u8>>, Vec<(SimEnd, SimEnd)>) {
    let drops = ["drop_refused_segment", "drop_after_failure", "drop_no_flow"];
    let mpa = MpaConfig::default().max_revision(highest);
    let mut sim = Sim::with_mpa(Seed(41), mpa, mpa).expecting(&drops);
    let frames = Rc::new(RefCell::new(Vec::new()));
    let record = Rc::clone(&frames);
    sim.link()
        .observe(move |sighting| record.borrow_mut().push(sighting.frame.to_vec()));
    let mut ends = Vec::new();
    for run in runs {
        let (mut a, mut b) = sim.connected_pair_with(&QpConfig::default().ord(4).ird(2));
        run(&mut a, &mut b);
        sim.run_until_idle();
        ends.push((a, b));
    }
    (assert_shown(&dissect(&frames.take())), ends)
}

fn unknown() -> RemoteAddress {
    RemoteAddress {
        stag: Stag(0xbad0_0001),
        to: 0,
    }
}

fn send(a: &mut SimEnd, solicited: bool, invalidate: Option<Stag>) {
    let sgl = a.source(b"bytes!").into();
    let operation = Operation::Send {
        payload: sgl,
        solicited,
        invalidate,
    };
    a.post(SendRequest::new(WrId(1), operation));
}

/// A region that lives as long as its host.
fn kept(end: &SimEnd, access: Access) -> RemoteAddress {
    let region = end.region(100, access);
    let place = region.remote(0);
    std::mem::forget(region);
    place
}

#[test]
fn all_that_two_engines_say_is_shown_as_it_was_sent() {
    let (shown, mut ends) = captured(
        Revision::Two,
        &[|a, b| {
            (0..6).for_each(|n| b.post_recv(n, 100));
            let sink = a.region(5000, Access::all());
            let large = b.region(5000, Access::all());
            a.post_write(1, &pattern(5000), large.remote(0));
            a.post_read(2, sink.local(0, 5000), large.remote(0));
            for solicited in [false, true] {
                send(a, solicited, None);
                let other = kept(b, Access::all());
                send(a, solicited, Some(other.stag));
            }
            let immediate = SendRequest::immediate(WrId(1), *b"8 bytes!");
            a.post(immediate.clone());
            a.post(immediate.solicited());
            a.post(SendRequest::fetch_add(WrId(1), 1, large.remote(8)));
            a.post(SendRequest::swap(WrId(1), 1, large.remote(16)));
            std::mem::forget((sink, large));
        }],
    );
    let (a, b) = &mut ends[0];
    let opcodes: BTreeSet<u8> = shown.iter().map(|ulpdu| ulpdu[1] & 0x0f).collect();
    let all_but_terminate = (0..=11).filter(|opcode| *opcode != 7);
    assert!(opcodes.into_iter().eq(all_but_terminate));
    assert_eq!(
        (a.sends().len(), a.events(), b.events()),
        (10, vec![], vec![])
    );
}

/// Mistakes, and the code of the Terminate that each causes.
#[rustfmt::skip]
const MISTAKES: [(&str, Run, TermCode); 13] = [
    ("Write to nowhere", |a, _| a.post_write(1, b"x", unknown()), TermCode::ddp_tagged(0)),
    ("Write beyond the end", |a, b| { let place = kept(b, Access::all()); a.post_write(1, &[7; 101], place); }, TermCode::ddp_tagged(1)),
    ("Write without the right", |a, b| { let place = kept(b, Access::LOCAL_WRITE); a.post_write(1, b"x", place); }, TermCode::ddp_tagged(2)),
    ("Write that wraps", |a, b| { let place = kept(b, Access::all()); a.post_write(1, &[7; 9], RemoteAddress { to: u64::MAX - 3, ..place }); }, TermCode::ddp_tagged(3)),
    ("Send without a buffer", |a, _| a.post_send(1, b"x"), TermCode::ddp_untagged(2)),
    ("Send too long", |a, b| { b.post_recv(1, 4); a.post_send(1, b"5 oct"); }, TermCode::ddp_untagged(5)),
    ("Read from nowhere", |a, _| read(a, unknown(), 8), TermCode::rdmap_protection(0)),
    ("Read beyond the end", |a, b| { let place = kept(b, Access::all()); read(a, place, 101); }, TermCode::rdmap_protection(1)),
    ("Read without the right", |a, b| { let place = kept(b, Access::LOCAL_READ); read(a, place, 8); }, TermCode::rdmap_protection(2)),
    ("Read that wraps", |a, b| { let place = kept(b, Access::all()); read(a, RemoteAddress { to: u64::MAX - 3, ..place }, 8); }, TermCode::rdmap_protection(4)),
    ("more Reads than IRD", |a, b| { let place = kept(b, Access::all()); (0..4).for_each(|_| read(a, place, 8)); }, TermCode::ddp_untagged(3)),
    ("invalidation of nothing", |a, b| { b.post_recv(1, 100); send(a, false, Some(Stag(0xbad0_0001))); }, TermCode::rdmap_protection(0)),
    ("a mistake of one's own", |a, _| a.post(SendRequest::send(WrId(1), Sge { stag: Stag(0xbad0_0001), to: 0, len: 8 })), TermCode::rdmap_local()),
];

fn read(a: &mut SimEnd, remote: RemoteAddress, len: u32) {
    let sink = kept(a, Access::all());
    a.post_read(
        1,
        Sge {
            stag: sink.stag,
            to: 0,
            len: len.min(100),
        },
        remote_of(remote, len),
    );
}

/// So that `len` bytes end where they would if the sink were as large.
fn remote_of(remote: RemoteAddress, len: u32) -> RemoteAddress {
    RemoteAddress {
        to: remote.to + u64::from(len.saturating_sub(100)),
        ..remote
    }
}

#[test]
fn terminates_of_engines_are_shown_as_they_were_sent() {
    // Revision 2 would lower ORD to what the peer offers.
    let (shown, ends) = captured(Revision::One, &MISTAKES.map(|(_, run, _)| run));
    let terminates = shown.iter().filter(|ulpdu| ulpdu[1] & 0x0f == 7);
    let sent: Vec<&[u8]> = terminates.map(|ulpdu| &ulpdu[18..20]).collect();
    let code_of = |code: TermCode| [code.layer() << 4 | code.etype(), code.code()];
    assert_eq!(sent, MISTAKES.map(|(_, _, code)| code_of(code)));
    for ((what, _, code), (a, b)) in MISTAKES.iter().zip(ends) {
        let told = [a.events(), b.events()].concat();
        let expected = AsyncEventKind::TerminateReceived(*code);
        assert!(told.contains(&expected), "{what}: {told:?}");
    }
}

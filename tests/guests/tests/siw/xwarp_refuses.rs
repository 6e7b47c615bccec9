//! Refusals by xwarp: accesses that siw must not make, in either role, and what both learn of them.

use ::xwarp::attr::TerminateOrigin;
use ::xwarp::error::TermCode;
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpConfig, QpState, QueuePair, RemoteAddress,
    Stag, WrId,
};
use xwarp_guest_tests::siw::{Guest, Lab};
use xwarp_system_tests::eventually;

use crate::aims::{
    LEN, assert_siw_ends, clear_log, further, nowhere, region_of_xwarp, siw_was_told, wrapping,
    wrong_key,
};
use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

const FLUSHED: &str = "work-request-flushed-error";
/// What siw has posted, and must come back: a receive.
const RECEIVE: u64 = 60;

/// A connection that has been used, with a receive left at siw.
fn connect<'a>(lab: &'a Lab, guest: &'a Guest<'a>, role: Role) -> Pair<'a> {
    clear_log(guest);
    let mut pair = Pair::connect(lab, guest, role, &Setup::default());
    pair.exchange(role, 1);
    pair.siw.ask(&format!(
        "recv name=s id={RECEIVE} region=r offset=100 length={LEN}"
    ));
    pair
}

/// Where xwarp's application learns of it: an error in a Send that there is a receive for is in
/// that one's completion alone (verbs draft §8.3.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Channel {
    Event,
    Completion,
}

/// Asserts that xwarp has sent siw a Terminate with this code, and that both ends have ended.
/// Returns whether siw reports the code.
fn assert_refused(
    guest: &Guest<'_>,
    pair: &mut Pair<'_>,
    what: &str,
    code: TermCode,
    channel: Channel,
) -> bool {
    eventually("the queue pair's end", || {
        pair.xwarp.end.qp.state() == QpState::Error
    });
    let info = pair.xwarp.end.qp.query().expect("an RNIC");
    let told = info.terminate.map(|it| (it.origin, it.code));
    assert_eq!(told, Some((TerminateOrigin::Local, code)), "{what}");
    let event = pair
        .xwarp
        .rnic
        .events()
        .try_next()
        .ok()
        .flatten()
        .map(|it| it.kind);
    let counters = pair.xwarp.rnic.counters().expect("an RNIC").rdma;
    let counted = (counters.drop_refused_segment, counters.terminates_out);
    assert_eq!(counted, (1, 1), "{what}");
    pair.siw.expect_event("s", "DISCONNECTED");
    assert_siw_ends(&mut pair.siw);
    let was_told = siw_was_told(guest, code, what);
    assert_reported(channel, event, was_told, code, what);
    was_told
}

/// xwarp's application learns of it where it must.
fn assert_reported(
    channel: Channel,
    event: Option<AsyncEventKind>,
    siw_was_told: bool,
    code: TermCode,
    what: &str,
) {
    match (channel, event) {
        (Channel::Completion, None) => {}
        // siw sometimes closes before it has read the Terminate, and its TCP resets what is not
        // read.
        (Channel::Completion, Some(AsyncEventKind::BadClose { .. })) => {
            assert!(!siw_was_told, "{what}");
        }
        (Channel::Event, Some(AsyncEventKind::Terminated { code: told, .. })) => {
            assert_eq!(told, code, "{what}");
        }
        (_, other) => panic!("{what}: {other:?}"),
    }
}

/// Of siw's work, 1 comes back like this, and the receive flushed.
fn assert_siw_reports(pair: &mut Pair<'_>, what: &str, status: &str) {
    let mut back = pair.siw.poll("s", 2);
    back.sort_by_key(|done| done.id);
    let back: Vec<_> = back.iter().map(|it| (it.id, it.status.as_str())).collect();
    assert_eq!(back, [(1, status), (RECEIVE, FLUSHED)], "{what}");
}

/// xwarp's receive comes back like this.
fn assert_xwarp_reports(pair: &mut Pair<'_>, what: &str, status: CompletionStatus) {
    let done = pair.xwarp.completion();
    let seen = (done.wr_id, done.opcode, done.status);
    assert_eq!(seen, (WrId(50), Opcode::Receive, status), "{what}");
}

/// A place of xwarp's that may not be accessed, with what must live as long as it is tried.
fn place(
    pair: &mut Pair<'_>,
    wrong: &str,
    other: Option<&QueuePair>,
) -> (RemoteAddress, Option<MemoryRegion>) {
    let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
    let all = local | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let bytes = pair.xwarp.end.sink.bytes().len() as u64;
    let kept = |rights| {
        let region = region_of_xwarp(pair, rights);
        (region.remote(0), Some(region))
    };
    match wrong {
        "unknown" => (nowhere(), None),
        "wrong key" => {
            let (remote, region) = kept(all);
            (wrong_key(remote), region)
        }
        "beyond the end" => {
            let (remote, region) = kept(all);
            (further(remote, 4096 - u64::from(LEN) + 1), region)
        }
        "far beyond the end" => {
            let (remote, region) = kept(all);
            (further(remote, bytes << 20), region)
        }
        "wraps" => {
            let (remote, region) = kept(all);
            (wrapping(remote), region)
        }
        "no remote write" => kept(local | Access::REMOTE_READ),
        "no remote read" => kept(local | Access::REMOTE_WRITE),
        "no remote right" => kept(local),
        "foreign" => {
            let region = pair
                .xwarp
                .rnic
                .allocate_pd()
                .expect("a protection domain")
                .allocate(4096, all);
            let region = region.expect("memory");
            (region.remote(0), Some(region))
        }
        // The domain's, which another queue pair may use, too.
        "shared" => kept(all),
        "another queue pair's" => {
            let region = other.expect("one").allocate(4096, all).expect("memory");
            (region.remote(0), Some(region))
        }
        "deregistered" => (region_of_xwarp(pair, all).remote(0), None),
        "invalidated" => {
            let (remote, region) = kept(all);
            let Stag(stag) = remote.stag;
            pair.xwarp.end.post_recv(40, LEN);
            pair.siw.ask(&format!(
                "send name=s id=2 region=r offset=0 length={LEN} invalidate={stag}"
            ));
            let received = pair.xwarp.done(40, Opcode::Receive);
            assert_eq!(received.invalidated, Some(remote.stag));
            assert_eq!(pair.siw.poll("s", 1)[0].status, "success");
            (remote, region)
        }
        other => panic!("{other}"),
    }
}

/// siw tries `verb` at each place, in either role. `status` is what siw reports of it.
fn each(verb: &str, cases: &[(&str, TermCode)], status: &str) {
    let channel = match verb {
        "send" => Channel::Completion,
        _ => Channel::Event,
    };
    with_guest(|lab, guest| {
        let mut told = 0;
        for role in Role::BOTH {
            for (name, code) in cases {
                let what = format!("{verb}, {name}, {role:?}");
                let mut pair = connect(lab, guest, role);
                let other = ["shared", "another queue pair's"].contains(name);
                let other = other.then(|| another(&pair));
                let (remote, region) = place(&mut pair, name, other.as_ref());
                let before = region.as_ref().map(|region| region.bytes().to_vec());
                pair.xwarp.end.post_recv(50, LEN);
                let (Stag(stag), to) = (remote.stag, remote.to);
                let aim = if verb == "send" {
                    format!("invalidate={stag}")
                } else {
                    format!("stag={stag} to={to}")
                };
                pair.siw.ask(&format!(
                    "{verb} name=s id=1 region=r offset=0 length={LEN} {aim}"
                ));
                told += usize::from(assert_refused(guest, &mut pair, &what, *code, channel));
                assert_siw_reports(&mut pair, &what, status);
                let ours = receive_status(verb, *code);
                assert_xwarp_reports(&mut pair, &what, ours);
                let after = region.as_ref().map(|region| region.bytes().to_vec());
                assert!(before == after, "{what}: the region has changed");
            }
        }
        assert!(told > cases.len(), "siw was told {told} times only");
    });
}

/// One more queue pair of the protection domain.
fn another(pair: &Pair<'_>) -> QueuePair {
    let cq = &pair.xwarp.cq;
    let other = pair.xwarp.pd.create_qp(&QpConfig::default(), cq, cq);
    other.expect("a queue pair")
}

/// What becomes of xwarp's receive: it is flushed, unless it is the one of the Send that is
/// refused.
fn receive_status(verb: &str, code: TermCode) -> CompletionStatus {
    match (verb, code.code()) {
        ("send", 0) => CompletionStatus::InvalidStag,
        ("send", _) => CompletionStatus::InvalidateRefused,
        _ => CompletionStatus::Flushed,
    }
}

#[test]
fn writes_to_where_they_may_not() {
    let cases = [
        ("unknown", TermCode::ddp_tagged(0)),
        ("wrong key", TermCode::ddp_tagged(0)),
        ("beyond the end", TermCode::ddp_tagged(1)),
        ("far beyond the end", TermCode::ddp_tagged(1)),
        ("wraps", TermCode::ddp_tagged(3)),
        ("no remote write", TermCode::ddp_tagged(2)),
        ("foreign", TermCode::ddp_tagged(2)),
        ("another queue pair's", TermCode::ddp_tagged(2)),
        ("deregistered", TermCode::ddp_tagged(0)),
        ("invalidated", TermCode::ddp_tagged(0)),
    ];
    each("write", &cases, "success");
}

#[test]
fn reads_from_where_they_may_not() {
    let cases = [
        ("unknown", TermCode::rdmap_protection(0)),
        ("wrong key", TermCode::rdmap_protection(0)),
        ("beyond the end", TermCode::rdmap_protection(1)),
        ("far beyond the end", TermCode::rdmap_protection(1)),
        ("wraps", TermCode::rdmap_protection(4)),
        ("no remote read", TermCode::rdmap_protection(2)),
        ("foreign", TermCode::rdmap_protection(3)),
        ("another queue pair's", TermCode::rdmap_protection(3)),
        ("deregistered", TermCode::rdmap_protection(0)),
        ("invalidated", TermCode::rdmap_protection(0)),
    ];
    each("read", &cases, FLUSHED);
}

#[test]
fn sends_that_ask_for_an_invalidation_that_may_not_be() {
    let cases = [
        ("unknown", TermCode::rdmap_protection(0)),
        ("wrong key", TermCode::rdmap_protection(0)),
        ("no remote right", TermCode::rdmap_protection(2)),
        ("foreign", TermCode::rdmap_protection(9)),
        ("another queue pair's", TermCode::rdmap_protection(9)),
        ("shared", TermCode::rdmap_protection(9)),
        ("deregistered", TermCode::rdmap_protection(0)),
        ("invalidated", TermCode::rdmap_protection(0)),
    ];
    each("send", &cases, "success");
}

#[test]
fn sends_without_a_buffer_and_too_long_ones() {
    let send = format!("send name=s id=1 region=r offset=0 length={LEN}");
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            for (what, buffer, code) in [
                ("no buffer", None, TermCode::ddp_untagged(2)),
                ("too long", Some(LEN - 1), TermCode::ddp_untagged(5)),
            ] {
                let mut pair = connect(lab, guest, role);
                if let Some(len) = buffer {
                    pair.xwarp.end.post_recv(50, len);
                }
                pair.siw.ask(&send);
                let channel = match buffer {
                    Some(_) => Channel::Completion,
                    None => Channel::Event,
                };
                assert_refused(guest, &mut pair, what, code, channel);
                assert_siw_reports(&mut pair, what, "success");
                if buffer.is_some() {
                    assert_xwarp_reports(&mut pair, what, CompletionStatus::BaseBounds);
                }
            }
        }
    });
}

/// A Write of many segments whose last ones leave the region: what comes before them is placed.
#[test]
fn long_write_that_leaves_its_region_late() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = connect(lab, guest, role);
            let region = region_of_xwarp(&pair, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
            let Stag(stag) = region.stag();
            pair.siw.ask("fill region=r offset=0 length=8192 seed=5");
            pair.siw.ask(&format!(
                "write name=s id=1 region=r offset=0 length=8192 stag={stag} to=0"
            ));
            let code = TermCode::ddp_tagged(1);
            assert_refused(guest, &mut pair, "a long Write", code, Channel::Event);
            let placed = region.bytes().to_vec();
            let expected = xwarp_guest_tests::siw::filling(4096, 5);
            // Two segments of 1448 bytes or a little less fit wholly, and the third not at all.
            assert!(placed[..2800] == expected[..2800], "what fits");
            assert!(placed[2900..].iter().all(|byte| *byte == 0), "the rest");
        }
    });
}

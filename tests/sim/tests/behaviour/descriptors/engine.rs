//! Descriptor of an inline engine: what wakes an event loop that waits for nothing else.

use std::fs;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, gettid};
use xwarp::config::{Progress, WaitMode};
use xwarp::work::Sgl;
use xwarp::{QpConfig, QueuePair, Rnic, RnicConfig, SendRequest, WrId};
use xwarp_driver::{Signal, Wire};
use xwarp_sim_tests::Side;
use xwarp_test_kit::{MemoryRnic, TIMEOUT, eventually, spawn_numbered, thread_sleeps};

/// An RNIC whose engine those turn who call it.
fn inline() -> (Rnic, Wire) {
    let config = RnicConfig::default()
        .progress(Progress::Inline)
        .wait_mode(WaitMode::Blocking);
    let rnic = MemoryRnic::at(Side::A).announced().config(config);
    rnic.open()
}

/// An RNIC whose engine has nothing to do, and an Idle queue pair.
fn idle() -> (QueuePair, Rnic, Wire) {
    let (rnic, wire) = inline();
    let (pd, cq) = (rnic.allocate_pd().unwrap(), rnic.create_cq(16).unwrap());
    let qp = pd.create_qp(&QpConfig::default(), &cq, &cq).unwrap();
    settle(&rnic);
    (qp, rnic, wire)
}

fn is_readable_within(rnic: &Rnic, timeout: Duration) -> bool {
    let mut watched = [PollFd::new(rnic.as_fd(), PollFlags::POLLIN)];
    poll(&mut watched, PollTimeout::try_from(timeout).unwrap()).unwrap() == 1
}

fn is_readable(rnic: &Rnic) -> bool {
    is_readable_within(rnic, Duration::ZERO)
}

/// What an event loop does until it sleeps.
fn settle(rnic: &Rnic) {
    while is_readable(rnic) {
        rnic.progress().unwrap();
    }
}

#[test]
fn engine_is_readable_when_something_is_posted() {
    let (mut qp, rnic, _wire) = idle();
    for wr_id in 0..3 {
        let request = SendRequest::send(WrId(wr_id), Sgl::new());
        qp.post_send(request).unwrap();
        assert!(is_readable(&rnic));
        settle(&rnic);
    }
}

/// A look for something that is not there.
type Look<'a> = Box<dyn FnMut() -> bool + 'a>;

/// No event loop waits, and no thread.
#[test]
fn engine_is_turned_by_a_caller_that_looks_for_something_and_finds_nothing() {
    let (rnic, wire) = inline();
    let (channel, mut cq) = (
        rnic.create_completion_channel().unwrap(),
        rnic.create_cq(16).unwrap(),
    );
    let at = (Side::A.address(), 7471).into();
    let mut listener = rnic.listen(at).unwrap();
    let mut looks: [(&str, Look<'_>); 3] = [
        (
            "channel",
            Box::new(|| channel.try_next().unwrap().is_none()),
        ),
        (
            "listener",
            Box::new(|| listener.try_accept().unwrap().is_none()),
        ),
        ("queue", Box::new(|| cq.poll().unwrap().is_none())),
    ];
    for (frames, (what, look)) in (1..).zip(&mut looks) {
        wire.deliver(vec![0; 60]);
        assert!(look(), "{what}");
        assert_eq!(rnic.counters().unwrap().io.rx_frames, frames, "{what}");
    }
}

#[test]
fn query_leaves_the_engine_nothing_to_do() {
    let (_qp, rnic, _wire) = idle();
    rnic.counters().unwrap();
    assert!(!is_readable(&rnic));
}

#[test]
fn engine_is_readable_when_a_frame_has_come() {
    let (_qp, rnic, wire) = idle();
    for _ in 0..3 {
        wire.deliver(vec![0; 60]);
        assert!(is_readable(&rnic));
        settle(&rnic);
    }
}

/// The peer does not answer, so TCP retransmits its SYN after a second.
#[test]
fn engine_is_readable_when_its_deadline_comes() {
    let (mut qp, rnic, wire) = idle();
    let peer = (Side::B.address(), 7471).into();
    let _connecting = qp.begin_connect(peer, b"", TIMEOUT).unwrap();
    settle(&rnic);
    assert!(wire.take_sent().is_some(), "the SYN");
    while wire.take_sent().is_none() {
        assert!(is_readable_within(&rnic, TIMEOUT));
        rnic.progress().unwrap();
    }
}

/// Whether a thread of this process sleeps in the kernel.
fn sleeps(thread: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let behind_name = stat.rsplit(") ").next();
    behind_name.is_some_and(|fields| fields.starts_with('S'))
}

/// A verb of another thread sets an earlier deadline than the sleeping caller's. Only this caller
/// turns the engine.
#[test]
fn caller_that_sleeps_is_woken_by_a_verb_that_sets_a_deadline() {
    let (mut qp, rnic, wire) = idle();
    let (stop, (tell, told)) = (Signal::new().unwrap(), channel());
    thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(gettid()).unwrap();
            let stopped = rnic.wait_readable(&[stop.as_fd()], TIMEOUT);
            assert!(stopped.unwrap());
        });
        let caller = told.recv().unwrap();
        eventually("the caller sleeps", || sleeps(caller));
        let peer = (Side::B.address(), 7471).into();
        let _connecting = qp.begin_connect(peer, b"", TIMEOUT).unwrap();
        let syns = || std::iter::from_fn(|| wire.take_sent()).count();
        let mut seen = 0;
        eventually("the second SYN", || {
            seen += syns();
            seen >= 2
        });
        stop.raise();
    });
}

/// Its turns may have set other deadlines than those that the loop went to sleep with.
#[test]
fn engine_is_readable_when_a_caller_that_has_waited_turns_it_no_longer() {
    let (_qp, rnic, wire) = idle();
    let (stop, (tell, told)) = (Signal::new().unwrap(), channel());
    thread::scope(|scope| {
        scope.spawn(|| {
            tell.send(gettid()).unwrap();
            assert!(rnic.wait_readable(&[stop.as_fd()], TIMEOUT).unwrap());
        });
        let caller = told.recv().unwrap();
        eventually("the caller sleeps", || sleeps(caller));
        assert!(!is_readable(&rnic));
        stop.raise();
    });
    assert!(is_readable(&rnic));
    settle(&rnic);
    wire.deliver(vec![0; 60]);
    assert!(is_readable(&rnic), "frames are announced again");
}

/// The caller has slept, and has left the descriptor as it was before the first turn of the engine.
#[test]
fn engine_is_readable_for_an_event_loop_that_begins_after_a_caller_has_waited() {
    let (rnic, wire) = inline();
    let quiet = Signal::new().unwrap();
    let nothing = rnic.wait_readable(&[quiet.as_fd()], Duration::from_millis(1));
    assert!(!nothing.unwrap());
    wire.deliver(vec![0; 60]);
    assert!(is_readable(&rnic));
    settle(&rnic);
    assert_eq!(rnic.counters().unwrap().io.rx_frames, 1);
    wire.deliver(vec![0; 60]);
    assert!(is_readable(&rnic), "frames are announced from now on");
}

#[test]
fn engine_that_is_closed_while_a_caller_sleeps_stays_readable() {
    let (rnic, _wire) = inline();
    let quiet = Signal::new().unwrap();
    thread::scope(|scope| {
        let (caller, waits) =
            spawn_numbered(scope, || rnic.wait_readable(&[quiet.as_fd()], TIMEOUT));
        eventually("the caller sleeps", || thread_sleeps(caller));
        rnic.close().unwrap();
        assert!(waits.join().unwrap().is_err());
    });
    assert!(is_readable(&rnic) && rnic.progress().is_err());
}

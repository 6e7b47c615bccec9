//! A side that goes while a connection is being made: the other one notices, and the next
//! connection works.

use std::net::SocketAddr;
use std::time::Duration;

use ::xwarp::QpState;
use ::xwarp::cm::ConnectionRequest;
use ::xwarp::error::{AcceptError, ConnectError};
use ::xwarp::event::AsyncEventKind;
use nix::sys::signal::Signal;
use xwarp_guest_tests::siw::{Guest, Peer, XWARP_ADDRESS};
use xwarp_system_tests::{DEV, TIMEOUT, eventually};
use xwarp_test_kit::next_request;

use crate::pair::assert_works;
use crate::xwarp::{Setup, Xwarp};
use crate::{PORT, Pair, Role, with_guest};

fn listening<'a>(guest: &'a Guest<'a>) -> Peer<'a> {
    let mut siw = Peer::start(guest);
    let address = guest.address();
    siw.ask(&format!("listen name=l address={address} port={PORT}"));
    siw
}

fn resolved<'a>(guest: &'a Guest<'a>) -> Peer<'a> {
    let mut siw = Peer::start(guest);
    siw.ask(&format!(
        "resolve name=s address={XWARP_ADDRESS} port={PORT}"
    ));
    siw
}

#[test]
fn syn_that_nobody_answers_ends_in_time_or_when_it_is_given_up() {
    with_guest(|lab, guest| {
        // The neighbours are known from now on.
        assert_works(lab, guest);
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        lab.pull_out(1);
        let at = guest.at(PORT);
        let limit = Duration::from_secs(1);
        let waiting = xwarp.begin_connect(at, limit).expect("a way");
        match waiting.wait() {
            Err(ConnectError::TimedOut { stage, .. }) => {
                assert_eq!(stage, "no answer to the TCP SYN");
            }
            other => panic!("{other:?}"),
        }
        let waiting = xwarp.begin_connect(at, TIMEOUT).expect("a way");
        xwarp.end.qp.begin_disconnect().expect("an engine");
        let outcome = waiting.wait();
        assert!(
            matches!(outcome, Err(ConnectError::PeerClosed(_))),
            "{outcome:?}"
        );
        assert_eq!(xwarp.end.qp.state(), QpState::Idle);
        lab.plug_in(1);
        drop(xwarp);
        assert_works(lab, guest);
    });
}

#[test]
fn siw_that_is_killed_with_its_syn_unanswered_leaves_nothing() {
    with_guest(|lab, guest| {
        let xwarp = Xwarp::open(lab, &Setup::default());
        let mut listener = xwarp.listen();
        let mut siw = resolved(guest);
        lab.pull_out(1);
        siw.begin("connect name=s");
        eventually("the SYN", || {
            let sockets = guest.run("ss -tn state syn-sent").succeeded();
            sockets.output.contains(&format!("{XWARP_ADDRESS}:{PORT}"))
        });
        drop(siw);
        lab.plug_in(1);
        assert!(listener.try_accept().unwrap().is_none());
        drop((listener, xwarp));
        assert_works(lab, guest);
    });
}

/// How siw goes while a connection is being made.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Closes,
    IsKilled,
}

impl Leaving {
    const BOTH: [Self; 2] = [Self::Closes, Self::IsKilled];

    /// The peer that is left, if any.
    fn leave(self, mut siw: Peer<'_>) -> Option<Peer<'_>> {
        match self {
            Self::Closes => {
                siw.ask("close name=s");
                Some(siw)
            }
            // Its end kills the process.
            Self::IsKilled => None,
        }
    }
}

#[test]
fn siw_that_goes_with_a_request_unanswered_rejects_it() {
    with_guest(|lab, guest| {
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        for how in Leaving::BOTH {
            let mut siw = listening(guest);
            let waiting = xwarp.begin_connect(guest.at(PORT), TIMEOUT);
            let waiting = waiting.expect("a way");
            siw.ask("take listener=l name=s");
            let _left = how.leave(siw);
            let outcome = waiting.wait();
            let rejected = matches!(outcome, Err(ConnectError::Rejected { .. }));
            assert!(rejected, "{how:?}: {outcome:?}");
            assert_eq!(xwarp.end.qp.state(), QpState::Idle);
        }
        drop(xwarp);
        assert_works(lab, guest);
    });
}

#[test]
fn xwarp_that_gives_up_before_the_reply_is_noticed_by_siw() {
    with_guest(|lab, guest| {
        let mut siw = listening(guest);
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        let waiting = xwarp.begin_connect(guest.at(PORT), TIMEOUT);
        let waiting = waiting.expect("a way");
        siw.ask("take listener=l name=s");
        xwarp.end.qp.begin_disconnect().expect("an engine");
        let outcome = waiting.wait();
        assert!(
            matches!(outcome, Err(ConnectError::PeerClosed(_))),
            "{outcome:?}"
        );
        assert_accept_is_in_vain(&mut siw);
        assert_eq!(xwarp.end.qp.state(), QpState::Idle);
        drop((xwarp, siw));
        assert_works(lab, guest);
    });
}

/// siw accepts after its peer has gone: the call fails, or the connection ends at once.
fn assert_accept_is_in_vain(siw: &mut Peer<'_>) {
    if siw.try_ask("accept name=s").is_err() {
        return;
    }
    let event = siw.ask("event name=s");
    if event.text("event") == "ESTABLISHED" {
        siw.expect_event("s", "DISCONNECTED");
    } else {
        assert_eq!(event.text("event"), "CONNECT_ERROR", "{event:?}");
    }
}

#[test]
fn xwarp_that_is_killed_before_the_reply_is_noticed_by_siw() {
    with_guest(|lab, guest| {
        let mut siw = listening(guest);
        let address = guest.address();
        let command = format!("ping {address} --port {PORT} --dev {DEV} --count 1");
        let mut xwarp = lab.xwarp.start(&command);
        siw.ask("take listener=l name=s timeout=15000");
        xwarp.signal(Signal::SIGKILL);
        xwarp.finish().killed_by(Signal::SIGKILL);
        assert_accept_is_in_vain(&mut siw);
        assert_eq!(lab.xwarp.program(), None, "an XDP program is left");
        drop(siw);
        assert_works(lab, guest);
    });
}

/// The kernel answers for a listener whose process is gone.
#[test]
fn xwarp_that_is_killed_before_it_answers_a_syn_refuses_the_next() {
    with_guest(|lab, guest| {
        let mut siw = resolved(guest);
        let mut xwarp = lab.xwarp.start(&format!("ping --port {PORT} --dev {DEV}"));
        xwarp.line("waiting for a client at ");
        xwarp.signal(Signal::SIGSTOP);
        siw.begin("connect name=s");
        eventually("the SYN", || {
            let sockets = guest.run("ss -tn state syn-sent").succeeded();
            sockets.output.contains(&format!("{XWARP_ADDRESS}:{PORT}"))
        });
        xwarp.signal(Signal::SIGKILL);
        xwarp.finish().killed_by(Signal::SIGKILL);
        let refused = siw.answer();
        assert!(refused.is_err(), "{refused:?}");
        drop(siw);
        assert_works(lab, guest);
    });
}

/// siw's Request at a listener of xwarp's.
fn request<'a>(
    xwarp: &Xwarp<'_>,
    guest: &'a Guest<'a>,
) -> (Peer<'a>, ::xwarp::Listener, ConnectionRequest) {
    let mut listener = xwarp.listen();
    let mut siw = resolved(guest);
    siw.ask("connect name=s");
    let request = next_request(&mut listener);
    (siw, listener, request)
}

/// siw waits for the Reply's 10 s before it closes, even when its process is killed.
#[test]
#[ignore = "takes as long as siw waits for a Reply"]
fn siw_that_goes_before_the_reply_cannot_be_accepted() {
    with_guest(|lab, guest| {
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        for how in Leaving::BOTH {
            let (siw, listener, request) = request(&xwarp, guest);
            let _left = how.leave(siw);
            eventually("siw's socket is closed", || {
                let sockets = guest.run("ss -tn state established").succeeded();
                !sockets.output.contains(&format!("{XWARP_ADDRESS}:{PORT}"))
            });
            match request.accept(&mut xwarp.end.qp, b"") {
                Err(AcceptError::PeerGone) => {
                    assert_eq!(xwarp.end.qp.state(), QpState::Idle, "{how:?}");
                }
                other => panic!("{how:?}: {other:?}"),
            }
            drop(listener);
        }
        drop(xwarp);
        assert_works(lab, guest);
    });
}

#[test]
fn xwarp_that_goes_before_the_reply_is_noticed_by_siw() {
    with_guest(|lab, guest| {
        for rnic_goes in [false, true] {
            let xwarp = Xwarp::open(lab, &Setup::default());
            let (mut siw, listener, request) = request(&xwarp, guest);
            if rnic_goes {
                drop((listener, xwarp, request));
            } else {
                drop(request);
            }
            let told = siw.ask("event name=s timeout=15000");
            assert_eq!(
                told.text("event"),
                "REJECTED",
                "RNIC: {rnic_goes}, {told:?}"
            );
        }
        assert_works(lab, guest);
    });
}

#[test]
fn either_side_may_go_before_the_first_message() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let Pair { xwarp, siw, .. } = Pair::connect(lab, guest, role, &Setup::default());
            drop(siw);
            eventually("the end", || {
                matches!(xwarp.end.qp.state(), QpState::Idle | QpState::Error)
            });
            match xwarp.event() {
                AsyncEventKind::Closed
                | AsyncEventKind::ConnectionReset
                | AsyncEventKind::ConnectionLost { .. } => {}
                other => panic!("{role:?}: {other:?}"),
            }
            drop(xwarp);
            let Pair { xwarp, mut siw, .. } = Pair::connect(lab, guest, role, &Setup::default());
            drop(xwarp);
            siw.expect_event("s", "DISCONNECTED");
        }
        assert_works(lab, guest);
    });
}

#[test]
fn port_without_a_listener_refuses_in_either_direction() {
    with_guest(|lab, guest| {
        let mut xwarp = Xwarp::open(lab, &Setup::default());
        let at = SocketAddr::new(guest.address(), PORT);
        let outcome = xwarp.connect(at, b"");
        assert!(
            matches!(outcome, Err(ConnectError::Refused(_))),
            "{outcome:?}"
        );
        let mut siw = resolved(guest);
        let refused = siw.try_ask("connect name=s");
        assert!(refused.is_err(), "{refused:?}");
    });
}

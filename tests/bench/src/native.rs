//! Calls of the native verbs.

use xwarp::work::Payload;
use xwarp::{RecvRequest, SendRequest, WorkCompletion, WrId};

use crate::calls::{Caller, Fate, LEN, Round, calls, counted};
use crate::hosts::{BURST, Hosts, Manner};

/// Turns within which the work of a round has completed.
const TURNS: usize = 40;
const DATA: [u8; LEN as usize] = [0x5a; LEN as usize];

/// A requester whose calls are counted, and its peer; places for completions.
pub(crate) struct Native(Hosts, [WorkCompletion; BURST]);

/// The names of a round's requests.
fn names() -> impl Iterator<Item = WrId> {
    (0..BURST as u64).map(WrId)
}

#[inline]
fn write(caller: &mut Native) {
    let Hosts {
        requester,
        responder,
        ..
    } = &mut caller.0;
    let (local, remote) = (requester.region.local(0, LEN), responder.region.remote(0));
    let qp = &mut requester.qps[0];
    for name in names() {
        let posted = qp.post_send(SendRequest::write(name, local, remote));
        posted.expect("an empty queue");
    }
}

#[inline]
fn inline(caller: &mut Native) {
    let Hosts {
        requester,
        responder,
        ..
    } = &mut caller.0;
    let remote = responder.region.remote(0);
    let qp = &mut requester.qps[0];
    for name in names() {
        let posted = qp.post_send(SendRequest::write(name, Payload::inline(&DATA), remote));
        posted.expect("an empty queue");
    }
}

#[inline]
fn list(caller: &mut Native) {
    let Hosts {
        requester,
        responder,
        ..
    } = &mut caller.0;
    let (local, remote) = (requester.region.local(0, LEN), responder.region.remote(0));
    let requests = names().map(|name| SendRequest::write(name, local, remote));
    let posted = requester.qps[0].post_send_list(requests);
    posted.expect("an empty queue");
}

#[inline]
fn receive(caller: &mut Native) {
    let requester = &mut caller.0.requester;
    let local = requester.region.local(0, LEN);
    let qp = &mut requester.qps[0];
    for name in names() {
        let posted = qp.post_recv(RecvRequest::new(name, local));
        posted.expect("an empty queue");
    }
}

#[inline]
fn poll(caller: &mut Native, is_success: bool) {
    let cq = &mut caller.0.requester.cq;
    for _ in 0..BURST {
        let polled = cq.poll().expect("an open RNIC");
        assert!(polled.expect("a completion").is_success() == is_success);
    }
}

#[inline]
fn success(caller: &mut Native) {
    poll(caller, true);
}

#[inline]
fn flushed(caller: &mut Native) {
    poll(caller, false);
}

#[inline]
fn polls(caller: &mut Native) {
    let polled = caller.0.requester.cq.poll_into(&mut caller.1);
    assert_eq!(polled.expect("an open RNIC"), BURST);
    assert!(caller.1.iter().all(WorkCompletion::is_success));
}

counted! { Native:
    call_native_write = write;
    call_native_inline = inline;
    call_native_list = list;
    call_native_receive = receive;
    call_native_success = success;
    call_native_flushed = flushed;
    call_native_polls = polls;
}

impl Caller for Native {
    const ROUNDS: &'static [Round<Self>] = &[
        Round {
            fate: Fate::Done,
            post: calls!(call_native_write = write),
            poll: calls!(call_native_success = success),
        },
        Round {
            fate: Fate::Done,
            post: calls!(call_native_inline = inline),
            poll: calls!(call_native_polls = polls),
        },
        Round {
            fate: Fate::Done,
            post: calls!(call_native_list = list),
            poll: calls!(polls),
        },
        Round {
            fate: Fate::Received,
            post: calls!(call_native_receive = receive),
            poll: calls!(polls),
        },
        Round {
            fate: Fate::Flushed,
            post: calls!(receive),
            poll: calls!(call_native_flushed = flushed),
        },
    ];

    fn new() -> Self {
        let mut hosts = Hosts::for_bursts(Manner::PLAIN);
        hosts.grow(1);
        Self(hosts, [WorkCompletion::empty(); BURST])
    }

    fn settle(&mut self, fate: Fate) {
        let hosts = &mut self.0;
        match fate {
            Fate::Done => {}
            Fate::Received => hosts.responder.send_burst(LEN),
            Fate::Flushed => hosts.requester.qps[0].abort().expect("an open RNIC"),
        }
        for _ in 0..TURNS {
            if hosts.turn() == 0 {
                break;
            }
        }
        if fate == Fate::Received {
            hosts.responder.take_burst();
        }
        hosts.pause();
    }
}

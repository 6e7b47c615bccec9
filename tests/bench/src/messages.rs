//! Messages of 64 bytes, one at a time, from the posting of the work request to its completion.
//! Each RNIC is over an interface in memory, whose copies are counted as well.

use std::hint::black_box;

use xwarp::{SendRequest, WorkCompletion, WrId};
use xwarp_tcp::Instant;

use crate::cases::FPDUS;
use crate::hosts::{Host, Hosts, REGION};

/// Bytes of a message.
const LEN: u32 = 64;
/// Turns within which a message has completed and was acknowledged.
const TURNS: usize = 3;
/// From one message's queue pair to the next one's: prime to all numbers of queue pairs.
const STRIDE: usize = 77;

/// What a message is.
#[derive(Clone, Copy)]
enum Kind {
    Write,
    Send,
    Read,
    Atomic,
}

impl Kind {
    fn request(self, hosts: &Hosts) -> SendRequest {
        let local = hosts.requester.region.local(0, LEN);
        let remote = hosts.responder.region.remote(REGION as u64 / 2);
        match self {
            Self::Write => SendRequest::write(WrId(1), local, remote),
            Self::Send => SendRequest::send(WrId(1), local),
            Self::Read => SendRequest::read(WrId(1), local, remote),
            Self::Atomic => SendRequest::fetch_add(WrId(1), 1, remote),
        }
    }
}

/// What a host does in a turn.
enum Work {
    /// Posts to a queue pair.
    Post(usize, SendRequest),
    /// Looks for a completion.
    Poll,
}

type Turn = fn(&mut Host, Work, Instant) -> Option<WorkCompletion>;

#[inline]
fn turn(host: &mut Host, work: Work, now: Instant) -> Option<WorkCompletion> {
    if let Work::Post(at, request) = work {
        host.qps[at].post_send(request).expect("an empty queue");
    }
    host.rnic.step_at(now);
    host.cq.poll().expect("an open RNIC")
}

/// What is counted under two names: the requester's turns and the responder's.
struct Case {
    names: [&'static str; 2],
    kind: Kind,
    queue_pairs: usize,
    requester: Turn,
    responder: Turn,
}

/// Carries one message over a queue pair: posted, placed or answered, completed, acknowledged.
fn message(hosts: &mut Hosts, at: usize, kind: Kind, [requester, responder]: [Turn; 2]) {
    if matches!(kind, Kind::Send) {
        hosts.responder.post_receive(at, LEN);
    }
    let mut work = Work::Post(at, kind.request(hosts));
    let mut completions = 0;
    for _ in 0..TURNS {
        let completion = requester(&mut hosts.requester, work, hosts.now);
        completions += completion.map_or(0, |completion| usize::from(completion.is_success()));
        hosts.forth();
        responder(&mut hosts.responder, Work::Poll, hosts.now);
        hosts.back();
        work = Work::Poll;
    }
    assert_eq!(completions, 1, "a message has not completed in time");
}

/// Counts all: [`FPDUS`] messages of each case, after as many that are not counted.
pub(crate) fn count() {
    let mut hosts = Hosts::new();
    for case in CASES {
        hosts.grow(case.queue_pairs);
        let uncounted: [Turn; 2] = [turn, turn];
        for turns in [uncounted, [case.requester, case.responder]] {
            for at in 0..FPDUS {
                message(&mut hosts, at * STRIDE % case.queue_pairs, case.kind, turns);
                hosts.pause();
            }
        }
    }
}

/// What is counted.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().flat_map(|case| case.names)
}

/// Functions for each case, under its names.
macro_rules! cases {
    ($($request:ident $respond:ident: $kind:ident, $queue_pairs:literal;)*) => {
        $(
            #[inline(never)]
            fn $request(host: &mut Host, work: Work, now: Instant) -> Option<WorkCompletion> {
                // Else functions that differ in their names only are made one.
                black_box(stringify!($request));
                turn(host, work, now)
            }

            #[inline(never)]
            fn $respond(host: &mut Host, work: Work, now: Instant) -> Option<WorkCompletion> {
                black_box(stringify!($respond));
                turn(host, work, now)
            }
        )*

        const CASES: &[Case] = &[$(Case {
            names: [stringify!($request), stringify!($respond)],
            kind: Kind::$kind,
            queue_pairs: $queue_pairs,
            requester: $request,
            responder: $respond,
        }),*];
    };
}

cases! {
    request_send_1 respond_send_1: Send, 1;
    request_read_1 respond_read_1: Read, 1;
    request_atomic_1 respond_atomic_1: Atomic, 1;
    request_write_1 respond_write_1: Write, 1;
    request_write_100 respond_write_100: Write, 100;
    request_write_1000 respond_write_1000: Write, 1000;
    request_write_10000 respond_write_10000: Write, 10_000;
}

//! Messages that are posted 64 at a time, from the posting of the list to the last completion and
//! acknowledgment. Each RNIC is over an interface in memory. Work requests are made, and frames
//! carried, outside of what is counted.

use std::hint::black_box;

use xwarp::{Opcode, RecvRequest, SendRequest, WorkCompletion, WrId};
use xwarp_tcp::Instant;

use crate::hosts::{BURST, Host, Hosts, Manner};

/// Lists that are counted.
const LISTS: usize = 25;
/// Lists before anything counts: the congestion window has its size then.
const WARM_UP: usize = 50;
/// Turns within which a list has completed and was acknowledged.
const TURNS: usize = 40;
/// Messages of one case.
pub(crate) const MESSAGES: usize = LISTS * BURST;

/// What a host does in a turn.
#[derive(Default)]
pub(crate) struct Work {
    sends: Vec<SendRequest>,
    receives: Vec<RecvRequest>,
}

/// Posts, and looks for completions; how many there were.
type Turn = fn(&mut Host, &mut Work, &mut [WorkCompletion], Instant) -> usize;

#[inline]
fn turn(host: &mut Host, work: &mut Work, done: &mut [WorkCompletion], now: Instant) -> usize {
    if !work.receives.is_empty() {
        host.post_receives(work.receives.drain(..));
    }
    if !work.sends.is_empty() {
        let posted = host.qps[0].post_send_list(work.sends.drain(..));
        posted.expect("an empty queue");
    }
    host.rnic.step_at(now);
    host.cq.poll_into(done).expect("an open RNIC")
}

/// What is counted under two names: the requester's turns and the responder's.
struct Case {
    names: [&'static str; 2],
    manner: Manner,
    kind: Opcode,
    len: u32,
    requester: Turn,
    responder: Turn,
}

impl Case {
    fn work(&self, hosts: &Hosts) -> [Work; 2] {
        let [mut requests, mut buffers] = [Work::default(), Work::default()];
        let region = &hosts.requester.region;
        for i in 0..BURST {
            let (name, at) = (WrId(i as u64), i as u64 * u64::from(self.len));
            let (local, remote) = (
                region.local(at, self.len),
                hosts.responder.region.remote(at),
            );
            requests.sends.push(match self.kind {
                Opcode::Write => SendRequest::write(name, local, remote),
                Opcode::Read => SendRequest::read(name, local, remote),
                _ => SendRequest::send(name, local),
            });
            if self.kind == Opcode::Send {
                let place = hosts.responder.region.local(at, self.len);
                buffers.receives.push(RecvRequest::new(name, place));
            }
        }
        [requests, buffers]
    }

    /// Carries one list: posted, placed or answered, completed, acknowledged.
    fn list(&self, hosts: &mut Hosts, [requester, responder]: [Turn; 2]) {
        let [mut requests, mut buffers] = self.work(hosts);
        let mut done = [WorkCompletion::empty(); BURST];
        let (mut completed, mut idle) = (0, 0);
        for _ in 0..TURNS {
            let taken = requester(&mut hosts.requester, &mut requests, &mut done, hosts.now);
            assert!(done[..taken].iter().all(WorkCompletion::is_success));
            completed += taken;
            let forth = hosts.forth();
            responder(&mut hosts.responder, &mut buffers, &mut done, hosts.now);
            idle = if forth + hosts.back() == 0 {
                idle + 1
            } else {
                0
            };
            if completed == BURST && idle > 0 {
                hosts.pause();
                return;
            }
        }
        panic!("{completed} messages of a list have completed in time");
    }
}

/// Counts all: [`MESSAGES`] messages of each case.
pub(crate) fn count() {
    for case in CASES {
        let mut hosts = Hosts::for_bursts(case.manner);
        hosts.grow(1);
        for _ in 0..WARM_UP {
            case.list(&mut hosts, [turn, turn]);
        }
        for _ in 0..LISTS {
            case.list(&mut hosts, [case.requester, case.responder]);
        }
    }
}

/// What is counted.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().flat_map(|case| case.names)
}

/// Functions for each case, under its names.
macro_rules! cases {
    ($($request:ident $respond:ident: $manner:ident, $kind:ident, $len:literal;)*) => {
        $(
            #[inline(never)]
            fn $request(host: &mut Host, work: &mut Work, done: &mut [WorkCompletion], now: Instant) -> usize {
                // Else functions that differ in their names only are made one.
                black_box(stringify!($request));
                turn(host, work, done, now)
            }

            #[inline(never)]
            fn $respond(host: &mut Host, work: &mut Work, done: &mut [WorkCompletion], now: Instant) -> usize {
                black_box(stringify!($respond));
                turn(host, work, done, now)
            }
        )*

        const CASES: &[Case] = &[$(Case {
            names: [stringify!($request), stringify!($respond)],
            manner: Manner::$manner,
            kind: Opcode::$kind,
            len: $len,
            requester: $request,
            responder: $respond,
        }),*];
    };
}

cases! {
    burst_request_write_8 burst_respond_write_8: PLAIN, Write, 8;
    burst_request_write_64 burst_respond_write_64: PLAIN, Write, 64;
    burst_request_write_512 burst_respond_write_512: PLAIN, Write, 512;
    burst_request_write_4096 burst_respond_write_4096: PLAIN, Write, 4096;
    burst_request_send_8 burst_respond_send_8: PLAIN, Send, 8;
    burst_request_send_64 burst_respond_send_64: PLAIN, Send, 64;
    burst_request_send_512 burst_respond_send_512: PLAIN, Send, 512;
    burst_request_send_4096 burst_respond_send_4096: PLAIN, Send, 4096;
    burst_request_read_8 burst_respond_read_8: PLAIN, Read, 8;
    burst_request_read_64 burst_respond_read_64: PLAIN, Read, 64;
    burst_request_read_512 burst_respond_read_512: PLAIN, Read, 512;
    burst_request_read_4096 burst_respond_read_4096: PLAIN, Read, 4096;
    burst_request_send_64_shared burst_respond_send_64_shared: SHARED, Send, 64;
    burst_request_send_512_shared burst_respond_send_512_shared: SHARED, Send, 512;
    burst_request_write_64_markers burst_respond_write_64_markers: MARKERS, Write, 64;
    burst_request_send_64_markers burst_respond_send_64_markers: MARKERS, Send, 64;
    burst_request_write_512_markers burst_respond_write_512_markers: MARKERS, Write, 512;
    burst_request_write_64_unchecked burst_respond_write_64_unchecked: UNCHECKED, Write, 64;
    burst_request_send_64_unchecked burst_respond_send_64_unchecked: UNCHECKED, Send, 64;
}

//! Random verbs with random arguments, from several threads: each result is one of its manual page,
//! and no object is left.

use std::ffi::c_int;
use std::ptr::{self, with_exposed_provenance_mut};
use std::sync::Mutex;
use std::thread;

use nix::errno::Errno;
use proptest::collection::vec;
use proptest::prelude::*;

use super::testbed::{Bed, Host, LEN};
use crate::abi::Zeroed;
use crate::abi::numbers::{IBV_QP_STATE, IBV_SEND_INLINE};
use crate::abi::verbs::{
    Rdma, Target, ibv_device_attr, ibv_mr, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr,
    ibv_sge, ibv_srq_attr, ibv_srq_init_attr, ibv_wc,
};
use crate::entry::lock;
use crate::verbs::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::verbs::cq::{ibv_create_cq, ibv_destroy_cq, ibv_resize_cq};
use crate::verbs::mr::{ibv_dereg_mr, ibv_reg_mr, ibv_rereg_mr};
use crate::verbs::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::verbs::qp::{ibv_create_qp, ibv_destroy_qp, ibv_modify_qp, ibv_query_qp};
use crate::verbs::query::ibv_query_device;
use crate::verbs::srq::{ibv_create_srq, ibv_destroy_srq, ibv_modify_srq, ibv_query_srq};

/// The largest error number of Linux.
const LARGEST: c_int = 133;
/// A panic that was caught.
const PANICKED: c_int = Errno::ENOTRECOVERABLE as c_int;
/// Pieces of a list at most.
const PIECES: usize = 17;

/// Kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Domain,
    Region,
    Completions,
    Pair,
    SharedReceives,
    Channel,
    Window,
}

const KINDS: [Kind; 7] = [
    Kind::Domain,
    Kind::Region,
    Kind::Completions,
    Kind::Pair,
    Kind::SharedReceives,
    Kind::Channel,
    Kind::Window,
];

/// A verb, and the kinds of its arguments.
#[derive(Clone, Copy, Debug)]
struct Step {
    verb: u8,
    pick: usize,
    other: usize,
    number: u32,
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![0..32_u32, any::<u32>(), Just(0), Just(u32::MAX)];
    (any::<u8>(), any::<usize>(), any::<usize>(), number).prop_map(|(verb, pick, other, number)| {
        Step {
            verb,
            pick,
            other,
            number,
        }
    })
}

/// All handles that were ever returned, by address, and keys of regions.
struct Program<'a> {
    host: &'a Host,
    handles: Mutex<Vec<(Kind, usize)>>,
    keys: Mutex<Vec<u32>>,
}

// SAFETY: handles may be used from any thread, as libibverbs promises, and the host's memory is
// reached by the RNIC alone.
unsafe impl Sync for Program<'_> {}

/// One of them, chosen by a random number.
fn one_of<T: Copy>(list: &[T], pick: usize) -> Option<T> {
    (!list.is_empty()).then(|| list[pick % list.len()])
}

impl Program<'_> {
    /// A handle of this kind as a rule, else of any, or none. It may have been destroyed.
    fn any<T>(&self, kind: Kind, pick: usize) -> *mut T {
        let handles = lock(&self.handles);
        let found = match pick % 8 {
            0 => None,
            1 => one_of(&handles, pick / 8),
            _ => one_of(&of_kind(&handles, kind), pick / 8),
        };
        found.map_or(ptr::null_mut(), |(_, address)| {
            with_exposed_provenance_mut(address)
        })
    }

    /// A handle that the data path accepts: of the right kind, destroyed or not.
    fn pair<T>(&self, kind: Kind, pick: usize) -> *mut T {
        let found = one_of(&of_kind(&lock(&self.handles), kind), pick);
        found.map_or(ptr::null_mut(), |(_, address)| {
            with_exposed_provenance_mut(address)
        })
    }

    /// Records the created object, or the error.
    fn made<T>(&self, kind: Kind, handle: *mut T) {
        if handle.is_null() {
            check(Errno::last_raw());
        } else {
            lock(&self.handles).push((kind, handle.expose_provenance()));
        }
    }

    /// A piece of existing memory, by the key of a region or an invalid key.
    fn piece(&self, step: Step) -> ibv_sge {
        let offset = step.other % LEN;
        ibv_sge {
            addr: self.host.memory.addr() as u64 + offset as u64,
            length: step.number % u32::try_from(LEN - offset + 1).unwrap_or(1),
            lkey: one_of(&lock(&self.keys), step.pick).unwrap_or(step.number),
        }
    }

    fn run(&self, step: Step) {
        match step.verb % 24 {
            0..8 => self.make(step),
            8..13 => self.destroy(step),
            13..17 => self.change(step),
            17..19 => self.send(step),
            19..21 => self.receive(step),
            21 => self.query(step),
            22 => self.poll(step),
            _ => self.arm(step),
        }
    }

    fn make(&self, step: Step) {
        let Step {
            verb,
            pick,
            other,
            number,
        } = step;
        let context = if pick % 16 == 0 {
            ptr::null_mut()
        } else {
            self.host.context
        };
        let signed = number.cast_signed();
        match one_of(&KINDS, usize::from(verb) / 24).unwrap_or(Kind::Pair) {
            Kind::Domain => self.made(Kind::Domain, ibv_alloc_pd(context)),
            Kind::Region => self.register(step),
            Kind::Completions => {
                let channel = self.any(Kind::Channel, other);
                let cq = ibv_create_cq(context, signed, ptr::null_mut(), channel, 0);
                self.made(Kind::Completions, cq);
            }
            Kind::Pair => {
                let mut attr = self.pair_attr(step);
                let attr = (pick % 32 != 0).then_some(&mut attr);
                self.made(
                    Kind::Pair,
                    ibv_create_qp(self.any(Kind::Domain, pick), attr),
                );
            }
            Kind::SharedReceives => {
                let mut attr = ibv_srq_init_attr::zeroed();
                (attr.attr.max_wr, attr.attr.max_sge) = (number, number % 20);
                let srq = ibv_create_srq(self.any(Kind::Domain, pick), Some(&mut attr));
                self.made(Kind::SharedReceives, srq);
            }
            Kind::Channel => self.made(Kind::Channel, ibv_create_comp_channel(context)),
            Kind::Window => {
                let alloc = self.host.ops().alloc_mw.expect("a slot");
                self.made(
                    Kind::Window,
                    alloc(self.any(Kind::Domain, pick), number % 4),
                );
            }
        }
    }

    fn register(&self, step: Step) {
        let piece = self.piece(step);
        let length = if step.pick % 16 == 3 {
            usize::MAX
        } else {
            piece.length as usize
        };
        let start = with_exposed_provenance_mut::<u8>(self.host.memory.expose_provenance());
        let start = start.wrapping_add(step.other % LEN);
        let domain = self.any(Kind::Domain, step.pick);
        let mr = ibv_reg_mr(
            domain,
            start.cast(),
            length,
            step.number.cast_signed() & 0xff,
        );
        if !mr.is_null() {
            // SAFETY: it was made just now, and no other thread knows it.
            lock(&self.keys).push(unsafe { (*mr).lkey });
        }
        self.made(Kind::Region, mr);
    }

    fn pair_attr(&self, step: Step) -> ibv_qp_init_attr {
        let mut attr = ibv_qp_init_attr::zeroed();
        attr.send_cq = self.any(Kind::Completions, step.other);
        attr.recv_cq = self.any(Kind::Completions, step.pick);
        if step.other.is_multiple_of(3) {
            attr.srq = self.any(Kind::SharedReceives, step.other / 3);
        }
        (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (step.number % 100_000, step.number % 64);
        (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (step.number % 20, step.number % 19);
        attr.cap.max_inline_data = step.number % 300;
        attr.qp_type = if step.pick % 8 == 5 { step.number } else { 2 };
        attr
    }

    fn destroy(&self, step: Step) {
        let Some(kind) = one_of(&KINDS, usize::from(step.verb) / 24) else {
            return;
        };
        check(self.destroy_one(kind, self.any(kind, step.pick)));
    }

    /// Objects that the test still needs remain.
    fn destroy_one(&self, kind: Kind, handle: *mut std::ffi::c_void) -> c_int {
        let host = self.host;
        let kept = [
            host.pd.addr(),
            host.cq.addr(),
            host.mr.addr(),
            host.qp.addr(),
            host.channel.addr(),
        ];
        if kept.contains(&handle.addr()) {
            return 0;
        }
        match kind {
            Kind::Domain => ibv_dealloc_pd(handle.cast()),
            Kind::Region => ibv_dereg_mr(handle.cast()),
            Kind::Completions => ibv_destroy_cq(handle.cast()),
            Kind::Pair => ibv_destroy_qp(handle.cast()),
            Kind::SharedReceives => ibv_destroy_srq(handle.cast()),
            Kind::Channel => ibv_destroy_comp_channel(handle.cast()),
            Kind::Window => host.ops().dealloc_mw.expect("a slot")(handle.cast()),
        }
    }

    fn change(&self, step: Step) {
        let Step {
            pick,
            other,
            number,
            ..
        } = step;
        match usize::from(step.verb) / 24 % 4 {
            0 => {
                let mut attr = ibv_qp_attr::zeroed();
                attr.qp_state = number % 9;
                let mask = if other % 2 == 0 { IBV_QP_STATE } else { number }.cast_signed();
                check(ibv_modify_qp(self.any(Kind::Pair, pick), Some(&attr), mask));
            }
            1 => check(ibv_resize_cq(
                self.any(Kind::Completions, pick),
                number.cast_signed(),
            )),
            2 => {
                let attr = ibv_srq_attr {
                    max_wr: number,
                    max_sge: 1,
                    srq_limit: number % 64,
                };
                let mask = c_int::from(other % 4 == 0) + 2;
                check(ibv_modify_srq(
                    self.any(Kind::SharedReceives, pick),
                    Some(&attr),
                    mask,
                ));
            }
            _ => {
                let (flags, rights) = (number.cast_signed() & 15, number.cast_signed() >> 4 & 0xff);
                let start = with_exposed_provenance_mut::<u8>(self.host.memory.expose_provenance());
                let domain = self.any(Kind::Domain, other);
                let mr = self.any::<ibv_mr>(Kind::Region, pick);
                // The test's own region stays in its domain.
                let mr = if ptr::eq(mr, self.host.mr) {
                    ptr::null_mut()
                } else {
                    mr
                };
                let done = ibv_rereg_mr(mr, flags, domain, start.cast(), 1 + other % LEN, rights);
                // Below -1 it reports how far it came; the reason is in errno.
                check(if done < 0 { Errno::last_raw() } else { done });
            }
        }
    }

    fn send(&self, step: Step) {
        let mut pieces = [self.piece(step); PIECES];
        let mut wr = ibv_send_wr::zeroed();
        (wr.wr_id, wr.opcode) = (u64::from(step.number), step.number % 12);
        wr.send_flags = u32::try_from(step.other % 64).unwrap_or_default();
        wr.sg_list = pieces.as_mut_ptr();
        wr.num_sge = count(step);
        let rdma = Rdma {
            remote_addr: self.host.memory.addr() as u64,
            rkey: one_of(&lock(&self.keys), step.other).unwrap_or(step.number),
        };
        wr.wr = Target { rdma };
        // An endless list is as long as the queue.
        let endless = step.pick % 16 == 7 && wr.send_flags & IBV_SEND_INLINE == 0;
        if endless {
            wr.next = &raw mut wr;
        }
        let mut bad = ptr::null_mut();
        let post = self.host.ops().post_send.expect("a slot");
        let failed = post(
            self.pair(Kind::Pair, step.pick),
            &raw mut wr,
            Some(&mut bad),
        );
        check(failed);
        assert!(failed == 0 || ptr::eq(bad, &raw const wr), "{step:?}");
    }

    fn receive(&self, step: Step) {
        let mut pieces = [self.piece(step); PIECES];
        let mut wr = ibv_recv_wr::zeroed();
        (wr.wr_id, wr.sg_list) = (u64::from(step.number), pieces.as_mut_ptr());
        wr.num_sge = count(step);
        let (ops, start) = (self.host.ops(), &raw mut wr);
        if step.other.is_multiple_of(2) {
            let post = ops.post_recv.expect("a slot");
            check(post(self.pair(Kind::Pair, step.pick), start, None));
        } else {
            let post = ops.post_srq_recv.expect("a slot");
            check(post(
                self.pair(Kind::SharedReceives, step.pick),
                start,
                None,
            ));
        }
    }

    fn query(&self, step: Step) {
        match step.other % 3 {
            0 => {
                let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
                let qp = self.any(Kind::Pair, step.pick);
                check(ibv_query_qp(
                    qp,
                    Some(&mut attr),
                    step.number.cast_signed(),
                    Some(&mut init),
                ));
            }
            1 => {
                let mut attr = ibv_srq_attr::zeroed();
                check(ibv_query_srq(
                    self.any(Kind::SharedReceives, step.pick),
                    Some(&mut attr),
                ));
            }
            _ => {
                let mut attr = ibv_device_attr::zeroed();
                check(ibv_query_device(self.host.context, Some(&mut attr)));
            }
        }
    }

    fn poll(&self, step: Step) {
        let mut places = [ibv_wc::zeroed(); 4];
        let wanted = [0, 1, 4, -1][step.other % 4];
        let poll = self.host.ops().poll_cq.expect("a slot");
        let got = poll(
            self.pair(Kind::Completions, step.pick),
            wanted,
            places.as_mut_ptr(),
        );
        assert!((-1..=wanted.max(0)).contains(&got), "{step:?}: {got}");
    }

    fn arm(&self, step: Step) {
        let arm = self.host.ops().req_notify_cq.expect("a slot");
        let cq = self.pair(Kind::Completions, step.pick);
        check(arm(cq, step.number.cast_signed() % 2));
    }

    /// Destroys all remaining objects, users before the objects that they use.
    fn end(&self) {
        let order = [
            Kind::Window,
            Kind::Pair,
            Kind::Region,
            Kind::SharedReceives,
            Kind::Completions,
            Kind::Channel,
            Kind::Domain,
        ];
        let handles = lock(&self.handles);
        for kind in order {
            for (_, address) in of_kind(&handles, kind) {
                let done = self.destroy_one(kind, with_exposed_provenance_mut(address));
                // Some are destroyed already. A busy one would remain.
                assert!(
                    done == 0 || done == Errno::EINVAL as c_int,
                    "{kind:?}: {done}"
                );
            }
        }
    }
}

fn of_kind(handles: &[(Kind, usize)], kind: Kind) -> Vec<(Kind, usize)> {
    let all = handles.iter().filter(|(its, _)| *its == kind);
    all.copied().collect()
}

/// Pieces of a list: as many as exist, too many, or a negative number.
fn count(step: Step) -> c_int {
    [0, 1, 1, 2, 4, 16, 17, c_int::MAX, -1][step.other % 9]
}

/// Asserts that it is an error number of the kernel's, and not that of a panic.
fn check(errno: c_int) {
    assert!(
        (0..=LARGEST).contains(&errno) && errno != PANICKED,
        "{errno}"
    );
}

/// Two threads, whose steps interleave in any order.
fn run(steps: [Vec<Step>; 2]) {
    let bed = Bed::new();
    let host = &bed.a;
    let first = [
        (Kind::Domain, host.pd.expose_provenance()),
        (Kind::Completions, host.cq.expose_provenance()),
        (Kind::Region, host.mr.expose_provenance()),
        (Kind::Pair, host.qp.expose_provenance()),
        (Kind::Channel, host.channel.expose_provenance()),
    ];
    let program = Program {
        host,
        handles: Mutex::new(first.to_vec()),
        keys: Mutex::new(vec![host.key(), bed.b.key()]),
    };
    thread::scope(|scope| {
        for steps in steps {
            let program = &program;
            scope.spawn(move || steps.into_iter().for_each(|step| program.run(step)));
        }
    });
    program.end();
    bed.end();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_verbs_are_answered_as_the_manual_pages_say(
        one in vec(step(), 0..60),
        other in vec(step(), 0..60),
    ) {
        run([one, other]);
    }
}

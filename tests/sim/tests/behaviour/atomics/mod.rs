//! Atomic Operations: what they return and leave behind, their order, and how often they are done
//! (RFC 7306 §5).

mod limits;
mod refused;
mod wire;

use std::time::Duration;

use xwarp::work::AtomicOperation;
use xwarp::{Opcode, RemoteAddress, SendRequest, Sge, WorkCompletion, WrId};
use xwarp_sim_tests::{Done, KIB, MIB, Sim, SimEnd, Target, for_each_seed, pattern};
use xwarp_test_kit::cases;
use xwarp_test_kit::netsim::Seed;

/// Bytes of a Read that takes several round trips.
const LONG: usize = if cfg!(miri) { 20 * KIB } else { MIB };

fn sim() -> Sim {
    Sim::new(Seed(31)).one_way_delay(Duration::from_micros(50))
}

fn post_add(end: &mut SimEnd, wr_id: u64, add: u64, remote: RemoteAddress) {
    end.post(SendRequest::fetch_add(WrId(wr_id), add, remote));
}

/// All completions of the send queue, whole.
fn completions(end: &mut SimEnd) -> Vec<WorkCompletion> {
    std::iter::from_fn(|| end.send_cq().poll().unwrap()).collect()
}

/// What the Atomic Operations among them returned.
fn originals(completions: &[WorkCompletion]) -> Vec<u64> {
    completions
        .iter()
        .filter_map(WorkCompletion::original)
        .collect()
}

/// The number that eight bytes hold.
fn number(target: &Target) -> u64 {
    u64::from_ne_bytes(target.to_vec()[..8].try_into().unwrap())
}

/// Eight bytes that hold `number`.
fn holding(end: &SimEnd, number: u64) -> Target {
    let target = end.target(8);
    target.fill(&number.to_ne_bytes());
    target
}

#[test]
fn operation_returns_what_was_there_and_changes_what_its_masks_say() {
    let add = |add, mask| AtomicOperation::FetchAdd { add, mask };
    let swap = |compare, compare_mask, swap, swap_mask| AtomicOperation::CompareSwap {
        compare,
        compare_mask,
        swap,
        swap_mask,
    };
    let (old, new, all) = (0x1122_3344_5566_7788, 0xdead_beef_cafe_f00d, u64::MAX);
    #[rustfmt::skip]
    let all_cases = [
        (42, add(1, 0), 43),
        (all, add(1, 0), 0),
        (0xffff_ffff, add(1, 0x8000_0000), 0),
        (0x00ff_00ff_00ff_00ff, add(0x0001_0001_0001_0001, 0x8000_8000_8000_8000), 0x0100_0100_0100_0100),
        (old, add(0, 0), old),
        (43, swap(43, all, new, all), new),
        (44, swap(43, all, new, all), 44),
        (old, swap(0x5566_0000, 0xffff_0000, 0xaaaa_aaaa_bbbb_bbbb, 0xffff_ffff), 0x1122_3344_bbbb_bbbb),
        (old, swap(0, 0, new, all), new),
        (old, swap(old, all, new, 0), old),
    ];
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    for (original, operation, result) in cases(all_cases) {
        let (target, sink) = (holding(&b, original), a.target(8));
        let request = SendRequest::atomic(WrId(1), operation, target.remote(0));
        a.post(request.result_into(sink.local(0, 8)));
        sim.run_until_idle();
        assert_eq!(number(&target), result, "{original:#x} {operation:x?}");
        assert_eq!(number(&sink), original, "{operation:x?}");
        let done = completions(&mut a);
        assert_eq!(originals(&done), [original], "{operation:x?}");
        let opcode = match operation {
            AtomicOperation::FetchAdd { .. } => Opcode::FetchAdd,
            AtomicOperation::CompareSwap { .. } => Opcode::CompareSwap,
        };
        assert_eq!(Done::from(done[0]), Done::success(1, opcode, 8));
    }
}

#[test]
fn plain_exchanges_are_compare_swaps_of_all_bits_and_of_none() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = holding(&b, 1);
    let remote = target.remote(0);
    a.post(SendRequest::compare_swap(WrId(1), 1, 2, remote));
    a.post(SendRequest::compare_swap(WrId(2), 1, 3, remote));
    a.post(SendRequest::compare_swap(WrId(3), 2, 4, remote));
    a.post(SendRequest::swap(WrId(4), 5, remote));
    a.post(SendRequest::swap(WrId(5), 6, remote));
    sim.run_until_idle();
    assert_eq!(originals(&completions(&mut a)), [1, 2, 2, 4, 5]);
    assert_eq!(number(&target), 6);
}

#[test]
fn sink_needs_no_alignment() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (target, sink) = (holding(&b, 0x0102_0304_0506_0708), a.target(11));
    let request = SendRequest::fetch_add(WrId(1), 1, target.remote(0));
    a.post(request.result_into(sink.local(3, 8)));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::fetch_add(1)]);
    assert_eq!(sink.to_vec()[..3], [0; 3]);
    assert_eq!(sink.to_vec()[3..], 0x0102_0304_0506_0708_u64.to_ne_bytes());
}

/// RFC 7306 section 7: what was sent before is seen, and responses come in the order of the
/// requests.
#[test]
fn operations_on_one_number_take_effect_in_the_order_of_posting() {
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed);
        let (mut a, mut b) = sim.connected_pair();
        let (target, sinks) = (b.target(8), [a.target(8), a.target(8)]);
        let remote = target.remote(0);
        b.post_recv(9, 8);
        a.post_write(1, &10_u64.to_ne_bytes(), remote);
        post_add(&mut a, 2, 1, remote);
        a.post_read(3, sinks[0].local(0, 8), remote);
        post_add(&mut a, 4, 1, remote);
        a.post_read(5, sinks[1].local(0, 8), remote);
        a.post(SendRequest::compare_swap(WrId(6), 12, 100, remote));
        a.post_send(7, b"done");
        sim.run_until_idle();
        let done = completions(&mut a);
        assert_eq!(originals(&done), [10, 11, 12]);
        assert_eq!([number(&sinks[0]), number(&sinks[1])], [11, 12]);
        assert_eq!(number(&target), 100);
        #[rustfmt::skip]
        let expected = [
            Done::write(1, 8), Done::fetch_add(2), Done::read(3, 8), Done::fetch_add(4), Done::read(5, 8),
            Done::success(6, Opcode::CompareSwap, 8), Done::send(7, 4),
        ];
        assert_eq!(
            done.into_iter().map(Done::from).collect::<Vec<_>>(),
            expected
        );
        assert_eq!(b.receives(), [Done::receive(9, 4)]);
    });
}

/// A request that TCP carries twice is executed once (wire.md §6.3): the sum is exact, and no two
/// operations return the same original value.
#[test]
fn under_loss_every_addition_is_made_once() {
    const EACH: u64 = if cfg!(miri) { 6 } else { 60 };
    for_each_seed(|seed| {
        let mut sim = Sim::on_a_bad_link(seed);
        let (mut a, mut b) = sim.connected_pair();
        let (mut c, mut d) = sim.connected_pair();
        let target = b.target(8);
        for i in 0..EACH {
            post_add(&mut a, i, 1, target.remote(0));
            post_add(&mut c, i, 1, target.remote(0));
            // The other way: the number is this side's own.
            a.post_recv(i, 1);
            d.post_recv(i, 1);
            b.post_send(i, b"x");
            c.post_send(EACH + i, b"y");
        }
        sim.run_until_idle();
        let mut found = originals(&completions(&mut a));
        found.extend(originals(&completions(&mut c)));
        found.sort_unstable();
        assert_eq!(found, (0..2 * EACH).collect::<Vec<u64>>());
        assert_eq!(number(&target), 2 * EACH);
        let received = usize::try_from(EACH).unwrap();
        assert_eq!(a.receives().len(), received);
        assert_eq!(d.receives().len(), received);
    });
}

#[test]
fn fence_holds_work_back_until_atomics_have_completed() {
    for fenced in [true, false] {
        let mut sim = sim();
        let (mut a, b) = sim.connected_pair();
        let (number_at_b, sink, copy) = (holding(&b, 77), a.target(8), b.target(8));
        let request = SendRequest::fetch_add(WrId(1), 1, number_at_b.remote(0));
        a.post(request.result_into(sink.local(0, 8)));
        let write = SendRequest::write(WrId(2), sink.local(0, 8), copy.remote(0));
        a.post(if fenced { write.fenced() } else { write });
        sim.run_until_idle();
        assert_eq!(a.sends(), [Done::fetch_add(1), Done::write(2, 8)]);
        // Without a fence the Write leaves at once, with what the sink held before.
        assert_eq!(number(&copy), if fenced { 77 } else { 0 });
    }
}

#[test]
fn atomic_completes_when_its_response_is_here_and_not_before() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = holding(&b, 5);
    post_add(&mut a, 1, 1, target.remote(0));
    a.post_write(2, b"", target.remote(0));
    sim.run_for(Duration::from_micros(60));
    assert_eq!(number(&target), 6, "it is executed");
    assert_eq!(a.sends(), [], "but its response is still on its way");
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::fetch_add(1), Done::write(2, 0)]);
}

#[test]
fn atomic_behind_a_long_read_waits_for_its_turn() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (source, sink, target) = (b.target(LONG), a.target(LONG), holding(&b, 1));
    source.fill(&pattern(LONG));
    a.post_read(1, sink.local(0, LONG), source.remote(0));
    post_add(&mut a, 2, 1, target.remote(0));
    sim.run_for(Duration::from_micros(60));
    assert_eq!(number(&target), 1, "responses are in the order of requests");
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::read(1, LONG), Done::fetch_add(2)]);
    assert_eq!(number(&target), 2);
    assert!(sink.to_vec() == pattern(LONG));
}

#[test]
fn unsignaled_atomics_deliver_to_their_sink_in_silence() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let (target, sink) = (holding(&b, 9), a.target(8));
    let request = SendRequest::fetch_add(WrId(1), 1, target.remote(0));
    let place: Sge = sink.local(0, 8);
    a.post(request.result_into(place).unsignaled());
    sim.run_until_idle();
    assert_eq!(a.sends(), []);
    assert_eq!((number(&sink), number(&target)), (9, 10));
}

#[test]
fn close_waits_for_the_response() {
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let target = holding(&b, 9);
    post_add(&mut a, 1, 1, target.remote(0));
    a.qp.begin_disconnect().unwrap();
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::fetch_add(1)]);
    assert_eq!(a.events(), [xwarp::event::AsyncEventKind::Closed]);
}

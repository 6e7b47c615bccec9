//! Memory that the application unmaps, protects or truncates while it is registered. An access to
//! it ends like one out of bounds, the peer receives a Terminate, and the process survives.

use xwarp::error::TermCode;
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, RecvRequest, RemoteAddress, SendRequest, Sge,
    WrId,
};
use xwarp_driver::vanishing::{PAGE, Right, Vanishing};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, needs_link, pattern};

use super::{READ, WRITE, assert_at_fault, assert_refused, failed, outside, sim};

/// Bytes of the region.
const LEN: usize = 3 * PAGE;

/// What happens to the second page.
struct Loss {
    case: &'static str,
    memory: fn() -> Vanishing,
    lose: fn(&Vanishing),
}

const LOSSES: [Loss; 3] = [
    Loss {
        case: "unmapped",
        memory: || Vanishing::anonymous(3),
        lose: |memory| memory.unmap(1),
    },
    Loss {
        case: "protected",
        memory: || Vanishing::anonymous(3),
        lose: |memory| memory.protect(1, Right::None),
    },
    Loss {
        case: "truncated",
        memory: || Vanishing::of_file(3),
        lose: |memory| memory.truncate(1),
    },
];

/// All of the memory, as a region of `end` with all rights.
fn register(end: &SimEnd, memory: &Vanishing) -> MemoryRegion {
    let bytes = memory.share().unwrap();
    bytes.write(0, &pattern(LEN)).unwrap();
    end.host().pd().register(bytes, Access::all()).unwrap()
}

fn whole(region: &MemoryRegion) -> Sge {
    region.local(0, u32::try_from(LEN).unwrap())
}

/// Both RNICs serve other streams.
fn assert_alive(sim: &mut Sim, case: &str) {
    let (mut a, b) = sim.connected_pair();
    let region = b.region(KIB, Access::all());
    a.post_write(1, &pattern(KIB), region.remote(0));
    sim.run_until_idle();
    assert_eq!(a.sends(), [Done::write(1, KIB)], "{case}");
    assert_eq!(region.bytes().to_vec(), pattern(KIB), "{case}");
}

/// A names memory of B's whose second page is gone, and a sink of its own: B ends the stream with
/// `code`.
fn refused(code: TermCode, attack: fn(&mut SimEnd, RemoteAddress, Sge)) {
    for Loss { case, memory, lose } in LOSSES {
        let (mut sim, memory) = (sim(), memory());
        let (mut a, b) = sim.connected_pair();
        let region = register(&b, &memory);
        let sink = a.region(LEN, Access::all());
        lose(&memory);
        attack(&mut a, region.remote(0), whole(&sink));
        sim.run_until_idle();
        assert_refused(case, &a, &b, code);
        assert_alive(&mut sim, case);
    }
}

#[test]
fn write_by_the_peer_to_memory_that_is_gone_ends_the_stream() {
    refused(outside(WRITE), |a, at, _| a.post_write(1, &[7; LEN], at));
}

#[test]
fn read_by_the_peer_from_memory_that_is_gone_ends_the_stream() {
    refused(outside(READ), |a, at, sink| a.post_read(1, sink, at));
}

#[test]
fn atomic_of_the_peer_on_memory_that_is_gone_ends_the_stream() {
    refused(outside(READ), |a, at, _| {
        let to = at.to + PAGE as u64;
        a.post(SendRequest::fetch_add(
            WrId(1),
            1,
            RemoteAddress { to, ..at },
        ));
    });
}

#[test]
fn write_is_placed_up_to_the_segment_that_meets_the_gap() {
    needs_link!("it counts segments of a link's MTU");
    let mut sim = sim();
    let (mut a, b) = sim.connected_pair();
    let memory = Vanishing::anonymous(3);
    let region = register(&b, &memory);
    memory.unmap(1);
    a.post_write(1, &[7; LEN], region.remote(0));
    sim.run_until_idle();
    let placed = b.host().rnic().counters().unwrap().rdma.placed_bytes;
    let placed = usize::try_from(placed).unwrap();
    assert!(placed > 0 && placed < PAGE, "{placed} bytes");
    let mut first = vec![0; PAGE];
    region.bytes().read(0, &mut first).unwrap();
    assert_eq!(first[..placed], vec![7; placed]);
}

/// Work of B with memory of its own whose second page is gone, and memory of A.
type Work = fn(&mut SimEnd, &mut SimEnd, &MemoryRegion, RemoteAddress);

/// B does it, and its completions are `done`; how the stream ends is for `ended`.
fn used(work: Work, done: &[Done], ended: fn(&str, &SimEnd, &SimEnd)) {
    for Loss { case, memory, lose } in LOSSES {
        let (mut sim, memory) = (sim(), memory());
        let (mut a, mut b) = sim.connected_pair();
        let region = register(&b, &memory);
        let other = a.region(LEN, Access::all());
        lose(&memory);
        work(&mut b, &mut a, &region, other.remote(0));
        sim.run_until_idle();
        ended(case, &a, &b);
        assert_eq!([b.sends(), b.receives()].concat(), done, "{case}");
        assert_alive(&mut sim, case);
    }
}

#[test]
fn send_from_memory_that_is_gone_fails() {
    let send: Work = |b, a, region, _| {
        a.post_recv(9, LEN);
        b.post(SendRequest::send(WrId(1), whole(region)));
    };
    let done = failed(1, Opcode::Send, CompletionStatus::BaseBounds);
    used(send, &[done], assert_at_fault);
}

#[test]
fn write_from_memory_that_is_gone_fails() {
    let write: Work = |b, _, region, target| {
        b.post(SendRequest::write(WrId(1), whole(region), target));
    };
    let done = failed(1, Opcode::Write, CompletionStatus::BaseBounds);
    used(write, &[done], assert_at_fault);
}

/// Those in front of it in its segment leave and complete.
#[test]
fn short_write_from_memory_that_is_gone_fails_alone() {
    let writes: Work = |b, _, region, target| {
        let short = |page: u64| {
            let source = region.local(page * PAGE as u64, 64);
            SendRequest::write(WrId(page), source, target)
        };
        let list = [0, 0, 1, 2].map(short);
        b.qp.post_send_list(list).unwrap();
    };
    let gone = failed(1, Opcode::Write, CompletionStatus::BaseBounds);
    let left = Done::flushed(2, Opcode::Write);
    let done = [Done::write(0, 64), Done::write(0, 64), gone, left];
    used(writes, &done, assert_at_fault);
}

#[test]
fn receive_into_memory_that_is_gone_fails() {
    let receive: Work = |b, a, region, _| {
        let buffer = RecvRequest::new(WrId(1), whole(region));
        b.qp.post_recv(buffer).unwrap();
        a.post_send(9, &pattern(LEN));
    };
    let done = failed(1, Opcode::Receive, CompletionStatus::BaseBounds);
    used(receive, &[done], assert_at_fault);
}

#[test]
fn read_into_memory_that_is_gone_ends_the_stream() {
    let read: Work = |b, _, region, source| b.post_read(1, whole(region), source);
    let ended = |case: &str, a: &SimEnd, b: &SimEnd| assert_refused(case, a, b, outside(WRITE));
    used(read, &[Done::flushed(1, Opcode::Read)], ended);
}

#[test]
fn atomic_whose_result_has_no_place_fails() {
    let add: Work = |b, _, region, number| {
        let sink = region.local(PAGE as u64, 8);
        b.post(SendRequest::fetch_add(WrId(1), 1, number).result_into(sink));
    };
    let done = failed(1, Opcode::FetchAdd, CompletionStatus::BaseBounds);
    used(add, &[done], assert_at_fault);
}

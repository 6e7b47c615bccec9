//! Memory as the verbs draft has it (§7): who may do what through which `STag`, seen from the wire
//! and in completions. In all tests A is the peer, and B's memory is at stake.

// It unmaps memory, which Miri does not know.
#[cfg(not(miri))]
mod gone;
mod invalidation;
mod physical;
mod regions;
mod rights;
mod windows;
mod work;

use std::time::Duration;

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::work::{Operation, Sgl};
use xwarp::{
    Access, CompletionStatus, MemoryRegion, Opcode, QpState, RemoteAddress, SendRequest, Stag, WrId,
};
use xwarp_sim_tests::{Done, KIB, Sim, SimEnd, pattern};
use xwarp_test_kit::netsim::Seed;

use crate::refused::{assert_ended, assert_refused, invalidation};

/// Tagged Offset of the first byte of regions that windows are bound to.
const VA: u64 = 0x7000_0000_0123;
const LOCAL: Access = Access::LOCAL_READ.union(Access::LOCAL_WRITE);
const READ: Access = Access::REMOTE_READ;
const WRITE: Access = Access::REMOTE_WRITE;
/// What a region needs for windows of all rights; it grants the peer nothing itself.
const FOR_WINDOWS: Access = LOCAL.union(Access::BIND_WINDOWS);

fn sim() -> Sim {
    Sim::new(Seed(53))
        .one_way_delay(Duration::from_micros(50))
        .expecting(&["drop_refused_segment", "drop_after_failure"])
}

/// A connected pair, and a region of B that windows can be bound to.
fn with_region(sim: &mut Sim) -> (SimEnd, SimEnd, MemoryRegion) {
    let (a, b) = sim.connected_pair();
    let region = b.va_region(4 * KIB, FOR_WINDOWS, VA);
    (a, b, region)
}

/// Does all that waits, and expects these completions of the send queue.
fn settle(sim: &mut Sim, end: &mut SimEnd, done: &[Done]) {
    sim.run_until_idle();
    assert_eq!(end.sends(), done);
}

/// Asserts that B's own work was at fault: B's completion reports it, and A receives a Terminate
/// for a local error.
fn assert_at_fault(case: &str, a: &SimEnd, b: &SimEnd) {
    assert_eq!(b.events(), [], "{case}: the completion says it");
    let told = AsyncEventKind::TerminateReceived(TermCode::rdmap_local());
    assert_eq!(a.events(), [told], "{case}");
    assert_ended(case, a, b);
}

/// A writes 100 bytes there, or reads them: the code that the stream ends with, if it does. Nothing
/// is placed where it does.
fn attempt(
    sim: &mut Sim,
    a: &mut SimEnd,
    b: &SimEnd,
    right: Access,
    at: RemoteAddress,
) -> Option<TermCode> {
    let (before, sink) = (b.host().memory(), a.target(100));
    if right == WRITE {
        a.post_write(90, &pattern(100), at);
    } else {
        a.post_read(90, sink.local(0, 100), at);
    }
    sim.run_until_idle();
    a.sends();
    if b.state() == QpState::Rts {
        return None;
    }
    assert!(b.host().memory() == before, "memory has changed");
    let code = match a.events()[..] {
        [AsyncEventKind::TerminateReceived(code)] => code,
        ref others => panic!("{others:?}"),
    };
    let told = b.events();
    assert!(
        matches!(told[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
        "{told:?}"
    );
    assert_ended("attempt", a, b);
    Some(code)
}

/// What `attempt` ends with if the peer names no valid `STag`.
fn invalid(right: Access) -> TermCode {
    match right {
        WRITE => TermCode::ddp_tagged(0),
        _ => TermCode::rdmap_protection(0),
    }
}

/// The same if all is right but bounds.
fn outside(right: Access) -> TermCode {
    match right {
        WRITE => TermCode::ddp_tagged(1),
        _ => TermCode::rdmap_protection(1),
    }
}

/// The same for a right that is missing.
fn forbidden(right: Access) -> TermCode {
    match right {
        WRITE => TermCode::ddp_tagged(2),
        _ => TermCode::rdmap_protection(2),
    }
}

/// The same for another stream's window, or another domain's region.
fn not_associated(right: Access) -> TermCode {
    match right {
        WRITE => TermCode::ddp_tagged(2),
        _ => TermCode::rdmap_protection(3),
    }
}

/// A local work request that fails with this status.
fn failed(wr_id: u64, opcode: Opcode, status: CompletionStatus) -> Done {
    Done::failed(wr_id, opcode, status)
}

//! Refusals: remote memory that a peer must not access, and what both sides then know.

use xwarp::{
    Access, AsyncEventKind, MemoryRegion, Operation, Payload, QpState, RemoteAddress, SendRequest,
    Stag, TermCode, WrId,
};
use xwarp_sim_tests::{End, Host, KIB};

/// A region and the address in it that a peer names.
pub(crate) struct RemoteMemory {
    /// Kept registered; `None` if it is registered no more.
    pub(crate) region: Option<MemoryRegion>,
    pub(crate) address: RemoteAddress,
}

pub(crate) fn at(region: MemoryRegion, to: u64) -> RemoteMemory {
    let address = region.remote(to);
    RemoteMemory {
        region: Some(region),
        address,
    }
}

pub(crate) fn wrong_key(host: &Host) -> RemoteMemory {
    let mut memory = at(host.region(KIB, Access::all()), 0);
    memory.address.stag = Stag(memory.address.stag.0 ^ 1);
    memory
}

pub(crate) fn other_pd(host: &Host) -> RemoteMemory {
    let other = host.rnic().allocate_pd().unwrap();
    at(host.region_in(&other, KIB, Access::all()), 0)
}

pub(crate) fn deregistered(host: &Host) -> RemoteMemory {
    RemoteMemory {
        region: None,
        ..at(host.region(KIB, Access::all()), 0)
    }
}

/// A Send with Invalidate, without payload.
pub(crate) fn invalidation(wr_id: u64, stag: Stag) -> SendRequest {
    let send = Operation::Send {
        payload: Payload::default(),
        solicited: false,
        invalidate: Some(stag),
    };
    SendRequest::new(WrId(wr_id), send)
}

/// `refuser` has ended the stream with `code`, and the peer knows; both are in Error.
pub(crate) fn assert_refused(case: &str, peer: &End, refuser: &End, code: TermCode) {
    assert_eq!(refuser.ended_with(), Some(code), "{case}");
    let received = AsyncEventKind::TerminateReceived(code);
    assert_eq!(peer.events(), [received], "{case}");
    assert_ended(case, peer, refuser);
}

/// The same, and an event tells it to the refuser's application, not a completion.
pub(crate) fn assert_refused_by_event(case: &str, peer: &End, refuser: &End, code: TermCode) {
    let events = refuser.events();
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
        "{case}: {events:?}"
    );
    assert_refused(case, peer, refuser, code);
}

/// Both are in Error.
pub(crate) fn assert_ended(case: &str, a: &End, b: &End) {
    let states = (a.state(), b.state());
    assert_eq!(states, (QpState::Error, QpState::Error), "{case}");
}

//! Refusals: remote memory that a peer must not access, and what both sides then know.

use xwarp::error::TermCode;
use xwarp::event::AsyncEventKind;
use xwarp::work::{Operation, Payload};
use xwarp::{Access, MemoryRegion, QpState, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_sim_tests::{Host, KIB, SimEnd};

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

/// An access that a peer attempts: `len` bytes, for which the `STag` must have `right`.
#[derive(Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) len: usize,
    pub(crate) right: Access,
}

/// An access that is refused, and the codes: of a tagged segment (RFC 5041 §7.1), and of a Read or
/// an atomic (RFC 5040 §7.2).
pub(crate) struct RefusedAccess {
    pub(crate) case: &'static str,
    pub(crate) memory: fn(&Host, Attempt) -> RemoteMemory,
    pub(crate) tagged: TermCode,
    pub(crate) request: TermCode,
}

const fn refused(
    case: &'static str,
    memory: fn(&Host, Attempt) -> RemoteMemory,
    tagged: u8,
    request: u8,
) -> RefusedAccess {
    RefusedAccess {
        case,
        memory,
        tagged: TermCode::ddp_tagged(tagged),
        request: TermCode::rdmap_protection(request),
    }
}

fn open_to_all(host: &Host, len: usize) -> MemoryRegion {
    host.region(len, Access::all())
}

/// Where no peer may write, read or change anything.
#[rustfmt::skip]
pub(crate) const ACCESSES: [RefusedAccess; 9] = [
    refused("wrong key", |b, _| wrong_key(b), 0, 0),
    refused("deregistered", |b, _| deregistered(b), 0, 0),
    refused("last byte outside", |b, it| at(open_to_all(b, KIB - 1), (KIB - it.len) as u64), 1, 1),
    refused("behind the end", |b, _| at(open_to_all(b, KIB), KIB as u64), 1, 1),
    refused("far behind it", |b, _| at(open_to_all(b, KIB), 1 << 40), 1, 1),
    refused("wrapping", |b, it| at(open_to_all(b, KIB), u64::MAX - it.len as u64 + 2), 3, 4),
    refused("other domain", |b, _| other_pd(b), 2, 3),
    refused("no right", |b, it| at(b.region(KIB, Access::all().difference(it.right)), 0), 2, 2),
    refused("local only", |b, _| at(b.region(KIB, Access::LOCAL_READ | Access::LOCAL_WRITE), 0), 2, 2),
];

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
pub(crate) fn assert_refused(case: &str, peer: &SimEnd, refuser: &SimEnd, code: TermCode) {
    assert_eq!(refuser.ended_with(), Some(code), "{case}");
    let received = AsyncEventKind::TerminateReceived(code);
    assert_eq!(peer.events(), [received], "{case}");
    assert_ended(case, peer, refuser);
}

/// Like [`assert_refused`], where the refuser's application learns the code from an event, not from
/// a completion.
pub(crate) fn assert_refused_by_event(case: &str, peer: &SimEnd, refuser: &SimEnd, code: TermCode) {
    let events = refuser.events();
    assert!(
        matches!(events[..], [AsyncEventKind::Terminated { code: told, .. }] if told == code),
        "{case}: {events:?}"
    );
    assert_refused(case, peer, refuser, code);
}

/// Both are in Error.
pub(crate) fn assert_ended(case: &str, a: &SimEnd, b: &SimEnd) {
    let states = (a.state(), b.state());
    assert_eq!(states, (QpState::Error, QpState::Error), "{case}");
}

//! Lives of identifiers: their events, their places in the backlog, and their queues.

use std::net::SocketAddr;
use std::ptr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use xwarp_test_kit::{TIMEOUT, eventually};

use super::refused_with;
use crate::abi::Zeroed;
use crate::abi::numbers::IBV_QPT_RC;
use crate::abi::verbs::ibv_qp_init_attr;
use crate::cm::connecting::rdma_connect;
use crate::cm::events::{
    rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel, rdma_get_cm_event,
};
use crate::cm::id::{Channel, PendingEvent, Phase};
use crate::cm::life::{rdma_destroy_id, rdma_migrate_id};
use crate::cm::numbers::EventKind::{
    AddressResolved, Disconnected, Established, Rejected, RouteResolved,
};
use crate::cm::qp::{rdma_create_qp, rdma_destroy_qp};
use crate::cm::resolving::rdma_resolve_route;
use crate::cm::testbed::{Bed, at_b, found, new_id, read, shown};
use crate::object::Object;
use crate::verbs::channel;
use crate::verbs::cq::Cq;
use crate::verbs::testbed::{await_readable, is_readable};

#[test]
fn destroyed_identifier_has_no_event() {
    let handle = rdma_create_event_channel();
    let channel = Object::<Channel>::find(handle).expect("it lives");
    let id = new_id(handle);
    let known = found(id);
    channel
        .body()
        .push(PendingEvent::new(&known, AddressResolved));
    assert_eq!(rdma_destroy_id(id), 0);
    // A thread has looked the identifier up before, and reports to it now.
    channel.body().push(PendingEvent::new(&known, Disconnected));
    // SAFETY: the channel lives.
    assert!(!is_readable(unsafe { (*handle).fd }));
    rdma_destroy_event_channel(handle);
}

#[test]
fn destroying_waits_until_the_event_is_acknowledged() {
    let handle = rdma_create_event_channel();
    let channel = Object::<Channel>::find(handle).expect("it lives");
    let id = new_id(handle);
    channel
        .body()
        .push(PendingEvent::new(&found(id), AddressResolved));
    let mut event = ptr::null_mut();
    assert_eq!(rdma_get_cm_event(handle, Some(&mut event)), 0);
    let (begun, has_begun) = mpsc::channel();
    let (done, is_done) = mpsc::channel();
    let address = id.expose_provenance();
    thread::spawn(move || {
        begun.send(nix::unistd::gettid()).expect("the test waits");
        let destroyed = rdma_destroy_id(ptr::with_exposed_provenance_mut(address));
        done.send(destroyed).expect("the test waits");
    });
    let destroyer = has_begun.recv().expect("a thread");
    eventually("it waits", || super::sleeps_in(destroyer, libc::SYS_futex));
    assert!(is_done.try_recv().is_err(), "the event is not acknowledged");
    assert_eq!(rdma_ack_cm_event(event), 0);
    assert_eq!(is_done.recv_timeout(TIMEOUT), Ok(0));
    rdma_destroy_event_channel(handle);
}

/// Resources that a call gave an identifier under destruction were never released: a connection, a
/// port, queues.
#[test]
fn identifier_that_is_being_destroyed_takes_nothing_more() {
    let bed = Bed::new();
    let id = bed.a.routed(at_b());
    let (known, address) = (found(id), id.expose_provenance());
    let channel = Object::<Channel>::find(bed.a.channel).expect("it lives");
    channel
        .body()
        .push(PendingEvent::new(&known, RouteResolved));
    let event = bed.a.next();
    let destroyer = destroy_elsewhere(address);
    eventually("it is being destroyed", || known.body().living().is_err());
    refused_with(Errno::EINVAL, rdma_connect(id, None));
    rdma_destroy_qp(id);
    let mut attr = ibv_qp_init_attr::zeroed();
    attr.qp_type = IBV_QPT_RC;
    refused_with(
        Errno::EINVAL,
        rdma_create_qp(id, ptr::null_mut(), Some(&mut attr)),
    );
    assert!(shown(id, |it| it.qp).is_null() && shown(id, |it| it.send_cq).is_null());
    refused_with(Errno::EINVAL, rdma_migrate_id(id, bed.b.channel));
    refused_with(Errno::EINVAL, rdma_migrate_id(id, ptr::null_mut()));
    known.body().state().phase = Phase::Resolved;
    refused_with(Errno::EINVAL, rdma_resolve_route(id, 1));
    let second = destroy_elsewhere(address);
    assert_eq!(
        second.recv_timeout(TIMEOUT),
        Ok(-1),
        "one of two destroys it"
    );
    assert!(
        destroyer.try_recv().is_err(),
        "the event is not acknowledged"
    );
    assert_eq!(rdma_ack_cm_event(event), 0);
    assert_eq!(destroyer.recv_timeout(TIMEOUT), Ok(0));
    assert!(bed.a.is_quiet() && bed.b.is_quiet());
}

/// No call can take the event from there. It waited for as long as the listener lived.
#[test]
fn peer_that_waits_in_a_channel_is_rejected_when_that_is_destroyed() {
    let bed = Bed::new();
    let listener = bed.b.listening(1);
    let peer = bed.a.connecting(1);
    let waits = shown(listener, |it| it.channel);
    // SAFETY: the channel lives.
    await_readable(unsafe { (*waits).fd });
    rdma_destroy_event_channel(waits);
    bed.a.expect(Rejected, peer);
    assert_eq!(rdma_destroy_id(listener), 0);
}

/// Destroys an identifier in another thread; returns the result.
fn destroy_elsewhere(id: usize) -> mpsc::Receiver<i32> {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let destroyed = rdma_destroy_id(ptr::with_exposed_provenance_mut(id));
        done.send(destroyed).expect("the test waits");
    });
    is_done
}

#[test]
fn events_move_with_their_identifier_in_their_order() {
    let [from, to] = [(); 2].map(|()| rdma_create_event_channel());
    let channel = Object::<Channel>::find(from).expect("it lives");
    let (moved, stays) = (new_id(from), new_id(from));
    for (id, kind) in [
        (moved, AddressResolved),
        (stays, AddressResolved),
        (moved, RouteResolved),
    ] {
        channel.body().push(PendingEvent::new(&found(id), kind));
    }
    assert_eq!(rdma_migrate_id(moved, to), 0);
    for (channel, id, kind) in [
        (to, moved, AddressResolved),
        (to, moved, RouteResolved),
        (from, stays, AddressResolved),
    ] {
        // SAFETY: the channel lives.
        assert!(is_readable(unsafe { (*channel).fd }), "{kind:?}");
        let mut event = ptr::null_mut();
        assert_eq!(rdma_get_cm_event(channel, Some(&mut event)), 0);
        let is = read(event, |it| (it.event, it.id));
        assert_eq!(is, (kind as u32, id));
        assert_eq!(rdma_ack_cm_event(event), 0);
    }
    for (id, channel) in [(moved, to), (stays, from)] {
        // SAFETY: the channel lives.
        assert!(!is_readable(unsafe { (*channel).fd }));
        assert_eq!(rdma_destroy_id(id), 0);
        rdma_destroy_event_channel(channel);
    }
}

#[test]
fn place_in_the_backlog_comes_back_with_the_event() {
    let bed = Bed::new();
    let listener = bed.b.listening(1);
    // The backlog is full each time. Each peer is taken before the next one comes.
    for _ in 0..3 {
        let ends = bed.connect(listener);
        assert_eq!(rdma_destroy_id(ends.b), 0);
        bed.a.expect(Disconnected, ends.a);
    }
}

/// perftest's server closes its listener and makes another one, which takes as long as the machine
/// is busy.
#[test]
fn peer_of_another_connection_may_listen_again_late() {
    let bed = Bed::new();
    let listener = bed.b.listening(1);
    let ends = bed.connect(listener);
    assert_eq!(rdma_destroy_id(listener), 0);
    let a = bed.a.connecting(1);
    // Without that connection it would be refused by now.
    thread::sleep(Duration::from_millis(500));
    assert!(bed.a.is_quiet());
    let listener = bed.b.listening(1);
    let b = bed.b.requested(listener);
    bed.b.accept(b);
    bed.a.expect(Established, a);
    for id in [ends.a, ends.b, a, b, listener] {
        assert_eq!(rdma_destroy_id(id), 0);
    }
}

#[test]
fn connect_that_is_refused_can_be_called_again() {
    let bed = Bed::new();
    let listener = bed.b.listening(1);
    let a = bed.a.routed(at_b());
    let right = found(a).body().state().destination;
    let nowhere: SocketAddr = ([192, 0, 2, 1], 7).into();
    let go = |to| {
        let id = found(a);
        id.body().state().set_destination(&id, to);
        rdma_connect(a, None)
    };
    refused_with(Errno::EHOSTUNREACH, go(nowhere));
    assert_eq!(go(right.expect("an address")), 0);
    let b = bed.b.requested(listener);
    bed.b.accept(b);
    bed.a.expect(Established, a);
}

#[test]
fn queues_that_were_made_for_an_identifier_end_with_its_queue_pair() {
    let bed = Bed::new();
    let a = bed.a.routed(at_b());
    let queues = || shown(a, |it| [it.send_cq, it.recv_cq]);
    let channels = || shown(a, |it| [it.send_cq_channel, it.recv_cq_channel]);
    let (had, had_channels) = (queues(), channels());
    assert!(had.iter().all(|cq| Object::<Cq>::find(*cq).is_ok()));
    rdma_destroy_qp(a);
    assert!(queues().iter().all(|cq| cq.is_null()));
    assert!(channels().iter().all(|channel| channel.is_null()));
    for (cq, channel) in had.into_iter().zip(had_channels) {
        assert!(Object::<Cq>::find(cq).is_err());
        assert_eq!(channel::destroy(channel), Err(Errno::EINVAL));
    }
    // A queue pair that cannot be created leaves no queues either.
    let mut attr = ibv_qp_init_attr::zeroed();
    attr.qp_type = u32::MAX;
    let refused = rdma_create_qp(a, ptr::null_mut(), Some(&mut attr));
    refused_with(Errno::EOPNOTSUPP, refused);
    assert!(queues().iter().all(|cq| cq.is_null()));
}

//! Functions of librdmacm with invalid arguments, and events of identifiers without a peer.

mod addresses;
mod ends;
mod identity;
mod life;

use std::fs;
use std::ptr::{self, null, null_mut};
use std::sync::mpsc;
use std::thread;

use nix::errno::Errno;
use nix::unistd::{Pid, gettid};
use xwarp_test_kit::eventually;

use super::address;
use super::connecting::{
    rdma_accept, rdma_connect, rdma_disconnect, rdma_get_request, rdma_listen, rdma_reject,
};
use super::events::{rdma_ack_cm_event, rdma_create_event_channel, rdma_destroy_event_channel};
use super::events::{rdma_event_str, rdma_get_cm_event};
use super::id::{Channel, CmId, PendingEvent};
use super::life::{rdma_create_id, rdma_destroy_id, rdma_migrate_id};
use super::numbers::EventKind;
use super::qp::{rdma_create_qp, rdma_create_srq, rdma_init_qp_attr};
use super::resolving::{rdma_bind_addr, rdma_get_src_port, rdma_resolve_addr, rdma_resolve_route};
use super::testbed::new_id;
use crate::abi::cm::rdma_cm_id;
use crate::object::Object;

fn refused_with(errno: Errno, returned: i32) {
    assert_eq!((returned, Errno::last()), (-1, errno));
}

/// Result of each function for an invalid identifier.
fn all_refuse(id: *mut rdma_cm_id) {
    for returned in [
        rdma_bind_addr(id, null()),
        rdma_resolve_addr(id, null(), null(), 1),
        rdma_resolve_route(id, 1),
        rdma_listen(id, 1),
        rdma_connect(id, None),
        rdma_accept(id, None),
        rdma_reject(id, null(), 0),
        rdma_disconnect(id),
        rdma_create_qp(id, null_mut(), None),
        rdma_create_srq(id, null_mut(), None),
        rdma_init_qp_attr(id, None, None),
        rdma_get_request(id, None),
        rdma_migrate_id(id, null_mut()),
        rdma_destroy_id(id),
    ] {
        assert_eq!(returned, -1);
    }
    refused_with(Errno::EINVAL, rdma_destroy_id(id));
    assert_eq!(rdma_get_src_port(id), 0);
}

#[test]
fn null_pointers_and_wrong_handles_are_refused() {
    all_refuse(null_mut());
    all_refuse(ptr::dangling_mut());
    let channel = rdma_create_event_channel();
    all_refuse(channel.cast());
    refused_with(Errno::EINVAL, rdma_ack_cm_event(channel.cast()));
    refused_with(Errno::EINVAL, rdma_get_cm_event(null_mut(), None));
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(channel);
}

#[test]
fn destroyed_identifier_is_found_out() {
    let channel = rdma_create_event_channel();
    let id = new_id(channel);
    assert_eq!(rdma_destroy_id(id), 0);
    all_refuse(id);
    rdma_destroy_event_channel(channel);
}

#[test]
fn datagram_services_are_refused() {
    let mut id = null_mut();
    let udp = 0x0111;
    let made = rdma_create_id(null_mut(), Some(&mut id), null_mut(), udp);
    refused_with(Errno::EPROTONOSUPPORT, made);
}

#[test]
fn steps_out_of_their_order_are_refused() {
    let id = new_id(null_mut());
    for returned in [
        rdma_resolve_route(id, 1),
        rdma_connect(id, None),
        rdma_accept(id, None),
        rdma_disconnect(id),
        rdma_reject(id, null(), 0),
    ] {
        refused_with(Errno::EINVAL, returned);
    }
    // An address that no interface has (RFC 5737 §3).
    let nobody = address::storage(([192, 0, 2, 1], 7471).into());
    let bound = rdma_bind_addr(id, (&raw const nobody).cast());
    refused_with(Errno::EADDRNOTAVAIL, bound);
    assert_eq!(rdma_destroy_id(id), 0);
}

/// Whether a thread of this process sleeps in this system call.
fn sleeps_in(thread: Pid, call: i64) -> bool {
    let now = fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    now.is_ok_and(|now| now.starts_with(&format!("{call} ")))
}

/// rping destroys the channel while its thread is between two events, and that thread ends the
/// process if its call fails.
#[test]
fn thread_that_comes_back_to_a_destroyed_channel_sleeps() {
    let channel = rdma_create_event_channel();
    let id = new_id(channel);
    let known = Object::<CmId>::find(id).expect("it lives");
    let event = PendingEvent::new(&known, EventKind::AddressResolved);
    let found = Object::<Channel>::find(channel).expect("it lives");
    found.body().push(event);
    let (address, (begun, begins)) = (channel.expose_provenance(), mpsc::channel());
    let (go, may_go) = mpsc::channel();
    thread::spawn(move || {
        let channel = ptr::with_exposed_provenance_mut(address);
        let mut event = null_mut();
        assert_eq!(rdma_get_cm_event(channel, Some(&mut event)), 0);
        assert_eq!(rdma_ack_cm_event(event), 0);
        begun.send(gettid()).expect("the test waits");
        may_go.recv().expect("the test goes on");
        rdma_get_cm_event(channel, Some(&mut event));
    });
    let late = begins.recv().expect("a thread");
    assert_eq!(rdma_destroy_id(id), 0);
    rdma_destroy_event_channel(channel);
    refused_with(
        Errno::EINVAL,
        rdma_get_cm_event(channel, Some(&mut null_mut())),
    );
    go.send(()).expect("the thread waits");
    eventually("the late thread sleeps", || {
        sleeps_in(late, libc::SYS_pause)
    });
}

#[test]
fn names_of_events_are_those_of_the_header() {
    // SAFETY: the names are constants.
    let name = |event| unsafe { std::ffi::CStr::from_ptr(rdma_event_str(event)) };
    assert_eq!(name(0), c"RDMA_CM_EVENT_ADDR_RESOLVED");
    assert_eq!(name(10), c"RDMA_CM_EVENT_DISCONNECTED");
    assert_eq!(name(15), c"RDMA_CM_EVENT_TIMEWAIT_EXIT");
    assert_eq!(name(16), c"UNKNOWN EVENT");
}

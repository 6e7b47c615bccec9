//! Two hosts on a cable, whose identifiers resolve addresses without the kernel.

use std::net::SocketAddr;
use std::ptr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use xwarp_test_kit::{Side, TIMEOUT, eventually};

use super::connecting::{rdma_accept, rdma_connect, rdma_listen};
use super::events::{rdma_ack_cm_event, rdma_create_event_channel, rdma_get_cm_event};
use super::id::{ANY, CmId, Id, Phase};
use super::life::rdma_create_id;
use super::numbers::{EventKind, RDMA_PS_TCP};
use super::qp::rdma_create_qp;
use super::resolving::bind_at;
use crate::abi::Zeroed;
use crate::abi::cm::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel};
use crate::abi::numbers::{
    IBV_QP_STATE, IBV_QPT_RC, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WC_SUCCESS,
    IBV_WC_WR_FLUSH_ERR, IBV_WR_SEND,
};
use crate::abi::verbs::{
    ibv_context_ops, ibv_cq, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge,
    ibv_wc,
};
use crate::backend::connection_event::{ConnectRequest, EventCallback, Terms};
use crate::backend::testbed::Pair;
use crate::backend::{Backend, EventTarget};
use crate::entry::lock;
use crate::object::Object;
use crate::verbs::device::{Device, Targets};
use crate::verbs::device_list::Located;
use crate::verbs::qp::{ibv_modify_qp, ibv_query_qp};
use crate::verbs::testbed::{await_readable, is_readable, queue_pair};

/// Port that servers listen on.
const PORT: u16 = 18_515;
/// Port of the connection that holds up the thread which reports connections.
const HOLD_UP_PORT: u16 = 18_516;

/// An identifier and its channel; a null channel makes a synchronous one.
pub(super) fn new_id(channel: *mut rdma_event_channel) -> *mut rdma_cm_id {
    let mut id = ptr::null_mut();
    let made = rdma_create_id(channel, Some(&mut id), ptr::null_mut(), RDMA_PS_TCP);
    assert!(made == 0 && !id.is_null());
    id
}

/// The library's part of an identifier.
pub(super) fn found(id: *mut rdma_cm_id) -> Arc<Id> {
    Object::<CmId>::find(id).expect("it lives")
}

/// Two hosts with an RNIC each. The RNICs are closed when this is dropped.
pub(super) struct Bed {
    pub(super) a: Host,
    pub(super) b: Host,
    pair: Pair,
}

impl Bed {
    pub(super) fn new() -> Self {
        let targets: [Arc<Targets>; 2] = Default::default();
        let devices = targets
            .each_ref()
            .map(|it| -> Arc<dyn EventTarget> { Arc::<Targets>::clone(it) });
        let pair = Pair::open(devices, false);
        let [backend_a, backend_b] = pair.backends();
        let [targets_a, targets_b] = &targets;
        Self {
            a: Host::new(Side::A, targets_a, &backend_a),
            b: Host::new(Side::B, targets_b, &backend_b),
            pair,
        }
    }

    /// A connection of A to a listener of B.
    pub(super) fn connect(&self, listener: *mut rdma_cm_id) -> Connection {
        let a = self.a.connecting(1);
        let b = self.b.requested(listener);
        self.b.accept(b);
        self.a.expect(EventKind::Established, a);
        Connection { a, b }
    }

    /// Holds up the thread that reports A's connections, until the returned sender is dropped.
    pub(super) fn hold_up_a(&self) -> mpsc::Sender<()> {
        let [backend, _] = self.pair.backends();
        let (held, is_held) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let (held, released) = (Mutex::new(held), Mutex::new(released));
        let address = SocketAddr::new(Side::A.address(), HOLD_UP_PORT);
        let (port, _) = backend.bind(address, false).expect("a free port");
        // A peer whose request is dropped would be rejected.
        let requests = Mutex::new(Vec::new());
        let callback = move |request| {
            lock(&requests).push(request);
            lock(&held).send(()).expect("the test waits");
            // An error says that it is released.
            let _: Result<(), _> = lock(&released).recv();
        };
        port.listen(Arc::new(callback)).expect("a free port");
        let peer = self.b.routed(address);
        assert_eq!(rdma_connect(peer, None), 0);
        is_held.recv_timeout(TIMEOUT).expect("a peer");
        release
    }

    /// Connects the queue pair of an identifier of A, whose events go to `callback`.
    pub(super) fn connect_to_b(id: *mut rdma_cm_id, callback: EventCallback) {
        let request = ConnectRequest {
            local: ANY,
            remote: at_b(),
            terms: Terms::default(),
            private_data: Vec::new(),
            patience: Duration::ZERO,
        };
        let qp = queue_pair(shown(id, |it| it.qp));
        qp.connect(request, callback).expect("an attempt");
    }

    /// The RNIC of A fails.
    pub(super) fn fail_a(&self) {
        self.pair.fail_first();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for backend in self.pair.backends() {
            backend.close();
        }
    }
}

/// Both ends of a connection.
#[derive(Clone, Copy)]
pub(super) struct Connection {
    pub(super) a: *mut rdma_cm_id,
    pub(super) b: *mut rdma_cm_id,
}

/// A host, with a program that has one channel for all of its identifiers.
pub(super) struct Host {
    pub(super) channel: *mut rdma_event_channel,
    device: Arc<Object<Device>>,
    side: Side,
}

impl Host {
    fn new(side: Side, targets: &Arc<Targets>, backend: &Arc<Backend>) -> Self {
        Self {
            channel: rdma_create_event_channel(),
            device: Device::for_test(targets, backend),
            side,
        }
    }

    fn located(&self) -> Located {
        Located {
            device: Arc::clone(&self.device),
            address: self.side.address(),
        }
    }

    /// An identifier that listens.
    pub(super) fn listening(&self, backlog: i32) -> *mut rdma_cm_id {
        let handle = new_id(self.channel);
        let id = found(handle);
        let mut state = id.body().state();
        let local = SocketAddr::new(self.side.address(), PORT);
        bind_at(&id, &mut state, self.located(), local).expect("a free port");
        state.phase = Phase::Bound;
        drop(state);
        assert_eq!(rdma_listen(handle, backlog), 0);
        handle
    }

    fn routed_without_queue_pair(&self, to: SocketAddr) -> *mut rdma_cm_id {
        let handle = new_id(self.channel);
        let id = found(handle);
        let mut state = id.body().state();
        state.bind(&id, &self.device).expect("descriptors");
        state.set_destination(&id, to);
        state.phase = Phase::Routed;
        drop(state);
        handle
    }

    /// An identifier with a queue pair that has only to connect.
    pub(super) fn routed(&self, to: SocketAddr) -> *mut rdma_cm_id {
        let id = self.routed_without_queue_pair(to);
        add_queue_pair(id);
        id
    }

    /// One that connects to the listener of B by the queue pair of another identifier, once that
    /// has no connection.
    pub(super) fn connecting_by(&self, other: *mut rdma_cm_id) -> *mut rdma_cm_id {
        let id = self.routed_without_queue_pair(at_b());
        let mut param = rdma_conn_param::zeroed();
        // SAFETY: the queue pair lives.
        param.qp_num = unsafe { (*shown(other, |it| it.qp)).qp_num };
        eventually("it is free", || rdma_connect(id, Some(&param)) == 0);
        id
    }

    /// One that connects to the listener of B, and may have `reads` Reads outstanding.
    pub(super) fn connecting(&self, reads: u8) -> *mut rdma_cm_id {
        let mut param = rdma_conn_param::zeroed();
        (param.initiator_depth, param.responder_resources) = (reads, reads);
        self.connecting_with(Some(&param))
    }

    /// One that connects to the listener of B with these parameters.
    pub(super) fn connecting_with(&self, param: Option<&rdma_conn_param>) -> *mut rdma_cm_id {
        let id = self.routed(at_b());
        assert_eq!(rdma_connect(id, param), 0);
        id
    }

    /// The next peer of a listener, with a queue pair for it.
    pub(super) fn requested(&self, listener: *mut rdma_cm_id) -> *mut rdma_cm_id {
        let event = self.next();
        let (kind, id, listening) = read(event, |it| (it.event, it.id, it.listen_id));
        assert_eq!(kind, EventKind::ConnectRequest as u32);
        assert_eq!(listening, listener);
        assert_eq!(rdma_ack_cm_event(event), 0);
        add_queue_pair(id);
        id
    }

    /// Accepts a peer.
    pub(super) fn accept(&self, id: *mut rdma_cm_id) {
        self.accept_with(id, None);
    }

    /// Accepts a peer with these parameters.
    pub(super) fn accept_with(&self, id: *mut rdma_cm_id, param: Option<&rdma_conn_param>) {
        assert_eq!(rdma_accept(id, param), 0);
        self.expect(EventKind::Established, id);
    }

    /// The next event, which must come in time. It is to be acknowledged.
    pub(super) fn next(&self) -> *mut rdma_cm_event {
        next_event(self.channel)
    }

    /// The next event, which must be this one. It is acknowledged.
    pub(super) fn expect(&self, kind: EventKind, id: *mut rdma_cm_id) {
        expect_event(self.channel, kind, id);
    }

    /// No event waits.
    pub(super) fn is_quiet(&self) -> bool {
        is_quiet(self.channel)
    }
}

/// The next event of a channel, which must arrive in time.
fn next_event(channel: *mut rdma_event_channel) -> *mut rdma_cm_event {
    await_readable(descriptor(channel));
    let mut event = ptr::null_mut();
    assert_eq!(rdma_get_cm_event(channel, Some(&mut event)), 0);
    event
}

/// The next event of a channel, which must be this one. It is acknowledged.
pub(super) fn expect_event(channel: *mut rdma_event_channel, kind: EventKind, id: *mut rdma_cm_id) {
    let event = next_event(channel);
    let is = read(event, |it| (it.event, it.id));
    assert_eq!(is, (kind as u32, id), "{kind:?}");
    assert_eq!(rdma_ack_cm_event(event), 0);
}

/// No event of a channel waits.
pub(super) fn is_quiet(channel: *mut rdma_event_channel) -> bool {
    !is_readable(descriptor(channel))
}

fn descriptor(channel: *mut rdma_event_channel) -> i32 {
    // SAFETY: the channel lives.
    unsafe { (*channel).fd }
}

/// The address of the listener of B.
pub(super) fn at_b() -> SocketAddr {
    SocketAddr::new(Side::B.address(), PORT)
}

/// Reads an event that is not acknowledged.
pub(super) fn read<R>(event: *mut rdma_cm_event, field: impl FnOnce(&rdma_cm_event) -> R) -> R {
    // SAFETY: the event lives until it is acknowledged.
    field(unsafe { &*event })
}

/// Reads the struct of an identifier.
pub(super) fn shown<R>(id: *mut rdma_cm_id, field: impl FnOnce(&rdma_cm_id) -> R) -> R {
    // SAFETY: the identifier lives, and nothing writes its struct meanwhile but fields of single
    // words.
    field(unsafe { &*id })
}

/// Gives an identifier a queue pair of the default domain, with completion queues of its own.
fn add_queue_pair(id: *mut rdma_cm_id) {
    let mut attr = ibv_qp_init_attr::zeroed();
    attr.qp_type = IBV_QPT_RC;
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (16, 16);
    (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
    assert_eq!(rdma_create_qp(id, ptr::null_mut(), Some(&mut attr)), 0);
}

fn ops(id: *mut rdma_cm_id) -> ibv_context_ops {
    // SAFETY: the context lives as long as the process.
    unsafe { (*shown(id, |it| it.verbs)).ops }
}

/// Posts a receive without memory, in which an empty message has room.
pub(super) fn post_recv(id: *mut rdma_cm_id, wr_id: u64) {
    let mut wr = ibv_recv_wr::zeroed();
    wr.wr_id = wr_id;
    let post = ops(id).post_recv.expect("a slot");
    assert_eq!(post(shown(id, |it| it.qp), &raw mut wr, None), 0);
}

/// Posts a signaled request of one piece of memory, whose key is no region's.
pub(super) fn post_with_wrong_key(id: *mut rdma_cm_id, opcode: u32) {
    let mut piece = ibv_sge::zeroed();
    (piece.addr, piece.length, piece.lkey) = (4096, 8, 0x1234_5678);
    post(id, opcode, IBV_SEND_SIGNALED, &mut piece);
}

/// Sends `length` bytes.
pub(super) fn send(id: *mut rdma_cm_id, length: u32) {
    let bytes = [0_u8; 64];
    let mut piece = ibv_sge::zeroed();
    (piece.addr, piece.length) = (bytes.as_ptr().addr() as u64, length);
    let flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    post(id, IBV_WR_SEND, flags, &mut piece);
}

fn post(id: *mut rdma_cm_id, opcode: u32, flags: u32, piece: &mut ibv_sge) {
    let mut wr = ibv_send_wr::zeroed();
    (wr.opcode, wr.send_flags) = (opcode, flags);
    (wr.sg_list, wr.num_sge) = (piece, 1);
    let post = ops(id).post_send.expect("a slot");
    assert_eq!(post(shown(id, |it| it.qp), &raw mut wr, None), 0);
}

/// The completion that a queue has now.
pub(super) fn polled(id: *mut rdma_cm_id, cq: *mut ibv_cq) -> Option<ibv_wc> {
    let mut wc = ibv_wc::zeroed();
    let poll = ops(id).poll_cq.expect("a slot");
    let count = poll(cq, 1, &raw mut wc);
    (count == 1).then_some(wc)
}

/// Sends an empty message over a connection, which must arrive.
pub(super) fn exchange(ends: Connection) {
    post_recv(ends.b, 1);
    send(ends.a, 0);
    await_message(ends.b);
}

/// Waits for a message, which must arrive.
pub(super) fn await_message(id: *mut rdma_cm_id) {
    let cq = shown(id, |it| it.recv_cq);
    let mut wc = None;
    eventually("the message arrives", || {
        wc = polled(id, cq);
        wc.is_some()
    });
    assert!(wc.is_some_and(|it| it.status == IBV_WC_SUCCESS));
}

/// Asserts that the receive with this name is flushed: its completion can be polled.
pub(super) fn assert_flushed(id: *mut rdma_cm_id, wr_id: u64) {
    let wc = polled(id, shown(id, |it| it.recv_cq)).expect("a completion");
    assert_eq!((wc.wr_id, wc.status), (wr_id, IBV_WC_WR_FLUSH_ERR));
}

/// Brings the queue pair of an identifier into a state.
pub(super) fn modify(id: *mut rdma_cm_id, state: u32) {
    let mut attr = ibv_qp_attr::zeroed();
    attr.qp_state = state;
    let qp = shown(id, |it| it.qp);
    assert_eq!(
        ibv_modify_qp(qp, Some(&attr), IBV_QP_STATE.cast_signed()),
        0
    );
}

/// The state of an identifier's queue pair.
pub(super) fn state(id: *mut rdma_cm_id) -> u32 {
    let (mut attr, mut init) = (ibv_qp_attr::zeroed(), ibv_qp_init_attr::zeroed());
    let qp = shown(id, |it| it.qp);
    let mask = IBV_QP_STATE.cast_signed();
    assert_eq!(ibv_query_qp(qp, Some(&mut attr), mask, Some(&mut init)), 0);
    attr.qp_state
}

/// Waits until it is in this state.
pub(super) fn await_state(id: *mut rdma_cm_id, wanted: u32) {
    eventually("the queue pair is in the state", || state(id) == wanted);
}

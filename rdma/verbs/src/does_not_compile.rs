//! Programs that the types of this library rule out: wrong or missing modifiers of verbs, and what a handle cannot do.
//!
//! Only the documentation tests see this module. Each claim is a pair: what compiles, and what does not. They differ in as little as can
//! be. So the second one fails for the reason given. A field that becomes public makes one of them fail.

/// An identifier of one kind of object in the place of another's (verbs draft §5.1.1).
///
/// ```
/// fn same(one: xwarp::attr::QpId, other: xwarp::attr::QpId) -> bool { one == other }
/// ```
/// ```compile_fail,E0308
/// fn same(one: xwarp::attr::QpId, other: xwarp::attr::CqId) -> bool { one == other }
/// ```
/// ```
/// fn same(one: xwarp::event::HandlerId, other: xwarp::event::HandlerId) -> bool { one == other }
/// ```
/// ```compile_fail,E0308
/// fn same(one: xwarp::event::HandlerId, other: xwarp::attr::SrqId) -> bool { one == other }
/// ```
/// ```
/// fn make(rnic: &xwarp::Rnic, handler: xwarp::event::HandlerId) { let cq = rnic.create_cq_with(1, handler); }
/// ```
/// ```compile_fail,E0308
/// fn make(rnic: &xwarp::Rnic, handler: xwarp::attr::PdId) { let cq = rnic.create_cq_with(1, handler); }
/// ```
fn an_identifier_of_another_kind() {}

/// A list in the place of the one source or sink that an operation has, or the other way round (verbs draft §8.1.2.1, §8.1.2.2, §8.1.3.3).
///
/// ```
/// use xwarp::{RemoteAddress, Sge};
/// use xwarp::work::{Operation, Payload};
/// fn write(payload: Payload, remote: RemoteAddress) -> Operation { Operation::Write { payload, remote } }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{RemoteAddress, Sge};
/// use xwarp::work::{Operation, Payload};
/// fn write(payload: Payload, remote: [RemoteAddress; 2]) -> Operation { Operation::Write { payload, remote } }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{RemoteAddress, Sge};
/// use xwarp::work::{Operation, Payload};
/// fn write(payload: RemoteAddress, remote: RemoteAddress) -> Operation { Operation::Write { payload, remote } }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{RemoteAddress, Sge};
/// use xwarp::work::{Operation, Payload};
/// fn write(payload: Payload, remote: Sge) -> Operation { Operation::Write { payload, remote } }
/// ```
/// ```
/// use xwarp::{RemoteAddress, SendRequest, Sge, WrId};
/// use xwarp::work::Sgl;
/// fn read(sink: Sge, remote: RemoteAddress) -> SendRequest { SendRequest::read(WrId(1), sink, remote) }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{RemoteAddress, SendRequest, Sge, WrId};
/// use xwarp::work::Sgl;
/// fn read(sink: Sgl, remote: RemoteAddress) -> SendRequest { SendRequest::read(WrId(1), sink, remote) }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{RemoteAddress, SendRequest, Sge, WrId};
/// use xwarp::work::Sgl;
/// fn read(sink: Sge, remote: Sgl) -> SendRequest { SendRequest::read(WrId(1), sink, remote) }
/// ```
/// ```
/// use xwarp::RemoteAddress;
/// use xwarp::work::{Operation, Payload};
/// fn send(payload: Payload) -> Operation { Operation::Send { payload, solicited: false, invalidate: None } }
/// ```
/// ```compile_fail,E0559
/// use xwarp::RemoteAddress;
/// use xwarp::work::{Operation, Payload};
/// fn send(payload: Payload, remote: RemoteAddress) -> Operation { Operation::Send { payload, solicited: false, invalidate: None, remote } }
/// ```
fn another_number_or_kind_of_sources_and_sinks() {}

/// An operation that there is not (verbs draft §9.3.1.1).
///
/// ```
/// use xwarp::work::{Immediate, Operation};
/// fn operation(data: Immediate) -> Operation { Operation::Immediate { data, solicited: false } }
/// ```
/// ```compile_fail,E0599
/// use xwarp::work::{Immediate, Operation};
/// fn operation(data: Immediate) -> Operation { Operation::Multicast { data, solicited: false } }
/// ```
/// ```compile_fail,E0308
/// fn operation() -> xwarp::work::Operation { 17 }
/// ```
fn an_unknown_operation() {}

/// A list of other things than elements, and an element without one of its parts (verbs draft §9.3.1.1, §9.3.1.2).
///
/// ```
/// use xwarp::{Sge, Stag};
/// use xwarp::work::Sgl;
/// fn list(stag: Stag) -> Sgl { Sgl::from_iter([Sge { stag, to: 0, len: 1 }]) }
/// ```
/// ```compile_fail,E0063
/// use xwarp::{Sge, Stag};
/// use xwarp::work::Sgl;
/// fn list(stag: Stag) -> Sgl { Sgl::from_iter([Sge { stag, to: 0 }]) }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{Sge, Stag};
/// use xwarp::work::Sgl;
/// fn list(stag: Stag) -> Sgl { Sgl::from_iter([Sge { stag, to: 0, len: -1_i32 }]) }
/// ```
/// ```compile_fail,E0271
/// use xwarp::{Sge, Stag};
/// use xwarp::work::Sgl;
/// fn list(stag: Stag) -> Sgl { Sgl::from_iter([stag]) }
/// ```
/// ```
/// use xwarp::{RecvRequest, Sge, WrId};
/// fn buffer(sge: Sge) -> RecvRequest { RecvRequest::new(WrId(1), sge) }
/// ```
/// ```compile_fail,E0277
/// use xwarp::{RecvRequest, RemoteAddress, WrId};
/// fn buffer(sge: RemoteAddress) -> RecvRequest { RecvRequest::new(WrId(1), sge) }
/// ```
fn a_malformed_list() {}

/// A flag with a third value (verbs draft §9.3.1.1, §9.3.1.2).
///
/// ```
/// use xwarp::SendRequest;
/// fn modify(request: &mut SendRequest) { (request.signaled, request.read_fence) = (false, true); }
/// ```
/// ```compile_fail,E0308
/// use xwarp::SendRequest;
/// fn modify(request: &mut SendRequest) { request.signaled = 2; }
/// ```
/// ```compile_fail,E0308
/// use xwarp::SendRequest;
/// fn modify(request: &mut SendRequest) { request.read_fence = 2; }
/// ```
/// ```
/// use xwarp::{RecvRequest, WrId};
/// use xwarp::work::Sgl;
/// fn buffer() -> RecvRequest { RecvRequest::new(WrId(1), Sgl::new()) }
/// ```
/// ```compile_fail,E0308
/// use xwarp::RecvRequest;
/// use xwarp::work::Sgl;
/// fn buffer() -> RecvRequest { RecvRequest::new(-1, Sgl::new()) }
/// ```
fn a_modifier_with_a_value_that_it_cannot_have() {}

/// A work request without one of its modifiers (verbs draft §9.3.1.1). Those that [`SendRequest::new`](crate::SendRequest::new) does not
/// ask for have a value from the beginning; a request cannot be made past it.
///
/// ```
/// use xwarp::{RemoteAddress, SendRequest, WrId};
/// use xwarp::work::{Operation, Payload};
/// fn request(payload: Payload, remote: RemoteAddress) -> SendRequest {
///     SendRequest::new(WrId(1), Operation::Write { payload, remote })
/// }
/// ```
/// ```compile_fail,E0063
/// use xwarp::{RemoteAddress, SendRequest, WrId};
/// use xwarp::work::{Operation, Payload};
/// fn request(payload: Payload, remote: RemoteAddress) -> SendRequest {
///     SendRequest::new(WrId(1), Operation::Write { payload })
/// }
/// ```
/// ```compile_fail,E0061
/// use xwarp::{RemoteAddress, SendRequest, WrId};
/// use xwarp::work::{Operation, Payload};
/// fn request(payload: Payload, remote: RemoteAddress) -> SendRequest {
///     SendRequest::new(Operation::Write { payload, remote })
/// }
/// ```
/// ```compile_fail,E0639
/// use xwarp::{SendRequest, WrId};
/// use xwarp::work::Operation;
/// fn request(operation: Operation) -> SendRequest {
///     SendRequest { wr_id: WrId(1), operation, read_fence: false }
/// }
/// ```
fn a_missing_modifier() {}

/// A notification type that there is not (verbs draft §9.3.2.2, §9.5.1.8).
///
/// ```
/// fn arm(cq: &xwarp::CompletionQueue) { let armed = cq.arm(xwarp::completion::Arm::Solicited); }
/// ```
/// ```compile_fail,E0599
/// fn arm(cq: &xwarp::CompletionQueue) { let armed = cq.arm(xwarp::completion::Arm::Unsolicited); }
/// ```
/// ```compile_fail,E0308
/// fn arm(cq: &xwarp::CompletionQueue) { let armed = cq.arm(3); }
/// ```
fn an_unknown_notification_type() {}

/// A Non-Privileged Consumer that does more than to post, poll and arm (verbs draft §7.5, §8.2.1, §9.1; RFC 5042 §2.3.1).
///
/// ```
/// use xwarp::SendRequest;
/// use xwarp::work::DataPath;
/// fn post(path: &mut DataPath, request: SendRequest) { let posted = path.post_send(request); }
/// ```
/// ```compile_fail,E0599
/// use xwarp::QpState;
/// use xwarp::attr::QpChange;
/// use xwarp::work::DataPath;
/// fn change(path: &mut DataPath) { let changed = path.modify(QpChange::to(QpState::Error)); }
/// ```
/// ```compile_fail,E0599
/// use xwarp::Access;
/// use xwarp::work::DataPath;
/// fn register(path: &mut DataPath) { let region = path.allocate(4096, Access::REMOTE_READ); }
/// ```
/// ```compile_fail,E0599
/// use xwarp::Access;
/// use xwarp::memory::SharedBytes;
/// use xwarp::work::DataPath;
/// fn register(path: &mut DataPath, bytes: SharedBytes) { let region = path.register(bytes, Access::REMOTE_READ); }
/// ```
/// ```compile_fail,E0599
/// use xwarp::work::DataPath;
/// fn query(path: &mut DataPath) { let info = path.query(); }
/// ```
/// ```compile_fail,E0616
/// fn reach(path: &mut xwarp::work::DataPath) { let control = &path.control; }
/// ```
/// ```compile_fail,E0616
/// fn reach(qp: &mut xwarp::QueuePair) { let path = &mut qp.data_path; }
/// ```
/// ```
/// fn poll(poller: &mut xwarp::completion::CompletionPoller<'_>) { let completion = poller.poll(); }
/// ```
/// ```compile_fail,E0599
/// fn resize(poller: &mut xwarp::completion::CompletionPoller<'_>) { let resized = poller.resize(1); }
/// ```
/// ```compile_fail,E0616
/// fn reach(poller: &mut xwarp::completion::CompletionPoller<'_>) { let cq = &poller.0; }
/// ```
fn a_control_verb_of_a_data_path_or_poller() {}

/// A handle after its object was destroyed: every verb that ends an object takes the handle (verbs draft §9.2).
///
/// ```
/// fn domain(pd: xwarp::ProtectionDomain) { let id = pd.id(); let ended = pd.deallocate(); }
/// ```
/// ```compile_fail,E0382
/// fn domain(pd: xwarp::ProtectionDomain) { let ended = pd.deallocate(); let id = pd.id(); }
/// ```
/// ```
/// fn completions(cq: xwarp::CompletionQueue) { let info = cq.query(); let ended = cq.destroy(); }
/// ```
/// ```compile_fail,E0382
/// fn completions(cq: xwarp::CompletionQueue) { let ended = cq.destroy(); let info = cq.query(); }
/// ```
/// ```
/// fn buffers(srq: xwarp::SharedReceiveQueue) { let info = srq.query(); let ended = srq.destroy(); }
/// ```
/// ```compile_fail,E0382
/// fn buffers(srq: xwarp::SharedReceiveQueue) { let ended = srq.destroy(); let info = srq.query(); }
/// ```
/// ```
/// fn pair(qp: xwarp::QueuePair) { let info = qp.query(); let ended = qp.destroy(); }
/// ```
/// ```compile_fail,E0382
/// fn pair(qp: xwarp::QueuePair) { let ended = qp.destroy(); let info = qp.query(); }
/// ```
/// ```
/// fn region(region: xwarp::MemoryRegion) { let info = region.query(); let ended = region.deallocate(); }
/// ```
/// ```compile_fail,E0382
/// fn region(region: xwarp::MemoryRegion) { let ended = region.deallocate(); let info = region.query(); }
/// ```
fn a_handle_whose_object_is_destroyed() {}

/// A handle that no verb has returned (verbs draft §5.2.1, §5.3.1).
///
/// ```
/// fn make(rnic: &xwarp::Rnic) { let made = (rnic.allocate_pd(), rnic.create_cq(1)); }
/// ```
/// ```compile_fail,E0451
/// fn make(pd: xwarp::ProtectionDomain) -> xwarp::ProtectionDomain { xwarp::ProtectionDomain { ..pd } }
/// ```
/// ```compile_fail,E0451
/// fn make(cq: xwarp::CompletionQueue) -> xwarp::CompletionQueue { xwarp::CompletionQueue { ..cq } }
/// ```
/// ```compile_fail,E0599
/// fn make(pd: &xwarp::ProtectionDomain) -> xwarp::ProtectionDomain { xwarp::ProtectionDomain::clone(pd) }
/// ```
/// ```compile_fail,E0599
/// fn make(cq: &xwarp::CompletionQueue) -> xwarp::CompletionQueue { xwarp::CompletionQueue::clone(cq) }
/// ```
fn a_handle_that_no_verb_has_returned() {}

/// A request in the queue of the other kind (verbs draft §8.1.2.1), and one that is used again after it was posted (§8.1.1).
///
/// ```
/// use xwarp::{QueuePair, RecvRequest, SendRequest};
/// fn post(qp: &mut QueuePair, send: SendRequest, recv: RecvRequest) { let posted = (qp.post_send(send), qp.post_recv(recv)); }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{QueuePair, RecvRequest};
/// fn post(qp: &mut QueuePair, recv: RecvRequest) { let posted = qp.post_send(recv); }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{QueuePair, SendRequest};
/// fn post(qp: &mut QueuePair, send: SendRequest) { let posted = qp.post_recv(send); }
/// ```
/// ```compile_fail,E0308
/// use xwarp::{SendRequest, SharedReceiveQueue};
/// fn post(srq: &mut SharedReceiveQueue, send: SendRequest) { let posted = srq.post_recv(send); }
/// ```
/// ```compile_fail,E0382
/// use xwarp::{QueuePair, SendRequest};
/// fn post(qp: &mut QueuePair, send: SendRequest) { let posted = qp.post_send(send); let kept = send.wr_id; }
/// ```
fn a_request_of_the_other_queue_or_after_it_was_posted() {}

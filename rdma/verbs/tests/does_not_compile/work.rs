//! Work requests: their operations, lists and modifiers, and where they are posted.

use xwarp::work::Sgl;
use xwarp::{SendRequest, WrId};

use crate::compiler::{Claim, Program, assert_ruled_out};

/// Another number or kind of sources and sinks than an operation has (verbs draft §8.1.2.1,
/// §8.1.2.2, §8.1.3.3).
pub(crate) const SOURCES_AND_SINKS: Claim = Claim {
    name: "sources and sinks",
    programs: &[
        Program {
            right: "use xwarp::{RemoteAddress, Sge}; use xwarp::work::{Operation, Payload};
                fn write(payload: Payload, remote: RemoteAddress) -> Operation { Operation::Write { payload, remote } }",
            wrong: &[
                ("remote: RemoteAddress", "remote: [RemoteAddress; 2]", "E0308"),
                ("payload: Payload", "payload: RemoteAddress", "E0308"),
                ("remote: RemoteAddress", "remote: Sge", "E0308"),
            ],
        },
        Program {
            right: "use xwarp::{RemoteAddress, SendRequest, Sge, WrId}; use xwarp::work::Sgl;
                fn read(sink: Sge, remote: RemoteAddress) -> SendRequest { SendRequest::read(WrId(1), sink, remote) }",
            wrong: &[("sink: Sge", "sink: Sgl", "E0308"), ("remote: RemoteAddress", "remote: Sgl", "E0308")],
        },
        Program {
            right: "use xwarp::RemoteAddress; use xwarp::work::{Operation, Payload};
                fn send(payload: Payload, remote: RemoteAddress) -> Operation { Operation::Send { payload, solicited: false, invalidate: None } }",
            wrong: &[("invalidate: None", "invalidate: None, remote", "E0559")],
        },
    ],
};

#[test]
fn other_sources_and_sinks_than_an_operation_has_do_not_compile() {
    assert_ruled_out(&SOURCES_AND_SINKS);
}

/// An operation that there is not (verbs draft §9.3.1.1).
pub(crate) const OPERATION: Claim = Claim {
    name: "operation",
    programs: &[Program {
        right: "use xwarp::work::{Immediate, Operation};
            fn operation(data: Immediate) -> Operation { Operation::Immediate { data, solicited: false } }",
        wrong: &[
            ("Operation::Immediate {", "Operation::Multicast {", "E0599"),
            ("Operation::Immediate { data, solicited: false }", "17", "E0308"),
        ],
    }],
};

#[test]
fn unknown_operation_does_not_compile() {
    assert_ruled_out(&OPERATION);
}

/// A list of other things than elements, and an element or a place at the peer without one of its
/// parts (verbs draft §7.2, §9.3.1.1, §9.3.1.2).
pub(crate) const LIST: Claim = Claim {
    name: "list",
    programs: &[
        Program {
            right: "use xwarp::{Sge, Stag}; use xwarp::work::Sgl;
                fn list(stag: Stag) -> Sgl { Sgl::from_iter([Sge { stag, to: 0, len: 1 }]) }",
            wrong: &[
                ("Sge { stag, ", "Sge { ", "E0063"),
                ("to: 0, ", "", "E0063"),
                (", len: 1 ", " ", "E0063"),
                ("len: 1", "len: -1_i32", "E0308"),
                ("[Sge { stag, to: 0, len: 1 }]", "[stag]", "E0271"),
            ],
        },
        Program {
            right: "use xwarp::{RemoteAddress, Stag};
                fn place(stag: Stag) -> RemoteAddress { RemoteAddress { stag, to: 0 } }",
            wrong: &[
                (
                    "RemoteAddress { stag, to: 0 }",
                    "RemoteAddress { to: 0 }",
                    "E0063",
                ),
                (", to: 0 ", " ", "E0063"),
                ("stag: Stag", "stag: u32", "E0308"),
            ],
        },
        Program {
            right: "use xwarp::{RecvRequest, RemoteAddress, Sge, WrId};
                fn buffer(sge: Sge) -> RecvRequest { RecvRequest::new(WrId(1), sge) }",
            wrong: &[("sge: Sge", "sge: RemoteAddress", "E0277")],
        },
    ],
};

#[test]
fn malformed_list_does_not_compile() {
    assert_ruled_out(&LIST);
}

/// A flag with a third value, and a name that is no name (verbs draft §9.3.1.1, §9.3.1.2).
pub(crate) const VALUE: Claim = Claim {
    name: "value",
    programs: &[
        Program {
            right: "use xwarp::SendRequest;
                fn modify(request: &mut SendRequest) { request.signaled = false; request.read_fence = true; }",
            wrong: &[("signaled = false", "signaled = 2", "E0308"), ("read_fence = true", "read_fence = 2", "E0308")],
        },
        Program {
            right: "use xwarp::{RecvRequest, WrId}; use xwarp::work::Sgl;
                fn buffer() -> RecvRequest { RecvRequest::new(WrId(1), Sgl::new()) }",
            wrong: &[("WrId(1)", "-1", "E0308")],
        },
    ],
};

#[test]
fn modifier_with_a_value_that_it_cannot_have_does_not_compile() {
    assert_ruled_out(&VALUE);
}

/// A work request without one of its modifiers (verbs draft §9.3.1.1). Those that
/// `SendRequest::new` does not ask for have a value from the beginning; a request cannot be made
/// past it.
pub(crate) const MODIFIER: Claim = Claim {
    name: "modifier",
    programs: &[
        Program {
            right: "use xwarp::{RemoteAddress, SendRequest, WrId}; use xwarp::work::{Operation, Payload};
                fn write(payload: Payload, remote: RemoteAddress) -> SendRequest { SendRequest::new(WrId(1), Operation::Write { payload, remote }) }",
            wrong: &[
                ("{ payload, remote }", "{ payload }", "E0063"),
                ("{ payload, remote }", "{ remote }", "E0063"),
                ("WrId(1), ", "", "E0061"),
                (", Operation::Write { payload, remote }", "", "E0061"),
            ],
        },
        Program {
            right: "use xwarp::{SendRequest, WrId}; use xwarp::work::{Operation, Payload};
                fn send(payload: Payload) -> SendRequest { SendRequest::new(WrId(1), Operation::Send { payload, solicited: true, invalidate: None }) }",
            wrong: &[
                ("{ payload, ", "{ ", "E0063"),
                ("solicited: true, ", "", "E0063"),
                (", invalidate: None ", " ", "E0063"),
                ("WrId(1), ", "", "E0061"),
            ],
        },
        Program {
            right: "use xwarp::{SendRequest, WrId}; use xwarp::work::Operation;
                fn request(operation: Operation) -> SendRequest { SendRequest::new(WrId(1), operation) }",
            wrong: &[(
                "SendRequest::new(WrId(1), operation)",
                "SendRequest { wr_id: WrId(1), operation, signaled: true, read_fence: false }",
                "E0639",
            )],
        },
    ],
};

#[test]
fn request_without_a_modifier_does_not_compile() {
    assert_ruled_out(&MODIFIER);
}

#[test]
fn request_has_a_notification_type_and_no_fence_from_the_beginning() {
    let request = SendRequest::send(WrId(1), Sgl::new());
    assert!(request.signaled && !request.read_fence);
}

/// A Send request in a receive queue, and the reverse (verbs draft §8.1.2.1).
pub(crate) const QUEUE: Claim = Claim {
    name: "queue",
    programs: &[
        Program {
            right: "use xwarp::{QueuePair, RecvRequest, SendRequest};
                fn post(qp: &mut QueuePair, send: SendRequest, recv: RecvRequest) { let posted = (qp.post_send(send), qp.post_recv(recv)); }",
            wrong: &[("post_send(send)", "post_send(recv)", "E0308"), ("post_recv(recv)", "post_recv(send)", "E0308")],
        },
        Program {
            right: "use xwarp::{RecvRequest, SendRequest, SharedReceiveQueue};
                fn post(srq: &mut SharedReceiveQueue, request: RecvRequest) { let posted = srq.post_recv(request); }",
            wrong: &[("request: RecvRequest", "request: SendRequest", "E0308")],
        },
    ],
};

#[test]
fn request_of_the_other_queue_does_not_compile() {
    assert_ruled_out(&QUEUE);
}

/// A request or a buffer that is used again after it was posted (verbs draft §8.1.1).
pub(crate) const POSTED: Claim = Claim {
    name: "posted",
    programs: &[
        Program {
            right: "use xwarp::{QueuePair, SendRequest};
                fn post(qp: &mut QueuePair, send: SendRequest) { let kept = send.wr_id; let posted = qp.post_send(send); }",
            wrong: &[(
                "let kept = send.wr_id; let posted = qp.post_send(send);",
                "let posted = qp.post_send(send); let kept = send.wr_id;",
                "E0382",
            )],
        },
        Program {
            right: "use xwarp::{QueuePair, RecvRequest};
                fn post(qp: &mut QueuePair, recv: RecvRequest) { let kept = recv.wr_id; let posted = qp.post_recv(recv); }",
            wrong: &[(
                "let kept = recv.wr_id; let posted = qp.post_recv(recv);",
                "let posted = qp.post_recv(recv); let kept = recv.wr_id;",
                "E0382",
            )],
        },
        Program {
            right: "use xwarp::{QueuePair, WrId}; use xwarp::buffers::{Buffer, PostedBuffers};
                fn post(qp: &mut QueuePair, posted: &mut PostedBuffers, it: Buffer) { let bytes = it.to_vec(); let outcome = posted.post_recv(qp, WrId(1), it); }",
            wrong: &[(
                "let bytes = it.to_vec(); let outcome = posted.post_recv(qp, WrId(1), it);",
                "let outcome = posted.post_recv(qp, WrId(1), it); let bytes = it.to_vec();",
                "E0382",
            )],
        },
        Program {
            right: "use xwarp::{QueuePair, WrId}; use xwarp::buffers::{Buffer, BufferRequest, PostedBuffers};
                fn post(qp: &mut QueuePair, posted: &mut PostedBuffers, it: Buffer, other: Buffer) {
                    let send = posted.post_send(qp, BufferRequest::send(WrId(1), it, 8));
                    let recv = posted.post_recv(qp, WrId(2), other);
                }",
            wrong: &[("WrId(2), other", "WrId(2), it", "E0382")],
        },
    ],
};

#[test]
fn request_that_was_posted_does_not_compile() {
    assert_ruled_out(&POSTED);
}

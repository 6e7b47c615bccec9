//! Handles and identifiers: whose they are, where they come from, and what can be done with them.

use crate::compiler::{Claim, Program, assert_ruled_out};

/// An identifier of one kind of object in the place of another's (verbs draft §5.1.1).
pub(crate) const IDENTIFIER: Claim = Claim {
    name: "identifier",
    programs: &[
        Program {
            right: "fn same(one: xwarp::attr::QpId, other: xwarp::attr::QpId) -> bool { one == other }",
            wrong: &[(
                "other: xwarp::attr::QpId",
                "other: xwarp::attr::CqId",
                "E0308",
            )],
        },
        Program {
            right: "fn same(one: xwarp::event::HandlerId, other: xwarp::event::HandlerId) -> bool { one == other }",
            wrong: &[(
                "other: xwarp::event::HandlerId",
                "other: xwarp::attr::SrqId",
                "E0308",
            )],
        },
        Program {
            right: "fn make(rnic: &xwarp::Rnic, handler: xwarp::event::HandlerId) { let cq = rnic.create_cq_with(1, handler); }",
            wrong: &[("xwarp::event::HandlerId", "xwarp::attr::PdId", "E0308")],
        },
    ],
};

#[test]
fn identifier_of_another_kind_does_not_compile() {
    assert_ruled_out(&IDENTIFIER);
}

/// A notification type that there is not (verbs draft §9.3.2.2, §9.5.1.8).
pub(crate) const NOTIFICATION_TYPE: Claim = Claim {
    name: "notification type",
    programs: &[Program {
        right: "fn arm(cq: &xwarp::CompletionQueue) { let armed = cq.arm(xwarp::completion::Arm::Solicited); }",
        wrong: &[
            ("Solicited", "Unsolicited", "E0599"),
            ("xwarp::completion::Arm::Solicited", "3", "E0308"),
        ],
    }],
};

#[test]
fn unknown_notification_type_does_not_compile() {
    assert_ruled_out(&NOTIFICATION_TYPE);
}

const PATH: &str = "mut DataPath";
const POLLER: &str = "mut CompletionPoller<'_>";

/// A Non-Privileged Consumer that does more than to post, poll and arm (verbs draft §7.5, §8.2.1,
/// §9.1; RFC 5042 §2.3.1). Each verb is one that another handle has.
pub(crate) const DATA_PATH_OR_POLLER: Claim = Claim {
    name: "data path or poller",
    programs: &[
        Program {
            right: "use xwarp::{QueuePair, SendRequest}; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn post(qp: &mut QueuePair, request: SendRequest) { let posted = qp.post_send(request); }
                fn post_as_well(path: &mut DataPath, request: SendRequest) { let posted = path.post_send(request); }
                fn poll(poller: &mut CompletionPoller<'_>) { let completion = poller.poll(); }",
            wrong: &[],
        },
        Program {
            right: "use xwarp::{QpState, QueuePair}; use xwarp::attr::QpChange; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn change(it: &mut QueuePair) { let changed = it.modify(QpChange::to(QpState::Error)); }",
            wrong: &[("mut QueuePair", PATH, "E0599"), ("mut QueuePair", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::QueuePair; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn query(it: &mut QueuePair) { let info = it.query(); }",
            wrong: &[("mut QueuePair", PATH, "E0599"), ("mut QueuePair", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::{Access, QueuePair}; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn register(it: &mut QueuePair) { let region = it.allocate(4096, Access::REMOTE_READ); }",
            wrong: &[("mut QueuePair", PATH, "E0599"), ("mut QueuePair", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::{Access, QueuePair}; use xwarp::memory::SharedBytes; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn register(it: &mut QueuePair, bytes: SharedBytes) { let region = it.register(bytes, Access::REMOTE_READ); }",
            wrong: &[("mut QueuePair", PATH, "E0599"), ("mut QueuePair", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::QueuePair; use xwarp::memory::{RegionSpec, SharedBytes}; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn register(it: &mut QueuePair, bytes: SharedBytes, spec: &RegionSpec) { let region = it.register_with(bytes, spec); }",
            wrong: &[("mut QueuePair", PATH, "E0599"), ("mut QueuePair", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::{MemoryRegion, ProtectionDomain}; use xwarp::memory::{RegionSpec, SharedBytes}; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn register(it: MemoryRegion, pd: &ProtectionDomain, bytes: SharedBytes, spec: &RegionSpec) { let region = it.reregister(pd, bytes, spec); }",
            wrong: &[("it: MemoryRegion", "it: DataPath", "E0599"), ("it: MemoryRegion", "it: CompletionPoller<'_>", "E0599")],
        },
        Program {
            right: "use xwarp::ProtectionDomain; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn allocate(it: &mut ProtectionDomain) { let stag = it.allocate_stag(1, true); }",
            wrong: &[("mut ProtectionDomain", PATH, "E0599"), ("mut ProtectionDomain", POLLER, "E0599")],
        },
        Program {
            right: "use xwarp::CompletionQueue; use xwarp::work::DataPath; use xwarp::completion::CompletionPoller;
                fn resize(it: &mut CompletionQueue) { let resized = it.resize(1); }",
            wrong: &[("mut CompletionQueue", PATH, "E0624"), ("mut CompletionQueue", POLLER, "E0599")],
        },
        Program {
            right: "fn reach(it: (u8, u8)) { let part = it.0; }",
            wrong: &[
                ("it: (u8, u8)) { let part = it.0", "path: &mut xwarp::work::DataPath) { let part = &path.sends", "E0616"),
                ("it: (u8, u8)) { let part = it.0", "qp: &mut xwarp::QueuePair) { let part = &mut qp.data_path", "E0616"),
                ("it: (u8, u8)", "it: &mut xwarp::completion::CompletionPoller<'_>", "E0616"),
            ],
        },
    ],
};

#[test]
fn control_verb_of_a_data_path_or_poller_does_not_compile() {
    assert_ruled_out(&DATA_PATH_OR_POLLER);
}

/// A handle after its object was destroyed: every verb that ends an object takes the handle (verbs
/// draft §9.2).
pub(crate) const DESTROYED: Claim = Claim {
    name: "destroyed",
    programs: &[
        Program {
            right: "fn domain(pd: xwarp::ProtectionDomain) { let id = pd.id(); let ended = pd.deallocate(); }",
            wrong: &[(
                "let id = pd.id(); let ended = pd.deallocate();",
                "let ended = pd.deallocate(); let id = pd.id();",
                "E0382",
            )],
        },
        Program {
            right: "fn completions(cq: xwarp::CompletionQueue) { let info = cq.query(); let ended = cq.destroy(); }",
            wrong: &[(
                "let info = cq.query(); let ended = cq.destroy();",
                "let ended = cq.destroy(); let info = cq.query();",
                "E0382",
            )],
        },
        Program {
            right: "fn buffers(srq: xwarp::SharedReceiveQueue) { let info = srq.query(); let ended = srq.destroy(); }",
            wrong: &[(
                "let info = srq.query(); let ended = srq.destroy();",
                "let ended = srq.destroy(); let info = srq.query();",
                "E0382",
            )],
        },
        Program {
            right: "fn pair(qp: xwarp::QueuePair) { let info = qp.query(); let ended = qp.destroy(); }",
            wrong: &[(
                "let info = qp.query(); let ended = qp.destroy();",
                "let ended = qp.destroy(); let info = qp.query();",
                "E0382",
            )],
        },
        Program {
            right: "fn region(it: xwarp::MemoryRegion) { let info = it.query(); let ended = it.deallocate(); }",
            wrong: &[(
                "let info = it.query(); let ended = it.deallocate();",
                "let ended = it.deallocate(); let info = it.query();",
                "E0382",
            )],
        },
    ],
};

#[test]
fn handle_whose_object_is_destroyed_does_not_compile() {
    assert_ruled_out(&DESTROYED);
}

/// A handle that no verb has returned (verbs draft §5.2.1, §5.3.1).
pub(crate) const NOT_RETURNED: Claim = Claim {
    name: "not returned",
    programs: &[
        Program {
            right: "fn make(rnic: &xwarp::Rnic, pd: xwarp::ProtectionDomain) -> Option<xwarp::ProtectionDomain> { rnic.allocate_pd().ok() }",
            wrong: &[
                (
                    "rnic.allocate_pd().ok()",
                    "Some(xwarp::ProtectionDomain {})",
                    "cannot construct `ProtectionDomain` with struct literal syntax due to private fields",
                ),
                (
                    "rnic.allocate_pd().ok()",
                    "Some(xwarp::ProtectionDomain::clone(&pd))",
                    "E0277",
                ),
            ],
        },
        Program {
            right: "fn make(rnic: &xwarp::Rnic, cq: xwarp::CompletionQueue) -> Option<xwarp::CompletionQueue> { rnic.create_cq(1).ok() }",
            wrong: &[
                (
                    "rnic.create_cq(1).ok()",
                    "Some(xwarp::CompletionQueue {})",
                    "cannot construct `CompletionQueue` with struct literal syntax due to private fields",
                ),
                (
                    "rnic.create_cq(1).ok()",
                    "Some(xwarp::CompletionQueue::clone(&cq))",
                    "E0277",
                ),
            ],
        },
    ],
};

#[test]
fn handle_that_no_verb_has_returned_does_not_compile() {
    assert_ruled_out(&NOT_RETURNED);
}

//! Network namespaces for tests. They have no name, only a descriptor, so they end with the test in
//! any case.

use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};
use xwarp_test_kit::eventually;

/// The interface of [`Testbed::near`] and the one of [`Testbed::far`].
pub(super) const NEAR: &str = "xwn0";
pub(super) const FAR: &str = "xwn1";

/// A network namespace, with loopback up.
pub(super) struct Namespace(File);

impl Namespace {
    pub(super) fn new() -> Self {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("a network namespace needs root (CAP_SYS_ADMIN)");
            File::open("/proc/thread-self/ns/net").expect("the thread's network namespace")
        };
        let namespace = Self(joined(thread::spawn(make).join()));
        namespace.sh("ip link set lo up");
        namespace
    }

    /// Runs `work` on a thread in this namespace.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).expect("setns needs root (CAP_SYS_ADMIN)");
            work()
        };
        joined(thread::scope(|scope| scope.spawn(inside).join()))
    }

    /// Runs a shell command in this namespace and gives what it printed.
    pub(super) fn sh(&self, command: &str) -> String {
        let output = self.run(|| Command::new("sh").args(["-ec", command]).output());
        let output = output.expect("sh runs");
        assert!(
            output.status.success(),
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What `ip ... netns` takes for this namespace.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Two namespaces with a veth pair of 4 queues: `10.77.0.1` and `fd77::1` near, `10.77.0.2` and
/// `fd77::2` far.
pub(super) struct Testbed {
    pub(super) near: Namespace,
    pub(super) far: Namespace,
}

impl Testbed {
    pub(super) fn new() -> Self {
        let (near, far) = (Namespace::new(), Namespace::new());
        let far_path = far.path();
        near.sh(&format!(
            "ip link add {NEAR} mtu 3000 numrxqueues 4 numtxqueues 4 type veth \
             peer name {FAR} mtu 3000 numrxqueues 4 numtxqueues 4 netns {far_path}"
        ));
        for (namespace, link, host) in [(&near, NEAR, 1), (&far, FAR, 2)] {
            namespace.sh(&format!(
                "ip addr add 10.77.0.{host}/24 dev {link}
                 ip addr add fd77::{host}/64 dev {link} nodad
                 ip link set {link} up"
            ));
        }
        // The kernel answers for an IPv6 address some time after the link is up.
        for (namespace, host) in [(&near, 1), (&far, 2)] {
            eventually("the IPv6 address is in use", || {
                let local = namespace.sh("ip -6 route show table local");
                local.contains(&format!("local fd77::{host} "))
            });
        }
        Self { near, far }
    }
}

/// The result of a thread, or its panic resumed in this thread.
fn joined<T>(result: thread::Result<T>) -> T {
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an IP address")
}

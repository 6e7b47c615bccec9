//! Two hosts on a bridge, with a delay line.
#![allow(clippy::missing_panics_doc, reason = "a panic is how a test fails")]

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use xwarp_test_kit::Side;

use crate::impair::host::text_of;
use crate::impair::{DEV, Fates, HostThread, ImpairedPorts, Rule, add_delay_line};

/// The port of the bridge that a host is at.
fn port(side: Side) -> &'static str {
    match side {
        Side::A => "port-a",
        Side::B => "port-b",
    }
}

/// Something to be done where the impairment is.
type Order = Box<dyn FnOnce(&ImpairedPorts) + Send>;

/// The hosts and the network between them.
pub struct Bridged {
    /// [`Side::A`].
    pub a: HostThread,
    /// [`Side::B`].
    pub b: HostThread,
    network: HostThread,
    /// In the namespace of `network`, which is busy while something impairs it.
    cables: HostThread,
}

impl Bridged {
    /// Makes them, with packets of 1500 bytes.
    #[expect(clippy::new_without_default, reason = "it makes network namespaces")]
    pub fn new() -> Self {
        Self::with_mtu(1500)
    }

    /// Makes them, with packets of `mtu` bytes.
    pub fn with_mtu(mtu: usize) -> Self {
        let network = HostThread::new();
        let hosts = Self {
            a: HostThread::new(),
            b: HostThread::new(),
            cables: network.beside(),
            network,
        };
        hosts.network.ip("link add bridge type bridge");
        hosts.network.ip("link set bridge up");
        for (host, side) in [(&hosts.a, Side::A), (&hosts.b, Side::B)] {
            hosts.plug_in(host, side, mtu);
        }
        hosts.network.call(|| add_delay_line("bridge"));
        hosts
    }

    /// Joins a host to the bridge.
    fn plug_in(&self, host: &HostThread, side: Side, mtu: usize) {
        let (thread, port, address) = (host.thread, port(side), side.address());
        let mac = text_of(side.mac());
        self.network.ip(&format!(
            "link add {port} mtu {mtu} type veth peer name {DEV} address {mac} mtu {mtu} netns {thread}"
        ));
        self.network
            .ip(&format!("link set {port} master bridge up"));
        host.ip(&format!("address add {address}/24 dev {DEV}"));
        host.ip(&format!("link set {DEV} up"));
        host.switch_offloads_off();
    }

    /// Takes a host's cable out, or puts it in again: the host's interface loses its carrier, or
    /// gets it back.
    pub fn set_cable(&self, side: Side, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        self.cables.ip(&format!("link set {} {state}", port(side)));
    }

    /// Switches a host's interface off or on, as its administrator does. The host must not be busy:
    /// [`HostThread::beside`] works for it.
    pub fn set_interface(&self, side: Side, up: bool) {
        let host = match side {
            Side::A => &self.a,
            Side::B => &self.b,
        };
        let state = if up { "up" } else { "down" };
        host.ip(&format!("link set {DEV} {state}"));
    }

    /// Impairs what a host sends. One at a time.
    pub fn impair(&self, side: Side, rule: Rule) -> Impaired<'_> {
        let (made, ready) = mpsc::channel();
        let (orders, inbox) = mpsc::channel::<Order>();
        let outcome = self.network.begin(move || {
            let ports = ImpairedPorts::attach(&[(port(side), rule)]);
            made.send(()).expect("the test waits");
            for order in inbox {
                order(&ports);
            }
            ports.finish();
        });
        ready.recv().expect("an impairment");
        Impaired {
            orders: Some(orders),
            outcome,
            _hosts: self,
        }
    }
}

/// An impairment at work, until it is dropped.
pub struct Impaired<'a> {
    orders: Option<Sender<Order>>,
    outcome: Receiver<()>,
    _hosts: &'a Bridged,
}

impl Impaired<'_> {
    /// What became of the segments so far.
    pub fn fates(&self) -> Fates {
        self.call(|ports| ports.fates()[0])
    }

    /// Begins anew with another rule, which must divert as the first one did.
    pub fn set_rule(&self, rule: Rule) {
        self.call(move |ports| ports.set_rule(&rule));
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ImpairedPorts) -> T + Send + 'static,
    ) -> T {
        let (result, receiver) = mpsc::channel();
        let order: Order = Box::new(move |ports| {
            // A test that has failed no longer waits.
            let _ = result.send(work(ports));
        });
        let orders = self.orders.as_ref().expect("at work");
        orders.send(order).expect("at work");
        receiver.recv().expect("a result")
    }
}

impl Drop for Impaired<'_> {
    fn drop(&mut self) {
        self.orders = None;
        if !thread::panicking() {
            self.outcome.recv().expect("an end in order");
        }
    }
}

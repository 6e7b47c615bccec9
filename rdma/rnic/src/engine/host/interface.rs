//! The interface under the engine: its changes, and which connections end with them.
//!
//! An interface that is down only delays frames: they wait, and connections live until their user
//! timeout. Connections end with their local address, and the RNIC ends with the interface or with
//! its XDP program.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp_driver::IoError;
use xwarp_driver::net::{InterfaceMonitor, InterfaceNews, InterfaceReporter, InterfaceState};
use xwarp_tcp::Instant;

use super::questions::{HostQuestion, Questions, WantedPort};
use crate::engine::{Engine, EngineState};
use crate::model::{AsyncEventKind, ConnectError, EventResource, Host, HostError, LocalPort};
use crate::queues::Ending;

/// How long an address may take to return after the link. The kernel removes IPv6 addresses from an
/// interface that is set down. When the link is up again, it checks for a second or two that they
/// are unique (RFC 4862 §5.4). A DHCP client may take as long.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the interface's monitor may take to report why the kernel refuses a transmission.
const DOUBT: Duration = Duration::from_millis(500);

/// The interface of an engine.
#[derive(Default)]
pub(in crate::engine) struct Interface {
    host: Option<Arc<dyn Host>>,
    monitor: Option<InterfaceMonitor>,
    /// Relays of the reports to the other engines.
    relays: Vec<InterfaceReporter>,
    /// The last reported state.
    state: Option<InterfaceState>,
    /// The host's addresses, including those in `awaited`.
    addresses: Vec<IpAddr>,
    /// Addresses that were removed while the link was down, and may return with it.
    awaited: Vec<IpAddr>,
    /// When the awaited addresses count as lost.
    timeout: Option<Instant>,
    /// Questions for the host: ports for listeners at new addresses, and next hops that are in
    /// doubt.
    pub(in crate::engine) questions: Questions,
    /// The kernel's refusal of a transmission, and the time when it counts as the interface's end.
    doubt: Option<(Instant, String)>,
    /// The engine reports here why it has ended.
    ending: Arc<Ending>,
}

impl Interface {
    fn name(&self) -> &str {
        self.host.as_ref().map_or("the interface", |it| it.name())
    }

    /// Whether a report waits.
    pub(in crate::engine) fn has_news(&self) -> bool {
        self.monitor
            .as_ref()
            .is_some_and(InterfaceMonitor::has_news)
    }

    /// Takes the latest report, and relays it to the other engines.
    fn take_news(&self) -> Option<InterfaceNews> {
        let news = self.monitor.as_ref()?.take()?;
        for relay in &self.relays {
            relay.report(news.clone());
        }
        Some(news)
    }

    /// Whether a timeout has expired.
    fn is_due(&self, now: Instant) -> bool {
        self.timeout.is_some_and(|until| until <= now)
            || self.doubt.as_ref().is_some_and(|(until, _)| *until <= now)
    }

    /// Whether questions wait for the host.
    pub(in crate::engine) fn has_questions(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Adds a question for the host, if there is one.
    pub(in crate::engine) fn ask(&mut self, question: HostQuestion) {
        if self.host.is_some() {
            self.questions.put(question);
        }
    }

    /// Time of the next timeout.
    pub(in crate::engine) fn deadline(&self) -> Option<Instant> {
        let doubt = self.doubt.as_ref().map(|(until, _)| *until);
        let asks = self.questions.due();
        [self.timeout, doubt, asks].into_iter().flatten().min()
    }

    /// Whether the host had an address and has lost it.
    pub(in crate::engine) fn has_lost(&self, address: IpAddr) -> bool {
        self.state.is_some() && !self.addresses.contains(&address)
    }

    /// Sets the current addresses. Returns the lost ones and the new ones.
    fn renew(&mut self, state: &InterfaceState, was_up: bool, now: Instant) -> [Vec<IpAddr>; 2] {
        let has: Vec<IpAddr> = state.addresses().collect();
        let known = std::mem::take(&mut self.addresses);
        let new = has.iter().filter(|it| !known.contains(it));
        let new = new.copied().collect();
        self.awaited.retain(|address| !has.contains(address));
        let missing = |it: &&IpAddr| !has.contains(it) && !self.awaited.contains(it);
        let mut gone: Vec<IpAddr> = known.iter().filter(missing).copied().collect();
        if !(state.up && was_up) {
            self.awaited.append(&mut gone);
            self.timeout = state.up.then(|| now + ADDRESS_TIMEOUT);
        }
        if self.awaited.is_empty() {
            self.timeout = None;
        }
        self.addresses.extend(has.iter().chain(&self.awaited));
        [gone, new]
    }
}

impl Engine {
    /// Sets the `host` that the engine asks for ports, and the `ending` that it reports its end to.
    /// `monitor` reports changes of the interface, and `relays` pass them on to the other engines.
    pub fn attend(
        &mut self,
        host: Arc<dyn Host>,
        ending: Arc<Ending>,
        monitor: Option<InterfaceMonitor>,
        relays: Vec<InterfaceReporter>,
    ) {
        self.interface.monitor = monitor;
        self.interface.relays = relays;
        self.interface.host = Some(host);
        self.device.stack.await_metrics();
        self.interface.ending = ending;
        self.try_other_ports();
    }

    /// The host that the engine asks.
    pub fn host(&self) -> Option<Arc<dyn Host>> {
        self.interface.host.clone()
    }

    /// Handles changes of the interface. Returns the number of changes.
    pub(in crate::engine) fn see_interface(&mut self) -> usize {
        if self.interface.has_news() || self.interface.is_due(self.device.now) {
            self.look_at_interface();
            return 1;
        }
        0
    }

    #[cold]
    fn look_at_interface(&mut self) {
        let now = self.device.now;
        match self.interface.take_news() {
            Some(InterfaceNews::Ended(end)) => return self.fail(&end.to_string()),
            Some(InterfaceNews::State(state)) => self.on_interface(&state),
            None => {}
        }
        if self.interface.timeout.is_some_and(|until| until <= now) {
            self.interface.timeout = None;
            let lost = std::mem::take(&mut self.interface.awaited);
            (self.interface.addresses).retain(|address| !lost.contains(address));
            self.withdraw(&lost);
        }
        if let Some((_, refusal)) = self.interface.doubt.take_if(|(until, _)| *until <= now) {
            self.fail(&refusal);
        }
    }

    fn on_interface(&mut self, state: &InterfaceState) {
        let was = self.interface.state.replace(state.clone());
        self.device.stack.set_mtu(state.mtu);
        self.device.stack.set_mac(state.mac.0);
        self.device.stack.set_networks(state.networks.clone());
        let works = state.up && self.interface.doubt.is_none();
        self.device.stack.set_up(works, self.device.now);
        let was_up = was.as_ref().is_none_or(|was| was.up);
        let [gone, new] = self.interface.renew(state, was_up, self.device.now);
        self.withdraw(&gone);
        for address in new {
            self.device.stack.readmit(address);
            self.listen_at(address);
        }
        if was.as_ref().is_some_and(|was| was.paths != state.paths) {
            self.doubt_all_paths();
        }
        if self.speaks() {
            let was = was.unwrap_or_else(|| state.when_opened());
            for change in state.changes_since(&was, self.interface.name()) {
                log::warn!("{change}");
            }
        }
    }

    /// Whether this engine logs what all engines receive.
    fn speaks(&self) -> bool {
        self.index == 0
    }

    /// The host has lost addresses: their connections end, and listeners wait until the host has
    /// them again.
    fn withdraw(&mut self, lost: &[IpAddr]) {
        for &address in lost {
            if self.speaks() {
                let name = self.interface.name();
                log::warn!("{name} has lost {address}: connections from there end");
            }
            self.device.stack.withdraw(address);
            self.connections.withdraw(address, &mut self.device);
        }
    }

    /// Asks for the ports of listeners that do not listen at this address yet.
    fn listen_at(&mut self, address: IpAddr) {
        let missing = self.connections.missing_listeners(address);
        let wanted = missing.map(|(key, local)| WantedPort { key, local });
        for port in wanted {
            self.interface.ask(HostQuestion::Port(port));
        }
    }

    /// The next question for the host. The thread that runs the engine asks the host, and then
    /// calls [`give_port`](Self::give_port), [`give_path`](Self::give_path) or
    /// [`give_metrics`](Self::give_metrics).
    pub fn take_question(&mut self) -> Option<HostQuestion> {
        let question = self.interface.questions.take(self.device.now);
        if self.interface.questions.owe_round() {
            self.doubt_all_paths();
        }
        question
    }

    /// Handles the host's answer for a port.
    pub fn give_port(&mut self, wanted: WantedPort, answer: Result<LocalPort, HostError>) {
        let WantedPort { key, local } = wanted;
        match answer {
            // False if the listener has ended, or another one has the port.
            Ok(port) => drop(self.connections.listen_too(key, port, &mut self.device)),
            Err(error) => log::warn!("cannot listen at {local}: {error}"),
        }
    }

    /// The kernel has refused a transmission. If the interface has a monitor, the monitor reports
    /// the cause a moment later.
    pub(in crate::engine) fn on_refusal(&mut self, error: &IoError) -> usize {
        let refusal = error.to_string();
        let until = self.device.now + DOUBT;
        if self.interface.monitor.is_none() || matches!(error, IoError::Stalled { .. }) {
            self.fail(&refusal);
        } else if self.interface.doubt.is_none() {
            self.interface.doubt = Some((until, refusal));
            self.device.stack.set_up(false, self.device.now);
        }
        1
    }

    /// The NIC is lost, and every connection with it: RNIC Catastrophic Failure. Only the first
    /// failure counts.
    pub fn fail(&mut self, reason: &str) {
        if self.is_over() {
            return;
        }
        // The reason is stored before any thread can see a consequence of the failure.
        if self.interface.ending.begin_failure() {
            log::error!("the RNIC has failed: {reason}");
            let failed = AsyncEventKind::Failed {
                reason: reason.to_owned(),
            };
            self.device.report(EventResource::Rnic, failed);
        }
        self.lose_interface(reason);
        self.spread_failure();
    }

    /// Ends every connection because the NIC is lost.
    pub(in crate::engine) fn lose_interface(&mut self, reason: &str) {
        for key in self.qps.slots() {
            self.with_qp(key, |qp, device| {
                qp.fail_start(ConnectError::Failed(reason.to_owned()), device);
                qp.fail_close("the RNIC has failed", device);
            });
        }
        self.cease(reason);
        // If the interface still sends, its peers receive a RST.
        if let Err(error) = self.device.stack.transmit(self.device.now) {
            log::debug!("no RST was sent to peers: {error}");
        }
        self.state = EngineState::Lost;
    }

    /// Ends all listeners, attempts, incoming connections and streams, for this `reason`.
    pub(in crate::engine) fn cease(&mut self, reason: &str) {
        self.interface.ending.fail(reason);
        self.connections.cease(reason, &mut self.device);
    }

    /// The engine reports here why it has ended.
    pub(in crate::engine) fn ending(&self) -> &Ending {
        &self.interface.ending
    }

    /// Wakes all waiting threads at the end of the engine.
    pub(in crate::engine) fn end(&self) {
        self.interface.ending.end();
    }

    /// Why no operation can begin, if the RNIC has failed.
    pub(in crate::engine) fn failure(&self) -> Option<String> {
        self.interface.ending.failure().map(str::to_owned)
    }
}

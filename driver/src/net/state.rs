//! State of an open interface, passed from the thread that watches it to the engines.

use std::net::IpAddr;
use std::sync::Arc;

use super::ethtool::{Channels, DriverRings};
use super::interface::MacAddr;
use super::network::Network;
use crate::wake::{Doorbell, Hinted};

/// Current state of an open interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceState {
    /// Whether frames can be sent and received: the interface is set up, and has a carrier.
    pub up: bool,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The largest IP packet, in bytes.
    pub mtu: usize,
    /// The host's usable addresses on the interface, with their networks.
    pub networks: Vec<Network>,
    /// Its queues, if its driver reports them.
    pub channels: Option<Channels>,
    /// Descriptors of the driver's rings, if it reports them.
    pub rings: Option<DriverRings>,
    /// Number of changes of the host's routes, and of its neighbours on the interface. After a
    /// change, next hops may be outdated.
    pub paths: u64,
}

impl InterfaceState {
    /// The state that the interface was opened in, by the first look at it: it was set up. The link
    /// may have gone down since.
    #[must_use]
    pub fn when_opened(&self) -> Self {
        Self {
            up: true,
            ..self.clone()
        }
    }

    /// The host's usable addresses on it.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.networks.iter().map(|network| network.address)
    }
}

/// Why an open interface is gone for good. The texts name the interface.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceEnd {
    /// The interface no longer exists.
    #[error("{0} was deleted")]
    Deleted(String),
    /// The interface was moved to another network namespace.
    #[error("{0} was moved to another network namespace")]
    Moved(String),
    /// Another process detached the XDP program.
    #[error("the XDP program was detached from {0}")]
    Detached(String),
    /// Another process attached another XDP program in its place.
    #[error("the XDP program on {interface} was replaced by {program} (id {id})")]
    Replaced {
        /// The interface.
        interface: String,
        /// The name of the other program.
        program: String,
        /// Its id.
        id: u32,
    },
    /// The software switch has ended, and no other has taken its place.
    #[error("the switch of {0} has ended, and was not started again")]
    SwitchEnded(String),
}

/// A report about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceNews {
    /// Its current state.
    State(InterfaceState),
    /// It is gone. No further report follows.
    Ended(InterfaceEnd),
}

type Shared = Hinted<Option<InterfaceNews>>;

/// The receiving side of reports.
#[derive(Clone)]
pub struct InterfaceMonitor(Arc<Shared>);

/// The reporting side. Only the latest report is kept.
pub struct InterfaceReporter {
    shared: Arc<Shared>,
    bell: Option<Doorbell>,
}

impl InterfaceMonitor {
    /// Whether a report waits. Costs one load.
    pub fn has_news(&self) -> bool {
        self.0.has_any()
    }

    /// Takes the latest report.
    pub fn take(&self) -> Option<InterfaceNews> {
        if !self.has_news() {
            return None;
        }
        self.0.change(Option::take, Option::is_some)
    }
}

impl InterfaceReporter {
    /// Both sides. `bell` rings after each report.
    pub fn new(bell: Option<Doorbell>) -> (Self, InterfaceMonitor) {
        let shared = Arc::new(Shared::new(None));
        let monitor = InterfaceMonitor(Arc::clone(&shared));
        (Self { shared, bell }, monitor)
    }

    /// Replaces an older report. A report of the end is never replaced.
    pub fn report(&self, latest: InterfaceNews) {
        let put = |news: &mut Option<InterfaceNews>| {
            let may = !matches!(news, Some(InterfaceNews::Ended(_)));
            if may {
                *news = Some(latest);
            }
            may
        };
        if !self.shared.change(put, Option::is_some) {
            return;
        }
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(mtu: usize) -> InterfaceNews {
        InterfaceNews::State(InterfaceState {
            up: true,
            mac: MacAddr::default(),
            mtu,
            networks: Vec::new(),
            channels: None,
            rings: None,
            paths: 0,
        })
    }

    #[test]
    fn latest_news_is_told_once() {
        let (reporter, monitor) = InterfaceReporter::new(None);
        assert_eq!(monitor.take(), None);
        reporter.report(state(1500));
        reporter.report(state(9000));
        assert!(monitor.has_news());
        assert_eq!(monitor.take(), Some(state(9000)));
        assert_eq!((monitor.has_news(), monitor.take()), (false, None));
    }

    #[test]
    fn nothing_hides_an_end() {
        let (reporter, monitor) = InterfaceReporter::new(None);
        let end = InterfaceNews::Ended(InterfaceEnd::Deleted("eth1".to_owned()));
        reporter.report(end.clone());
        reporter.report(state(1500));
        assert_eq!(monitor.take(), Some(end));
    }
}

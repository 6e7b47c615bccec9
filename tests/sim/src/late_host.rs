//! A host that finds a next hop only when the test provides one.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use xwarp::error::HostError;
use xwarp::sim::{FixedHost, Host, LocalPort, NextHop, NextHopSearch, Way};
use xwarp_driver::net::InterfaceMonitor;
use xwarp_driver::{DescriptorSet, Signal};
use xwarp_test_kit::Side;

/// An Ethernet address.
type Address = [u8; 6];

/// A host at [`Side::A`] that begins a search for each next hop.
pub struct LateHost {
    host: FixedHost,
    answer: Arc<Answer>,
}

/// What a [`LateHost`] answers to its searches.
pub struct Answer {
    state: Mutex<State>,
    /// Raised when the next search that asks is to be answered, if only that there is nothing yet.
    signal: Signal,
}

#[derive(Default)]
struct State {
    found: Option<Result<Address, HostError>>,
    asked: usize,
}

impl LateHost {
    /// Creates a host. `monitor`, if there is one, reports changes of its interface.
    pub fn new(monitor: Option<InterfaceMonitor>) -> Self {
        let host = FixedHost::new(Side::A.address(), []);
        let answer = Answer {
            state: Mutex::default(),
            signal: Signal::new().unwrap(),
        };
        Self {
            host: match monitor {
                Some(monitor) => host.watched(monitor),
                None => host,
            },
            answer: Arc::new(answer),
        }
    }

    /// What it answers.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// Searches that are under way.
    pub fn searches(&self) -> usize {
        Arc::strong_count(&self.answer) - 1
    }

    /// True if no port is reserved.
    pub fn has_all_ports(&self) -> bool {
        let lowest = 49152;
        let open = || self.host.open_port(Side::A.address(), 0).unwrap();
        open().local().port() == lowest
    }
}

impl Answer {
    /// Sets the answer for the next search that polls, and wakes the searches.
    pub fn give(&self, found: Result<Address, HostError>) {
        self.state.lock().unwrap().found = Some(found);
        self.signal.raise();
    }

    /// Wakes the searches without an answer: they poll in vain.
    pub fn give_nothing(&self) {
        self.signal.raise();
    }

    /// How often searches have asked.
    pub fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }
}

/// A search. All of them share the signal, but each has a descriptor of its own.
struct Search {
    answer: Arc<Answer>,
    descriptor: DescriptorSet,
}

impl NextHopSearch for Search {
    fn poll(&mut self) -> Result<Option<Address>, HostError> {
        self.answer.signal.clear();
        let mut state = self.answer.state.lock().unwrap();
        state.asked += 1;
        state.found.take().transpose()
    }
}

impl AsFd for Search {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Host for LateHost {
    fn name(&self) -> &str {
        self.host.name()
    }

    fn addresses(&self) -> Result<Vec<IpAddr>, HostError> {
        self.host.addresses()
    }

    fn source_to(&self, _: SocketAddr) -> Result<IpAddr, HostError> {
        Ok(Side::A.address())
    }

    fn next_hop(&self, _: SocketAddr, _: SocketAddr, _: Duration) -> Result<Way, HostError> {
        let descriptor = DescriptorSet::new().unwrap();
        descriptor.watch(self.answer.signal.as_fd()).unwrap();
        let search = Search {
            answer: Arc::clone(&self.answer),
            descriptor,
        };
        Ok(NextHop::Searching(Box::new(search)).into())
    }

    fn open_port_towards(
        &self,
        address: IpAddr,
        _: SocketAddr,
        _: usize,
    ) -> Result<LocalPort, HostError> {
        self.open_port(address, 0)
    }

    fn open_port(&self, address: IpAddr, port: u16) -> Result<LocalPort, HostError> {
        self.host.open_port(address, port)
    }

    fn monitor(&self) -> Option<InterfaceMonitor> {
        self.host.monitor()
    }
}

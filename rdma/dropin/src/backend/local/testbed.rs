//! Backends on RNICs in memory, and their connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use xwarp::Rnic;
use xwarp::cm::Connecting;

use super::{Backend, Qp};
use crate::backend::EventTarget;
use crate::entry::Result;

#[cfg(test)]
pub(crate) use pair::{Alone, Pair};

/// A backend on an RNIC of the caller's.
pub(crate) struct Opened(Arc<Backend>);

impl Opened {
    /// Makes it. The device's events go to `device`.
    pub(crate) fn new(rnic: Rnic, device: Arc<dyn EventTarget>) -> Result<Self> {
        Ok(Self(Backend::new(rnic, device, None)?))
    }

    pub(crate) fn backend(&self) -> Arc<Backend> {
        Arc::clone(&self.0)
    }

    #[cfg(feature = "testbed")]
    pub(crate) fn rnic(&self) -> &Rnic {
        &self.0.rnic
    }
}

/// Begins to connect a queue pair, which is not connected, to a peer that listens.
pub(crate) fn begin_connect(qp: &Qp, to: SocketAddr, timeout: Duration) -> Connecting {
    let begun = qp.owned.with(|qp| {
        let begun = qp.begin_connect(to, b"", timeout);
        Ok(begun.expect("a connection"))
    });
    begun.expect("a queue pair")
}

#[cfg(test)]
mod pair {
    use std::net::{IpAddr, SocketAddr};
    use std::sync::Mutex;

    use xwarp::config::{NicConfig, Progress};
    use xwarp::{Listener, RnicConfig};
    use xwarp_test_kit::{Cable, MemoryRnic, MemoryRnics, Side, next_request};

    use super::{Arc, Backend, Duration, EventTarget, Opened, Qp, begin_connect};
    use crate::entry::lock;

    const PORT: u16 = 7471;
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A backend on a cable without a peer.
    pub(crate) struct Alone {
        opened: Opened,
        _cable: Cable,
    }

    impl Alone {
        /// Opens it at the address that `address_of` has for side A. Its device's events go to
        /// `device`.
        pub(crate) fn open(address_of: fn(Side) -> IpAddr, device: Arc<dyn EventTarget>) -> Self {
            let rnics = MemoryRnics::open(|side| {
                let rnic = MemoryRnic::with_address(side, address_of).announced();
                rnic.progress(Progress::Thread)
            });
            Self {
                opened: Opened::new(rnics.a, device).expect("handlers"),
                _cable: rnics.cable,
            }
        }

        pub(crate) fn backend(&self) -> Arc<Backend> {
            self.opened.backend()
        }
    }

    /// Backends on a cable.
    pub(crate) struct Pair {
        a: Opened,
        b: Opened,
        listener: Mutex<Listener>,
        _cable: Cable,
    }

    impl Pair {
        /// Opens both. Events of their devices go to `devices`. If `timed`, the NICs report when
        /// frames arrive.
        pub(crate) fn open(devices: [Arc<dyn EventTarget>; 2], timed: bool) -> Self {
            let nic = NicConfig::default().timestamps(timed);
            let config = RnicConfig::default().nic(nic).progress(Progress::Thread);
            let rnics =
                MemoryRnics::open(|side| MemoryRnic::at(side).announced().config(config.clone()));
            let MemoryRnics { a, b, cable } = rnics;
            let [device_a, device_b] = devices;
            let address = SocketAddr::new(Side::B.address(), PORT);
            let listener = b.listen(address).expect("a free port");
            Self {
                a: Opened::new(a, device_a).expect("handlers"),
                b: Opened::new(b, device_b).expect("handlers"),
                listener: Mutex::new(listener),
                _cable: cable,
            }
        }

        pub(crate) fn backends(&self) -> [Arc<Backend>; 2] {
            [self.a.backend(), self.b.backend()]
        }

        /// The RNIC of the first fails.
        pub(crate) fn fail_first(&self) {
            self.a.0.watcher.ends().note_failure();
        }

        /// Connects a queue pair of the first to one of the second.
        pub(crate) fn connect(&self, a: &Qp, b: &Qp) {
            let to = SocketAddr::new(Side::B.address(), PORT);
            let begun = begin_connect(a, to, TIMEOUT);
            let mut listener = lock(&self.listener);
            let request = next_request(&mut listener);
            let accepted = b.owned.with(|qp| {
                request.accept(qp, b"").expect("a connection");
                Ok(())
            });
            accepted.expect("a queue pair");
            begun.wait().expect("a connection");
        }
    }
}

//! News of the control socket for the RNIC's queue.

use std::os::fd::OwnedFd;

use xwarp_switchd::MacAddress;

use super::file::Mapping;
use crate::wake::{Doorbell, Hinted};

/// What has changed.
pub(super) enum News {
    /// Another switch has taken the place of the one that has ended.
    Switch(NewSwitch),
    /// Frames to and from a client can go without the switch.
    Peer(NewPeer),
    /// That client has ended.
    Gone(MacAddress),
}

/// A switch.
pub(super) struct NewSwitch {
    /// Its file.
    pub(super) down: Mapping,
    /// Which file of the client's switches it is.
    pub(super) epoch: u16,
}

/// A client in the same trust domain.
pub(super) struct NewPeer {
    /// Its Ethernet address.
    pub(super) mac: MacAddress,
    /// Whether this process is the first of the two.
    pub(super) is_first: bool,
    /// Rings between the two.
    pub(super) pair: Mapping,
    /// Its frames.
    pub(super) up: Mapping,
    /// Whether it sleeps.
    pub(super) flags: Mapping,
    /// What wakes it.
    pub(super) bell: OwnedFd,
}

/// Where the thread of the control socket leaves news.
pub(super) struct Mailbox {
    news: Hinted<Vec<News>>,
    engine: Doorbell,
}

impl Mailbox {
    /// An empty one. The doorbell wakes the engine.
    pub(super) fn new(engine: Doorbell) -> Self {
        Self {
            news: Hinted::new(Vec::new()),
            engine,
        }
    }

    pub(super) fn put(&self, news: News) {
        self.news
            .change(|all| all.push(news), |all| !all.is_empty());
        self.engine.ring();
    }

    /// Costs one load while there are none.
    #[inline]
    pub(super) fn has_any(&self) -> bool {
        self.news.has_any()
    }

    /// Whether a client is among the news.
    pub(super) fn has_peer(&self, mac: MacAddress) -> bool {
        let is_it = |news: &News| matches!(news, News::Peer(peer) if peer.mac == mac);
        self.has_any() && self.news.lock().iter().any(is_it)
    }

    /// All news, the oldest first.
    pub(super) fn take(&self) -> Vec<News> {
        self.news.change(std::mem::take, |all| !all.is_empty())
    }
}

//! RNIC on an interface in memory: what a test opens where it needs no kernel.

use std::net::IpAddr;
use std::sync::Arc;

use xwarp::config::Progress;
use xwarp::error::OpenError;
use xwarp::sim::{FixedHost, Host, RegionPool};
use xwarp::{Rnic, RnicConfig};
use xwarp_driver::{LocalHop, MemoryIo, PacketIo, Wire, WithRxMetadata};
use xwarp_tcp::StackConfig;

use crate::{Queues, Side};

/// Frames of an interface, unless said otherwise.
const FRAMES: usize = 64;
/// Bytes of a region area, unless said otherwise.
const REGION_AREA: usize = 1 << 16;

fn area_of(bytes: usize) -> RegionPool {
    RegionPool::anonymous(bytes).expect("memory")
}

fn announce_if(announced: bool, io: MemoryIo) -> MemoryIo {
    if announced {
        io.announced().expect("a descriptor")
    } else {
        io
    }
}

/// An RNIC that is going to be opened at one side of a link. Its engine turns when the test says
/// so, unless [`progress`](Self::progress) or [`config`](Self::config) say otherwise.
#[must_use]
pub struct MemoryRnic {
    host: Arc<dyn Host>,
    stack: StackConfig,
    config: RnicConfig,
    frames: usize,
    announced: bool,
    local_hop: Option<LocalHop>,
    /// [`REGION_AREA`] of the RNIC's own if `None`.
    regions: Option<RegionPool>,
}

impl MemoryRnic {
    /// The RNIC of the host at `side`, which knows the host at the other side.
    pub fn at(side: Side) -> Self {
        Self::with_address(side, Side::address)
    }

    /// The same, where `address_of` says which addresses the hosts have.
    pub fn with_address(side: Side, address_of: fn(Side) -> IpAddr) -> Self {
        let peer = side.other();
        Self {
            host: Arc::new(FixedHost::new(
                address_of(side),
                [(address_of(peer), peer.mac())],
            )),
            stack: StackConfig {
                mac: side.mac(),
                ..StackConfig::default()
            },
            config: RnicConfig::default().progress(Progress::Manual),
            frames: FRAMES,
            announced: false,
            local_hop: None,
            regions: None,
        }
    }

    /// A host of the test's own.
    pub fn host(self, host: impl Host + 'static) -> Self {
        self.shared_host(Arc::new(host))
    }

    /// A host that other RNICs have, too.
    pub fn shared_host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = host;
        self
    }

    /// The RNIC's options.
    pub fn config(mut self, config: RnicConfig) -> Self {
        self.config = config;
        self
    }

    /// Who runs the engine.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.config = self.config.progress(progress);
        self
    }

    /// Changes parameters of TCP.
    pub fn stack(mut self, change: impl FnOnce(&mut StackConfig)) -> Self {
        change(&mut self.stack);
        self
    }

    /// Frames of the interface.
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }

    /// Has the interface tell by a descriptor that frames have come.
    pub fn announced(mut self) -> Self {
        self.announced = true;
        self
    }

    /// Gives the interface a next hop to processes of this host, if it has one queue.
    pub fn local_hop(mut self, hop: LocalHop) -> Self {
        self.local_hop = Some(hop);
        self
    }

    /// Bytes of the region area.
    pub fn region_area(self, bytes: usize) -> Self {
        self.regions(area_of(bytes))
    }

    /// A region area that the test has, too.
    pub fn regions(mut self, regions: RegionPool) -> Self {
        self.regions = Some(regions);
        self
    }

    /// Opens it on several queues, each with an engine of its own; what joins the queues, and the
    /// wire.
    ///
    /// # Panics
    ///
    /// If the process lacks what the engines need.
    pub fn open_on(self, queues: usize) -> (Rnic, Queues, Wire) {
        let opened = self.try_open_on(queues);
        opened.expect("an RNIC without a kernel")
    }

    /// The same, where that may be refused.
    pub fn try_open_on(self, queues: usize) -> Result<(Rnic, Queues, Wire), OpenError> {
        let (queues, ios, wire) = Queues::join(queues, self.frames);
        let ios = ios.into_iter().map(|io| announce_if(self.announced, io));
        let boxed = ios.map(|io| Box::new(io) as Box<dyn PacketIo>);
        let rnic = Rnic::with_ios(
            boxed.collect(),
            &self.stack,
            self.host,
            self.regions.unwrap_or_else(|| area_of(REGION_AREA)),
            &self.config,
        )?;
        Ok((rnic, queues, wire))
    }

    /// Opens it; the wire at its interface.
    pub fn open(self) -> (Rnic, Wire) {
        self.try_open().expect("an RNIC without a kernel")
    }

    /// The same, where the process may lack what an engine needs.
    pub fn try_open(self) -> Result<(Rnic, Wire), OpenError> {
        let (io, wire) = MemoryIo::new(self.frames).expect("memory");
        let io = match self.local_hop {
            Some(hop) => io.with_local_hop(hop),
            None => io,
        };
        let io = Box::new(announce_if(self.announced, io));
        let io: Box<dyn PacketIo> = if self.config.nic.timestamps {
            Box::new(WithRxMetadata::new(io))
        } else {
            io
        };
        let rnic = Rnic::with_io(
            io,
            &self.stack,
            self.host,
            self.regions.unwrap_or_else(|| area_of(REGION_AREA)),
            &self.config,
        )?;
        Ok((rnic, wire))
    }
}

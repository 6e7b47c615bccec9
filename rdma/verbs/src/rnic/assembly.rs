//! Assembly of an RNIC: queues, engines, their shared tables, and the threads that run them.

use std::io;
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;

use xwarp_driver::net::{InterfaceReporter, MacAddr};
use xwarp_driver::switch::SwitchClient;
use xwarp_driver::{Capture, Doorbell, Nic, NicError, PacketIo, RegionPool, Sleeper, Tap};
use xwarp_tcp::{Stack, StackConfig, StrayAnswers};

use super::config::RnicConfig;
use super::network::{Network, SwitchInfo};
use crate::error::OpenError;
use crate::host::KernelHost;
use crate::host::ports::Ports;
use crate::host::rss_steering::RssSteering;
use crate::host::switch::SwitchHost;
use crate::runtime::any_mode::AnyMode;
use crate::runtime::assisted::{Assisted, waiting_on};
use crate::runtime::config::Progress;
use crate::runtime::control::{Control, Parts};
use crate::runtime::deferred_drops::DeferredDrops;
use crate::runtime::engine_thread::EngineThreads;
use crate::runtime::inline::Inline;
use crate::runtime::manual::Manual;
use crate::runtime::runner::Runner;
use xwarp_rnic::engine::Engine;
use xwarp_rnic::model::{Host, MAX_QPS};
use xwarp_rnic::queues::{Ending, EngineDoorbell, InCommon};
use xwarp_rnic::stags::StagTable;
use xwarp_rnic::tables::SharedTables;

/// Wakes a thread that runs an engine.
type Waking = (Sleeper, Doorbell);

/// Opens the interface for the number of engines that the progress mode allows.
fn open_nic(interface: &str, config: &RnicConfig) -> Result<Nic, NicError> {
    match config.progress {
        Progress::Thread | Progress::Manual => Nic::open(interface, &config.nic),
        // Threads of the application run the only engine.
        Progress::Inline | Progress::Assisted => {
            Nic::open(interface, &config.nic.clone().engines(Some(1)))
        }
    }
}

/// Configuration of TCP on a device of an Ethernet address and MTU.
fn stack_config(mac: [u8; 6], mtu: usize, config: &RnicConfig) -> StackConfig {
    StackConfig {
        mac,
        mtu,
        max_connections: 2 * MAX_QPS,
        keepalive: config.keepalive,
        min_rto: config.min_rto,
        ack_delay: config.ack_delay,
        user_timeout: config.user_timeout,
        congestion: config.congestion,
        ecn: config.ecn,
        ..StackConfig::default()
    }
}

/// Parts that an RNIC is assembled from, over a network interface or a simulation.
pub(super) struct Opened {
    /// One stack for each queue.
    stacks: Vec<Stack>,
    /// One waking for each stack's engine.
    wakings: Vec<Waking>,
    host: Arc<dyn Host>,
    regions: RegionPool,
    pub(super) network: Network,
    pub(super) capture: Option<Capture>,
}

impl Opened {
    /// Opens queues of any packet interface and a host, for tests and simulation.
    pub(super) fn with_ios(
        ios: Vec<Box<dyn PacketIo>>,
        stack: &StackConfig,
        host: Arc<dyn Host>,
        regions: RegionPool,
    ) -> io::Result<Self> {
        let wakings = wakings(ios.len())?;
        Ok(Self {
            stacks: stacks(ios, stack, &wakings, &StrayAnswers::default())?,
            wakings,
            host,
            regions,
            network: Network::Given,
            capture: None,
        })
    }

    /// Opens the queues of a network interface, with the kernel as host.
    pub(super) fn on_interface(interface: &str, config: &RnicConfig) -> Result<Self, OpenError> {
        let nic = open_nic(interface, config)?;
        let wakings = wakings(nic.ios.len())?;
        let mut bells = wakings.iter().map(|(_, bell)| bell.clone());
        let watching = nic.watch.start(bells.next())?;
        let strays = StrayAnswers::default();
        let rss = RssSteering::new(strays.clone());
        let host = KernelHost::new(nic.info.clone(), nic.steering, watching, rss);
        let stack = stack_config(nic.info.mac.0, nic.info.mtu, config);
        Ok(Self {
            stacks: stacks(nic.ios, &stack, &wakings, &strays)?,
            wakings,
            host: Arc::new(host),
            regions: nic.regions,
            network: Network::Interface(nic.info),
            capture: nic.capture,
        })
    }

    /// Opens the queue of a software switch, which is the host. `device`: the name that the switch's
    /// device must have, if any.
    pub(super) fn on_switch(
        path: &Path,
        device: Option<&str>,
        config: &RnicConfig,
    ) -> Result<Self, OpenError> {
        let attached = SwitchClient::attach(path, device)?;
        let mut io: Box<dyn PacketIo> = Box::new(attached.io);
        let mut capture = None;
        if let Some(path) = &config.nic.capture {
            let begun = Capture::begin(path, &attached.name).map_err(NicError::from)?;
            io = Box::new(Tap::new(io, capture.insert(begun)));
        }
        let wakings = vec![attached.waking];
        let stack = stack_config(attached.mac, attached.mtu, config);
        let info = SwitchInfo {
            name: attached.name.clone(),
            socket: path.to_owned(),
            mac: MacAddr(attached.mac),
            mtu: attached.mtu,
        };
        Ok(Self {
            stacks: stacks(vec![io], &stack, &wakings, &StrayAnswers::default())?,
            wakings,
            host: Arc::new(SwitchHost::new(attached.name, attached.client)),
            regions: RegionPool::anonymous(config.nic.region_bytes)?,
            network: Network::Switch(info),
            capture,
        })
    }
}

/// Creates the engines, and starts to run them.
pub(super) fn assemble(opened: Opened, config: &RnicConfig) -> Result<Arc<Control>, OpenError> {
    let Opened {
        stacks,
        wakings,
        host,
        regions,
        ..
    } = opened;
    let shared_tables = shared_tables(config, &wakings)?;
    let stags = StagTable::new(regions.area(), config.pbl_mode, || getrandom::u32().ok());
    let (ending, host) = (Arc::default(), Arc::new(Ports::new(host)));
    let stags = InCommon::of_engines(stags, stacks.len(), StagTable::share);
    let engines = stacks.into_iter().zip(stags).zip(shared_tables.doorbells());
    let new = |(index, ((stack, stags), doorbell))| {
        Engine::new(stack, config.mpa, stags, &shared_tables, index, doorbell)
    };
    let mut engines: Vec<Engine> = engines.enumerate().map(new).collect();
    if config.nic.timestamps {
        engines.iter_mut().for_each(Engine::stamp_completions);
    }
    attend(&mut engines, &wakings, &host, &ending);
    let parts = Parts {
        shared_tables,
        host,
        ending,
        regions,
        mpa: config.mpa,
        deferred: Arc::default(),
    };
    let mode = run_by(config, engines, wakings, &parts.deferred)?;
    Ok(Control::new(mode, parts)?)
}

/// One waking for each engine.
fn wakings(engines: usize) -> io::Result<Vec<Waking>> {
    (0..engines).map(|_| Sleeper::new()).collect()
}

/// The stacks of these queues, whose engines these wakings wake.
fn stacks(
    ios: Vec<Box<dyn PacketIo>>,
    stack: &StackConfig,
    wakings: &[Waking],
    strays: &StrayAnswers,
) -> io::Result<Vec<Stack>> {
    let bells = wakings.iter().map(|(_, bell)| bell.clone());
    Stack::several(ios.into_iter().zip(bells), stack, strays)
}

/// The tables that all engines share. A manual engine never sleeps.
fn shared_tables(config: &RnicConfig, wakings: &[Waking]) -> io::Result<Arc<SharedTables>> {
    let sleeps = config.progress != Progress::Manual;
    let doorbell = |(_, bell): &Waking| EngineDoorbell::new(MAX_QPS, sleeps.then(|| bell.clone()));
    let mut doorbells = wakings.iter().map(doorbell).map(Arc::new);
    let first = doorbells.next();
    let first = first.ok_or_else(|| refusal("an RNIC needs a queue: open it with one at least"))?;
    SharedTables::new(first, doorbells, config.max_events)
}

fn refusal(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Reports changes of the interface to the engines: the host reports to the first engine, which
/// relays to the others.
fn attend(engines: &mut [Engine], wakings: &[Waking], host: &Arc<Ports>, ending: &Arc<Ending>) {
    let mut monitor = host.monitor();
    let watched = monitor.is_some();
    let relay = |(_, bell): &Waking| InterfaceReporter::new(Some(bell.clone()));
    let others = wakings.iter().skip(1).filter(|_| watched).map(relay);
    let (mut relays, monitors): (Vec<_>, Vec<_>) = others.unzip();
    let mut monitors = monitors.into_iter();
    for engine in engines {
        let host = Arc::clone(host) as Arc<dyn Host>;
        engine.attend(
            host,
            Arc::clone(ending),
            monitor,
            std::mem::take(&mut relays),
        );
        monitor = monitors.next();
    }
}

/// Starts to run the engines as the configuration says.
fn run_by(
    config: &RnicConfig,
    engines: Vec<Engine>,
    wakings: Vec<Waking>,
    deferred: &Arc<DeferredDrops>,
) -> io::Result<AnyMode> {
    let waiting = config.wait_mode;
    Ok(match config.progress {
        Progress::Manual => AnyMode::Manual(Manual::new(engines)?),
        Progress::Thread => {
            let engines = engines.into_iter().zip(wakings);
            AnyMode::Threads(EngineThreads::start(engines, waiting)?)
        }
        Progress::Inline => {
            let (engine, waking) = only_engine(engines, wakings)?;
            AnyMode::Inline(Inline::new(Runner::new(engine, waiting)?, &waking)?)
        }
        Progress::Assisted => {
            let (engine, waking) = only_engine(engines, wakings)?;
            // If the number of processors is unknown, there are probably several.
            let processors = available_parallelism().map_or(usize::MAX, NonZero::get);
            let runner = Runner::new(engine, waiting_on(processors, waiting))?;
            AnyMode::Assisted(Assisted::new(runner, &waking, deferred)?)
        }
    })
}

/// The engine that a thread of the application runs.
fn only_engine(engines: Vec<Engine>, wakings: Vec<Waking>) -> io::Result<(Engine, Waking)> {
    let mut engines = engines.into_iter().zip(wakings);
    match (engines.next(), engines.next()) {
        (Some(engine), None) => Ok(engine),
        _ => Err(refusal(
            "an application's thread turns one engine, for one queue: use Progress::Thread for several",
        )),
    }
}

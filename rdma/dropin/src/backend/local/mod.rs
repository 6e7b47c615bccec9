//! The RNIC in this process. No other module names a type of xwarp.

mod attempts;
mod connected;
mod connections;
mod errors;
mod link;
mod memory;
mod notices;
mod owned;
mod poll;
mod post;
mod queue_pairs;
mod requests;
mod shared;
mod stats;
mod table;
#[cfg(any(test, feature = "testbed"))]
pub(crate) mod testbed;
mod watcher;

use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use xwarp::attr::{QpChange, RnicAttributes};
use xwarp::config::{NicConfig, Progress};
use xwarp::error::{OpenError, RefusedError};
use xwarp::event::HandlerId;
use xwarp::memory::PblMode;
use xwarp::{
    CompletionQueue, MemoryWindow, ProtectionDomain, QpState, QueuePair, Rnic, RnicConfig,
    SharedReceiveQueue, SrqConfig,
};

use connections::Ports;
use errors::Numbered;
use link::Link;
use memory::Region;
use notices::{CompletionNotifications, Events};
use owned::Owned;
use poll::Cq;
use post::SrqPosts;
use queue_pairs::QueuePairs;
use requests::Requests;
use table::Table;
use watcher::Watcher;

use super::{
    Backend, CqHandle, CqPort, EventSink, Limits, Memory, MrHandle, MwHandle, NewQp, Notice,
    PdHandle, QpHandle, QpRequest, QpView, ReregisterFailure, Rights, SrqChange, SrqHandle,
    SrqPort, SrqSizes,
};
use crate::entry::Result;
use crate::environment;
use crate::lock::Lock;
use crate::logging::say;

/// An RNIC with all of its objects.
struct Local {
    rnic: Rnic,
    /// What tells completion events.
    handler: HandlerId,
    notices: Arc<CompletionNotifications>,
    pds: Table<ProtectionDomain>,
    regions: Table<Region>,
    windows: Table<MemoryWindow>,
    cqs: Table<Owned<Cq>>,
    srqs: Table<Owned<SrqPosts>>,
    qps: Arc<QueuePairs>,
    ports: Ports,
    /// Peers that wait for an answer.
    requests: Arc<Requests>,
    watcher: Watcher,
}

/// A peer that has been silent for this long is asked whether it lives. A program that was killed says nothing, as its TCP was its own; the
/// kernel of its host answers for it, with a RST.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// Asks for the NIC's times in completions, where the NIC has them.
const TIMESTAMPS: &CStr = c"XWARP_TIMESTAMPS";

/// What every device can do, open or not.
pub(crate) fn limits() -> Limits {
    let rnic = RnicAttributes::new(PblMode::Page, RnicConfig::default().max_events);
    Limits {
        qps: rnic.max_qps,
        depth: rnic.max_work_requests,
        sge: rnic.max_send_sge.min(rnic.max_write_sge),
        inline: rnic.max_inline,
        cqs: rnic.max_cqs,
        cq_entries: rnic.max_cq_entries,
        stags: rnic.max_regions,
        pds: rnic.max_pds,
        srqs: rnic.max_srqs,
        reads: rnic.max_ird.min(rnic.max_ord),
    }
}

/// Whether completions are to have the NIC's times: `XWARP_TIMESTAMPS` is set.
pub(crate) fn times_are_wanted() -> bool {
    environment::is_on(TIMESTAMPS)
}

/// Opens the RNIC of an interface. What prevents that is said on standard error, as the error number alone does not tell.
pub(crate) fn open(interface: &str, sink: Arc<dyn EventSink>) -> Result<Arc<dyn Backend>> {
    let nic = NicConfig::default().timestamps(times_are_wanted());
    let config = RnicConfig::default()
        .nic(nic)
        .progress(Progress::Assisted)
        .keepalive(Some(KEEPALIVE));
    let refused = |error: OpenError| {
        let why = errors::chain(&error);
        say(format_args!("cannot open an RNIC on {interface}: {why}"));
        error.errno()
    };
    let rnic = Rnic::open(interface, &config).map_err(refused)?;
    let link = Link::watch(interface, Arc::clone(&sink));
    let local = link.and_then(|link| Local::new(rnic, sink, Some(link)));
    let local = local.map_err(|errno| refused(OpenError::System(errno.into())))?;
    Ok(Arc::new(local))
}

impl Local {
    /// Takes an RNIC over. One in memory has no link that the kernel knows.
    fn new(rnic: Rnic, sink: Arc<dyn EventSink>, link: Option<Link>) -> Result<Self> {
        let notices = Arc::new(CompletionNotifications::default());
        let qps = Arc::new(QueuePairs::new());
        let requests = Arc::new(Requests::new());
        let watcher = Watcher::new(&qps, &requests, link, &sink)?;
        let of_handler = Arc::clone(&notices);
        let handler = rnic
            .add_completion_handler(move |id| of_handler.completion(id))
            .map_err(|_none_left| Errno::ENOMEM)?;
        let events = Events {
            notices: Arc::clone(&notices),
            qps: Arc::clone(&qps),
            ends: watcher.ends(),
            sink,
        };
        rnic.set_event_handler(move |_, event| events.report(event))
            .map_err(|error| error.errno())?;
        Ok(Self {
            rnic,
            handler,
            notices,
            pds: Table::new(),
            regions: Table::new(),
            windows: Table::new(),
            cqs: Table::new(),
            srqs: Table::new(),
            qps,
            ports: Ports::new(),
            requests,
            watcher,
        })
    }

    fn cq(&self, cq: CqHandle) -> Result<Arc<Cq>> {
        self.cqs.with(cq.0, |cq| Ok(Arc::clone(cq)))
    }

    fn srq(&self, srq: SrqHandle) -> Result<Arc<SrqPosts>> {
        self.srqs.with(srq.0, |srq| Ok(Arc::clone(srq)))
    }

    fn with_srq<R>(
        &self,
        srq: SrqHandle,
        verb: impl FnOnce(&mut SharedReceiveQueue) -> Result<R>,
    ) -> Result<R> {
        let srq = self.srq(srq)?;
        verb(srq.0.lock().as_mut().ok_or(Errno::EINVAL)?)
    }

    /// Lends the completion queues of a queue pair to be. Two are locked in the order of their
    /// keys.
    fn with_cqs<R>(
        &self,
        request: &QpRequest,
        verb: impl FnOnce(&CompletionQueue, &CompletionQueue) -> Result<R>,
    ) -> Result<R> {
        let (send, recv) = (request.send_cq, request.recv_cq);
        let low = self.cq(send.min(recv))?;
        let low = low.queue.lock();
        let low = low.as_ref().ok_or(Errno::EINVAL)?;
        if send == recv {
            return verb(low, low);
        }
        let high = self.cq(send.max(recv))?;
        let high = high.queue.lock();
        let high = high.as_ref().ok_or(Errno::EINVAL)?;
        if send < recv {
            verb(low, high)
        } else {
            verb(high, low)
        }
    }

    fn new_qp(&self, request: &QpRequest) -> Result<QueuePair> {
        let config = queue_pairs::config(request);
        self.pds.with(request.pd.0, |pd| {
            self.with_cqs(request, |send, recv| {
                let Some(srq) = request.srq else {
                    let made = pd.create_qp(&config, send, recv);
                    return made.map_err(|error| error.errno());
                };
                self.with_srq(srq, |srq| {
                    let made = pd.create_qp_with_srq(&config, send, recv, srq);
                    made.map_err(|error| error.errno())
                })
            })
        })
    }
}

/// Ends the queue of a port by a verb that takes it; its identity. One that is refused stays where it is.
fn end_queue<T, I, E: Numbered>(
    place: &Lock<Option<T>>,
    end: impl FnOnce(T) -> (I, std::result::Result<(), RefusedError<T, E>>),
) -> Result<I> {
    let mut place = place.lock();
    let (id, ended) = end(place.take().ok_or(Errno::EINVAL)?);
    ended.map_err(|refused| {
        *place = Some(*refused.object);
        refused.error.errno()
    })?;
    Ok(id)
}

/// The end of an object by a verb that takes it.
macro_rules! ended {
    ($result:expr) => {
        $result.map_err(|refused| (refused.error.errno(), Some(refused.object)))
    };
}

impl Backend for Local {
    fn close(&self) {
        self.watcher.end();
        stats::print(&self.rnic);
        if let Err(error) = self.rnic.close() {
            log::debug!("the RNIC was closed already: {error}");
        }
    }

    fn alloc_pd(&self) -> Result<PdHandle> {
        let pd = self.rnic.allocate_pd().map_err(|error| error.errno())?;
        Ok(PdHandle(self.pds.insert(pd)))
    }

    fn dealloc_pd(&self, pd: PdHandle) -> Result<()> {
        self.pds.destroy(pd.0, |pd| ended!(pd.deallocate()))
    }

    fn reg_mr(&self, pd: PdHandle, memory: Memory, rights: Rights) -> Result<(MrHandle, u32)> {
        let region = self
            .pds
            .with(pd.0, |pd| Region::register(pd, memory, rights))?;
        let stag = region.stag();
        Ok((MrHandle(self.regions.insert(region)), stag))
    }

    fn rereg_mr(
        &self,
        mr: MrHandle,
        pd: PdHandle,
        memory: Option<Memory>,
        rights: Rights,
    ) -> std::result::Result<u32, ReregisterFailure> {
        let mut is_lost = false;
        let made = self.pds.with(pd.0, |pd| {
            self.regions.replace(mr.0, |region| {
                let (region, made) = region.reregister(pd, memory, rights);
                is_lost = region.is_none();
                (region, made)
            })
        });
        made.map_err(|errno| ReregisterFailure { errno, is_lost })
    }

    fn dereg_mr(&self, mr: MrHandle) -> Result<()> {
        self.regions.destroy(mr.0, Region::deregister)
    }

    fn alloc_mw(&self, pd: PdHandle) -> Result<(MwHandle, u32)> {
        let window = self.pds.with(pd.0, |pd| {
            pd.allocate_window().map_err(|error| error.errno())
        })?;
        let stag = window.stag().0;
        Ok((MwHandle(self.windows.insert(window)), stag))
    }

    fn dealloc_mw(&self, mw: MwHandle) -> Result<()> {
        self.windows.destroy(mw.0, |window| {
            window.deallocate().map_err(|error| (error.errno(), None))
        })
    }

    fn has_times(&self) -> bool {
        self.rnic.has_timestamps()
    }

    fn create_cq(
        &self,
        entries: usize,
        notice: Option<Notice>,
    ) -> Result<(CqHandle, Box<dyn CqPort>)> {
        let made = self.rnic.create_cq_with(entries, self.handler);
        let queue = made.map_err(|error| error.errno())?;
        let id = queue.id();
        let port = Arc::new(Cq::new(queue, &self.qps));
        let cq = CqHandle(self.cqs.insert(Owned::new(&port)));
        self.notices.add_cq(id, cq, notice);
        Ok((cq, Box::new(port)))
    }

    fn resize_cq(&self, cq: CqHandle, entries: usize) -> Result<()> {
        let cq = self.cq(cq)?;
        let mut queue = cq.queue.lock();
        let queue = queue.as_mut().ok_or(Errno::EINVAL)?;
        queue.resize(entries).map_err(|error| error.errno())
    }

    fn destroy_cq(&self, cq: CqHandle) -> Result<()> {
        self.cqs.destroy(cq.0, |port| {
            match end_queue(&port.queue, |queue| (queue.id(), queue.destroy())) {
                Ok(id) => self.notices.remove_cq(id),
                Err(errno) => return Err((errno, Some(Box::new(port)))),
            }
            Ok(())
        })
    }

    fn create_srq(&self, pd: PdHandle, sizes: SrqSizes) -> Result<(SrqHandle, Arc<dyn SrqPort>)> {
        let config = SrqConfig::default()
            .depth(sizes.depth)
            .sge(sizes.sge)
            .limit(sizes.limit);
        let queue = self.pds.with(pd.0, |pd| {
            pd.create_srq(config).map_err(|error| error.errno())
        })?;
        let id = queue.id();
        let port = Arc::new(SrqPosts(Lock::new(Some(queue))));
        let srq = SrqHandle(self.srqs.insert(Owned::new(&port)));
        self.notices.add_srq(id, srq);
        Ok((srq, port))
    }

    fn modify_srq(&self, srq: SrqHandle, change: SrqChange) -> Result<()> {
        self.with_srq(srq, |srq| shared::modify(srq, change))
    }

    fn query_srq(&self, srq: SrqHandle) -> Result<SrqSizes> {
        self.with_srq(srq, |srq| shared::query(srq))
    }

    fn destroy_srq(&self, srq: SrqHandle) -> Result<()> {
        self.srqs.destroy(srq.0, |port| {
            match end_queue(&port.0, |queue| (queue.id(), queue.destroy())) {
                Ok(id) => self.notices.remove_srq(id),
                Err(errno) => return Err((errno, Some(Box::new(port)))),
            }
            Ok(())
        })
    }

    fn create_qp(&self, request: &QpRequest) -> Result<NewQp> {
        self.qps.insert(self.new_qp(request)?, request)
    }

    fn set_reads(&self, qp: QpHandle, ird: Option<u16>, ord: Option<u16>) -> Result<()> {
        self.qps.with(qp, |qp| {
            let mut change = QpChange::to(qp.state());
            if let Some(ird) = ird {
                change = change.ird(ird);
            }
            if let Some(ord) = ord {
                change = change.ord(ord);
            }
            let changed = qp.modify(change);
            changed.map(|_depths| ()).map_err(|error| error.errno())
        })
    }

    fn query_qp(&self, qp: QpHandle) -> Result<QpView> {
        self.qps.query(qp)
    }

    fn abort_qp(&self, qp: QpHandle) -> Result<()> {
        self.qps
            .with(qp, |qp| qp.abort().map_err(|error| error.errno()))
    }

    fn reset_qp(&self, qp: QpHandle) -> Result<()> {
        self.qps.modify(qp, QpChange::to(QpState::Idle))
    }

    fn destroy_qp(&self, qp: QpHandle) -> Result<()> {
        self.destroy_connected(qp)
    }
}

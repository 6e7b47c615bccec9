//! Connections of a command: failures with reasons, and waits that end with Ctrl-C, a connection or
//! a time limit.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail, ensure};
use xwarp::cm::ConnectionRequest;
use xwarp::cm::PrivateData;
use xwarp::error::{PostError, RnicEnded, RnicUnavailable};
use xwarp::event::AsyncEventKind;
use xwarp::{
    CompletionQueue, CompletionStatus, Listener, QpState, QueuePair, RecvRequest, Rnic,
    SendRequest, WorkCompletion,
};

use crate::device::Device;
use crate::host::named;
use crate::output::complain;
use crate::signals::Interrupted;

/// Interval at which a wait checks for a signal, for the end of a connection that has no work, and
/// whether the other side is silent.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for connecting, from the first question to the host to the server's answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without traffic in either direction after which a wait fails: TCP's user timeout.
pub(crate) const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a client may be silent before its first message, or while another client waits. It is
/// less than a client waits for its connection.
pub(crate) const TURN: Duration = Duration::from_secs(3);
/// Time that the other side may take to close.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of the connection where there is only one.
pub(crate) const ONLY: usize = 0;

/// The connections with one other side: queue pairs, and one completion queue for all of them. A
/// connection is named by its number. The end of one ends all.
pub(crate) struct Connections<'a> {
    /// In the order of creation.
    qps: Vec<QueuePair>,
    cq: CompletionQueue,
    rnic: &'a Rnic,
    interrupted: &'a Interrupted,
    silence_timeout: Duration,
    /// FPDUs received before these connections, if the first message must arrive within [`TURN`].
    must_begin: Option<u64>,
    deadline: Option<Deadline>,
}

/// When the run must be over, and the error if it is not.
struct Deadline {
    at: Instant,
    otherwise: String,
}

impl<'a> Connections<'a> {
    /// Connections on these queue pairs, which are in the order of creation.
    pub(crate) fn new(
        qps: Vec<QueuePair>,
        cq: CompletionQueue,
        rnic: &'a Rnic,
        interrupted: &'a Interrupted,
    ) -> Self {
        Self {
            qps,
            cq,
            rnic,
            interrupted,
            silence_timeout: SILENCE_TIMEOUT,
            must_begin: None,
            deadline: None,
        }
    }

    /// Number of connections.
    pub(crate) fn count(&self) -> usize {
        self.qps.len()
    }

    /// Queue pair of a connection.
    pub(crate) fn qp(&self, which: usize) -> &QueuePair {
        &self.qps[which]
    }

    /// Queue pair of a connection to accept.
    pub(crate) fn qp_mut(&mut self, which: usize) -> &mut QueuePair {
        &mut self.qps[which]
    }

    /// Connection of a completion.
    pub(crate) fn of(&self, completion: &WorkCompletion) -> usize {
        // Each completion of this queue belongs to one of them. Identities are in the order of
        // creation.
        self.qps.partition_point(|qp| qp.id() < completion.qp)
    }

    /// Connects to a server, and returns its answer.
    pub(crate) fn connect(
        &mut self,
        which: usize,
        server: SocketAddr,
        private_data: &[u8],
    ) -> anyhow::Result<PrivateData> {
        let qp = &mut self.qps[which];
        let mut connecting = qp.begin_connect(server, private_data, CONNECT_TIMEOUT)?;
        loop {
            if let Some(outcome) = connecting.try_finish() {
                return Ok(outcome?);
            }
            self.interrupted.check()?;
            let either = [connecting.as_fd(), self.interrupted.as_fd()];
            self.rnic.wait_readable(&either, CONNECT_TIMEOUT)?;
        }
    }

    /// Sets how long the other side may be silent during a wait.
    pub(crate) fn set_silence_timeout(&mut self, timeout: Duration) {
        self.silence_timeout = timeout;
    }

    /// Requires the client's first message within [`TURN`]. `received`: [`fpdus_received`] before
    /// the connection was accepted.
    pub(crate) fn must_begin(&mut self, received: u64) {
        self.must_begin = Some(received);
    }

    /// Makes every wait after `at` fail with this error.
    pub(crate) fn end_by(&mut self, at: Instant, otherwise: String) {
        self.deadline = Some(Deadline { at, otherwise });
    }

    /// The next completion, which must be a success.
    pub(crate) fn completion(&mut self) -> anyhow::Result<WorkCompletion> {
        let timeout = SilenceTimeout::of(self);
        self.completion_while(|silent| timeout.check(silent))
    }

    /// The next completion, which must be a success. While there is none, calls `may_wait` with the
    /// time for which both sides have been silent.
    pub(crate) fn completion_while(
        &mut self,
        mut may_wait: impl FnMut(Duration) -> anyhow::Result<()>,
    ) -> anyhow::Result<WorkCompletion> {
        let mut silence = Silence::default();
        loop {
            if let Some(completion) = self.try_completion()? {
                return Ok(completion);
            }
            if let Some(completion) = self.wait_alive()? {
                return self.succeeded(completion);
            }
            may_wait(silence.so_far(self.rnic)?)?;
        }
    }

    /// Waits up to [`CHECK_INTERVAL`] for a completion, while the connections are open and no
    /// signal has come.
    fn wait_alive(&mut self) -> anyhow::Result<Option<WorkCompletion>> {
        self.check_alive()?;
        // Without other descriptors the thread may sleep on a word of memory, which costs the least
        // latency.
        Ok(self.cq.wait(CHECK_INTERVAL)?)
    }

    /// Waits for `time` while the connections are served.
    pub(crate) fn pause(&self, time: Duration) -> anyhow::Result<()> {
        self.rnic.wait_readable(&[self.interrupted.as_fd()], time)?;
        Ok(self.interrupted.check()?)
    }

    /// A completion that is already there, which must be a success.
    pub(crate) fn try_completion(&mut self) -> anyhow::Result<Option<WorkCompletion>> {
        match self.cq.poll()? {
            Some(completion) => self.succeeded(completion).map(Some),
            None => Ok(None),
        }
    }

    fn succeeded(&self, completion: WorkCompletion) -> anyhow::Result<WorkCompletion> {
        match completion.status {
            CompletionStatus::Success => Ok(completion),
            CompletionStatus::Flushed => bail!("{}", self.why_ended()),
            status => bail!("a {:?} failed: {status}", completion.opcode),
        }
    }

    /// Checks now and then while no completion is awaited. Fails after a signal, the end of a
    /// connection, or too long a silence.
    pub(crate) fn check_going(&self, silence: &mut Silence) -> anyhow::Result<()> {
        self.check_alive()?;
        if !silence.is_due() {
            return Ok(());
        }
        SilenceTimeout::of(self).check(silence.so_far(self.rnic)?)
    }

    /// Fails after a signal, the end of a connection, or the run's deadline.
    pub(crate) fn check_alive(&self) -> anyhow::Result<()> {
        self.interrupted.check()?;
        if self.qps.iter().any(|qp| qp.state() != QpState::Rts) {
            bail!("{}", self.why_ended());
        }
        match &self.deadline {
            Some(deadline) if Instant::now() > deadline.at => bail!("{}", deadline.otherwise),
            _ => Ok(()),
        }
    }

    /// Why a connection has ended, as far as it was reported.
    fn why_ended(&self) -> String {
        let mut text = "the other side has closed the connection".to_owned();
        while let Some(event) = self.rnic.events().try_next().ok().flatten() {
            if let AsyncEventKind::Failed { reason } = event.kind {
                return format!("the RNIC has failed: {reason}");
            }
            text = reported_end(event.kind).unwrap_or(text);
        }
        text
    }

    /// Posts to the send queue of a connection. If the connection has ended, the error says why.
    pub(crate) fn post_send(&mut self, which: usize, request: SendRequest) -> anyhow::Result<()> {
        self.qps[which]
            .post_send(request)
            .map_err(|error| self.not_posted(error))
    }

    /// Posts a receive buffer of a connection. If the connection has ended, the error says why.
    pub(crate) fn post_recv(&mut self, which: usize, request: RecvRequest) -> anyhow::Result<()> {
        self.qps[which]
            .post_recv(request)
            .map_err(|error| self.not_posted(error))
    }

    fn not_posted(&self, error: PostError) -> anyhow::Error {
        match error {
            PostError::InvalidState(_) => anyhow!("{}", self.why_ended()),
            error => error.into(),
        }
    }

    /// Closes from this side and waits for the other. A late answer is not an error: the work is
    /// done.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        for qp in &mut self.qps {
            qp.begin_disconnect()?;
        }
        self.await_ends(CLOSE_TIMEOUT).map(drop)
    }

    /// Waits until the other side has closed.
    pub(crate) fn wait_closed(self, timeout: Duration) -> anyhow::Result<()> {
        ensure!(
            self.await_ends(timeout)?,
            "the client does not close the connection"
        );
        Ok(())
    }

    /// Waits for the end of all connections. Returns false after `timeout`.
    fn await_ends(&self, timeout: Duration) -> anyhow::Result<bool> {
        let since = Instant::now();
        for qp in &self.qps {
            if !self.await_end(qp, since, timeout)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for the end of one connection up to `timeout` from `since`.
    fn await_end(&self, qp: &QueuePair, since: Instant, timeout: Duration) -> anyhow::Result<bool> {
        let changes = qp.state_changes()?;
        while !matches!(changes.take(), QpState::Idle | QpState::Error) {
            self.interrupted.check()?;
            let Some(left) = timeout.checked_sub(since.elapsed()) else {
                return Ok(false);
            };
            let either = [changes.as_fd(), self.interrupted.as_fd()];
            self.rnic.wait_readable(&either, left)?;
        }
        Ok(true)
    }
}

/// The end of a connection that an event reports, in words.
fn reported_end(event: AsyncEventKind) -> Option<String> {
    Some(match event {
        AsyncEventKind::Closed
        | AsyncEventKind::SrqLimitReached
        | AsyncEventKind::RqLimitReached
        | AsyncEventKind::EventsLost { .. } => return None,
        AsyncEventKind::TerminateReceived(code) => {
            format!("the other side terminated the connection: {code}")
        }
        AsyncEventKind::Terminated { code, reason, .. } => {
            format!("the other side violated the protocol: {reason}; it was sent {code}")
        }
        AsyncEventKind::ConnectionReset => {
            "the connection is lost: the peer reset the connection".to_owned()
        }
        AsyncEventKind::ConnectionLost { reason }
        | AsyncEventKind::BadClose { reason }
        | AsyncEventKind::BadPeerClose { reason } => format!("the connection is lost: {reason}"),
        AsyncEventKind::SendCqError | AsyncEventKind::RecvCqError | AsyncEventKind::CqOverflow => {
            "a completion queue overflowed".to_owned()
        }
        AsyncEventKind::QpCatastrophic { reason } => {
            format!("a defect of xwarp has ended the connection: {reason}")
        }
        AsyncEventKind::SrqError | AsyncEventKind::SrqFailed | AsyncEventKind::CqFailed => {
            format!("a defect of xwarp: {event:?}")
        }
        other => format!("the RNIC reports {other:?}"),
    })
}

/// Limit of the other side's silence.
struct SilenceTimeout<'a> {
    rnic: &'a Rnic,
    must_begin: Option<u64>,
    timeout: Duration,
}

impl<'a> SilenceTimeout<'a> {
    fn of(connections: &Connections<'a>) -> Self {
        Self {
            rnic: connections.rnic,
            must_begin: connections.must_begin,
            timeout: connections.silence_timeout,
        }
    }

    /// Fails after too long a silence.
    fn check(&self, silent: Duration) -> anyhow::Result<()> {
        let not_begun = match self.must_begin {
            Some(received) => fpdus_received(self.rnic)? == received,
            None => false,
        };
        let timeout = if not_begun { TURN } else { self.timeout };
        ensure!(
            silent < timeout,
            "the other side keeps the connection open, but has neither sent nor accepted data for {} s",
            timeout.as_secs()
        );
        Ok(())
    }
}

/// FPDUs received on all connections of the RNIC.
pub(crate) fn fpdus_received(rnic: &Rnic) -> Result<u64, RnicUnavailable> {
    Ok(rnic.counters()?.rdma.fpdus_in)
}

/// Start of the time without FPDUs in either direction.
#[derive(Default)]
pub(crate) struct Silence(Option<Quiet>);

struct Quiet {
    fpdus: u64,
    since: Instant,
    looked: Instant,
}

impl Silence {
    /// Returns true if it is time for another check.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let quiet = self.0.get_or_insert(Quiet {
            fpdus: 0,
            since: now,
            looked: now,
        });
        now - quiet.looked >= CHECK_INTERVAL
    }

    /// Duration of the silence.
    fn so_far(&mut self, rnic: &Rnic) -> Result<Duration, RnicUnavailable> {
        let now = Instant::now();
        let rdma = rnic.counters()?.rdma;
        let fpdus = rdma.fpdus_in + rdma.fpdus_out;
        let quiet = self.0.take().filter(|quiet| quiet.fpdus == fpdus);
        let since = quiet.map_or(now, |quiet| quiet.since);
        self.0 = Some(Quiet {
            fpdus,
            since,
            looked: now,
        });
        Ok(now - since)
    }
}

/// Clients that want to connect to a server.
pub(crate) struct Clients<'a> {
    rnic: &'a Rnic,
    listeners: Vec<Listener>,
    /// A client that connected while another one was served.
    next: Option<ConnectionRequest>,
    interrupted: &'a Interrupted,
}

impl<'a> Clients<'a> {
    /// Listens on all addresses of a device. Port 0 selects a free one.
    pub(crate) fn listen(
        rnic: &'a Rnic,
        device: &Device,
        port: u16,
        interrupted: &'a Interrupted,
    ) -> anyhow::Result<Self> {
        let mut listeners = Vec::new();
        let mut port = port;
        for any in device.any_addresses()? {
            let listener = listen(rnic, any, port)?;
            port = listener.addresses().first().map_or(port, SocketAddr::port);
            listeners.push(listener);
        }
        for address in device.addresses_on_loopback()? {
            let device = device.name();
            complain(format_args!(
                "{address} lies on loopback and is not served; add it to {device} with `ip addr add {address} dev {device}`"
            ));
        }
        Ok(Self {
            rnic,
            listeners,
            next: None,
            interrupted,
        })
    }

    /// Addresses and ports of the listeners.
    pub(crate) fn addresses(&self) -> String {
        let all = self.listeners.iter().flat_map(Listener::addresses);
        let texts: Vec<String> = all.map(|address| named(*address)).collect();
        texts.join(", ")
    }

    /// Waits for the next client.
    pub(crate) fn next(&mut self) -> anyhow::Result<ConnectionRequest> {
        loop {
            if let Some(request) = self.next_within(Duration::MAX)? {
                return Ok(request);
            }
        }
    }

    /// Waits up to `timeout` for the next client.
    pub(crate) fn next_within(
        &mut self,
        timeout: Duration,
    ) -> anyhow::Result<Option<ConnectionRequest>> {
        let since = Instant::now();
        loop {
            self.interrupted.check()?;
            if self.are_waiting()? {
                return Ok(self.next.take());
            }
            let Some(left) = timeout.checked_sub(since.elapsed()) else {
                return Ok(None);
            };
            let listeners = self.listeners.iter().map(AsFd::as_fd);
            let all: Vec<_> = listeners.chain([self.interrupted.as_fd()]).collect();
            self.rnic.wait_readable(&all, left)?;
        }
    }

    /// Returns true if a client waits.
    pub(crate) fn are_waiting(&mut self) -> Result<bool, RnicEnded> {
        for listener in &mut self.listeners {
            if self.next.is_none() {
                self.next = listener.try_accept()?;
            }
        }
        Ok(self.next.is_some())
    }
}

fn listen(rnic: &Rnic, address: IpAddr, port: u16) -> anyhow::Result<Listener> {
    Ok(rnic.listen(SocketAddr::new(address, port))?)
}

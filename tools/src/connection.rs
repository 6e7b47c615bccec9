//! A queue pair in a command's hands: what fails says why, and no wait outlasts Ctrl-C or the connection.

use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use xwarp::{
    AsyncEventKind, CompletionQueue, CompletionStatus, ConnectionRequest, Listener, PostError,
    QpState, QueuePair, RecvRequest, Rnic, SendRequest, WorkCompletion,
};

use crate::signals::Interrupted;

/// How often a wait looks for Ctrl-C and for the connection's end.
pub(crate) const GLANCE: Duration = Duration::from_millis(100);
/// How long the other side may take to close.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// A queue pair and the completion queue of both its queues.
pub(crate) struct Connection<'a> {
    pub(crate) qp: QueuePair,
    pub(crate) cq: CompletionQueue,
    rnic: &'a Rnic,
    interrupted: &'a Interrupted,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(
        qp: QueuePair,
        cq: CompletionQueue,
        rnic: &'a Rnic,
        interrupted: &'a Interrupted,
    ) -> Self {
        Self {
            qp,
            cq,
            rnic,
            interrupted,
        }
    }

    /// The next completion, which must be a success.
    pub(crate) fn completion(&mut self) -> anyhow::Result<WorkCompletion> {
        loop {
            if let Some(completion) = self.try_completion()? {
                return Ok(completion);
            }
            self.check_alive()?;
            if let Some(completion) = self.cq.wait(GLANCE)? {
                return self.succeeded(completion);
            }
        }
    }

    /// A completion that is there already, which must be a success.
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

    /// Fails when the user has had enough, or the connection has ended.
    pub(crate) fn check_alive(&self) -> anyhow::Result<()> {
        self.interrupted.check()?;
        if self.qp.state() != QpState::Rts {
            bail!("{}", self.why_ended());
        }
        Ok(())
    }

    /// Why the connection is no more, as far as it was reported.
    fn why_ended(&self) -> String {
        let mut text = "the other side has closed the connection".to_owned();
        while let Some(event) = self.rnic.poll_event() {
            text = match event.kind {
                AsyncEventKind::Closed
                | AsyncEventKind::SrqLimitReached
                | AsyncEventKind::RqLimitReached
                | AsyncEventKind::EventsLost { .. } => continue,
                AsyncEventKind::TerminateReceived(code) => {
                    format!("the other side terminated the connection: {code}")
                }
                AsyncEventKind::Terminated { code, reason, .. } => {
                    format!("the other side broke the protocol: {reason}; it was told {code}")
                }
                AsyncEventKind::ConnectionReset => {
                    "the connection is lost: the peer reset the connection".to_owned()
                }
                AsyncEventKind::ConnectionLost { reason }
                | AsyncEventKind::BadClose { reason }
                | AsyncEventKind::BadPeerClose { reason } => {
                    format!("the connection is lost: {reason}")
                }
                AsyncEventKind::SendCqError
                | AsyncEventKind::RecvCqError
                | AsyncEventKind::CqOverflow => "a completion queue was too small".to_owned(),
                AsyncEventKind::QpCatastrophic { reason } => {
                    format!("a defect of xwarp has ended the connection: {reason}")
                }
                AsyncEventKind::SrqError | AsyncEventKind::SrqFailed | AsyncEventKind::CqFailed => {
                    format!("a defect of xwarp: {:?}", event.kind)
                }
                AsyncEventKind::Failed { reason } => reason,
            };
        }
        text
    }

    /// Posts to the send queue; when the connection has ended, says why.
    pub(crate) fn post_send(&mut self, request: SendRequest) -> anyhow::Result<()> {
        self.qp
            .post_send(request)
            .map_err(|error| self.not_posted(error))
    }

    /// Posts a receive buffer; when the connection has ended, says why.
    pub(crate) fn post_recv(&mut self, request: RecvRequest) -> anyhow::Result<()> {
        self.qp
            .post_recv(request)
            .map_err(|error| self.not_posted(error))
    }

    fn not_posted(&self, error: PostError) -> anyhow::Error {
        match error {
            PostError::InvalidState(_) => anyhow!("{}", self.why_ended()),
            PostError::TooManyWorkRequests(_)
            | PostError::TooManyElements { .. }
            | PostError::TooLong
            | PostError::Closed(_)
            | PostError::StagZero
            | PostError::SharedReceiveQueue
            | PostError::DataPathTaken
            | PostError::Destroyed
            | PostError::OtherRnic
            | PostError::OutOfBounds(_)
            | PostError::ExtensionsDisabled => error.into(),
        }
    }

    /// Closes from this side and waits for the other.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.qp.disconnect(CLOSE_LIMIT)?;
        Ok(())
    }

    /// Waits until the other side has closed.
    pub(crate) fn wait_closed(mut self) -> anyhow::Result<()> {
        let since = Instant::now();
        while !matches!(self.qp.state(), QpState::Idle | QpState::Error) {
            self.interrupted.check()?;
            if since.elapsed() > CLOSE_LIMIT {
                bail!("the client does not close the connection");
            }
            self.cq.wait(GLANCE / 10)?;
        }
        Ok(())
    }
}

/// The next client of any of the listeners.
pub(crate) fn next_client(
    listeners: &mut [Listener],
    interrupted: &Interrupted,
) -> anyhow::Result<ConnectionRequest> {
    loop {
        let request = listeners
            .iter_mut()
            .find_map(|listener| listener.accept(GLANCE));
        interrupted.check()?;
        if let Some(request) = request {
            return Ok(request);
        }
    }
}

//! Posting of work requests, and what it changes.

use xwarp::error::{PostError, PostListError};
use xwarp::work::Sgl;
use xwarp::{Opcode, QpState, RecvRequest, SendRequest, SharedReceiveQueue, WrId};
use xwarp_test_kit::netsim::Rng;

use crate::buffers::Buffers;
use crate::draft::{Dead, Draft};
use crate::pair::{Pair, SharedModel, tagged};
use crate::queue::{Effect, Fate, Needs, Work};
use crate::stag::Which;

/// Entries of the shared receive queue.
pub(crate) const SHARED_DEPTH: usize = 12;
/// Work requests of a list.
const LIST: usize = 4;

impl Pair {
    /// Posts a random work request to the send queue of a end, or a list of them.
    pub(crate) fn post_send(&mut self, who: usize, dead: Dead, rng: &mut Rng) {
        if rng.chance(0.15) {
            self.post_list(who, rng);
        } else if rng.chance(0.05) {
            self.read_then_invalidate(who, rng);
        } else if let Some(draft) = self.draft(who, dead, rng) {
            let Draft { request, work } = draft.flagged(rng);
            self.submit(who, request, work);
        }
    }

    /// A Read into what Fast-Register has registered, which is invalidated behind a Local Fence:
    /// when the Read is complete.
    fn read_then_invalidate(&mut self, who: usize, rng: &mut Rng) {
        if let Some(Draft { request, work }) = self.read_into_fast(who, rng) {
            self.submit(who, request, work);
        }
        if let Some(Draft { request, mut work }) = self.unbind(who, Which::Fast) {
            work.fenced = true;
            self.submit(who, request.locally_fenced(), work);
        }
    }

    /// Posts work whose effect is possible from then on, if it was posted.
    pub(crate) fn submit(&mut self, who: usize, request: SendRequest, work: Work) {
        let state = self.ends[who].shown_state();
        match self.ends[who].qp().post_send(request) {
            Ok(()) => {
                assert!(
                    matches!(state, QpState::Idle | QpState::Rts),
                    "posted in {state:?}"
                );
                self.posted(who, work);
            }
            Err(error) => self.check_refusal(who, state, error),
        }
    }

    fn check_refusal(&self, who: usize, state: QpState, error: PostError) {
        match error {
            PostError::InvalidState(its) => {
                assert_eq!(its, state);
                assert!(!matches!(state, QpState::Idle | QpState::Rts));
            }
            PostError::TooManyWorkRequests(_) => {
                let posted = self.ends[who].sends.posted.len();
                let depth = self.ends[who].queue_depths[0];
                assert!(posted >= depth, "{posted} are posted");
            }
            error => panic!("{error}"),
        }
    }

    /// Posts a list, in which one may be that cannot be posted: those before it are, and none from
    /// it on (verbs draft §8.2.1).
    fn post_list(&mut self, who: usize, rng: &mut Rng) {
        let count = 1 + rng.index(LIST);
        let mut drafts: Vec<Draft> = (0..count)
            .map(|_| self.transfer(who, rng).flagged(rng))
            .collect();
        let bad = rng.chance(0.3).then(|| rng.index(count));
        let refusal = bad.map(|bad| drafts[bad].forbid(rng));
        let requests = drafts.iter().map(|draft| draft.request.clone());
        let state = self.ends[who].shown_state();
        let result = self.ends[who]
            .qp()
            .post_send_list(requests.collect::<Vec<_>>());
        let (posted, error) = match result {
            Ok(posted) => (posted, None),
            Err(PostListError { posted, error, .. }) => (posted, Some(error)),
        };
        for draft in drafts.drain(..posted) {
            self.posted(who, draft.work);
        }
        match error {
            None => assert_eq!((posted, bad), (count, None)),
            Some(error) if Some(error) == refusal => assert_eq!(Some(posted), bad),
            Some(error) => {
                let full = matches!(error, PostError::TooManyWorkRequests(_));
                assert!(full || posted == 0, "{posted} in {state:?}");
                self.check_refusal(who, state, error);
            }
        }
    }

    fn posted(&mut self, who: usize, work: Work) {
        let held = self.ends[who].sends.held();
        let depth = self.ends[who].queue_depths[0];
        assert!(held < depth, "{held} are not polled");
        let id = tagged(who, work.id);
        match &work.effect {
            Effect::Nothing | Effect::Atomic(_) => {}
            Effect::Write(patch) => self.ends[1 - who].memory.begin(id, patch.clone()),
            Effect::Read(patch) => self.ends[who].memory.begin(id, patch.clone()),
            Effect::ReadInvalidate(patch) => {
                self.ends[who].memory.begin(id, patch.clone());
                self.changes(who, Which::Fast);
            }
            Effect::Bind(which, _) | Effect::Unbind(which) => {
                // It may run before work in front of it is complete (verbs.md §7).
                if *which == Which::Fast && !work.fenced {
                    self.ends[who].sends.open(Needs::Fast);
                    self.excused |= !self.ends[who].sends.is_fine();
                }
                self.changes(who, *which);
            }
        }
        if let Some(message) = &work.message {
            if message.invalidate.is_some() {
                self.changes(1 - who, Which::Window);
            }
            if self.ends[who].live {
                self.ends[who].messages.push_back(message.clone());
            }
        }
        self.excused |= self.ends[who].sends.fate(&work) != Fate::Good;
        self.spoken |= who == 0 && !work.is_memory();
        self.ends[who].sends.posted.push_back(work);
    }

    fn changes(&mut self, who: usize, which: Which) {
        self.ends[who].stag_is(which).begin();
        self.excused |= self.uses_stags;
    }

    /// An empty Write, without which the peer of a end that has connected may not begin.
    pub(crate) fn post_first_word(&mut self, who: usize) {
        let id = self.next_id(who);
        let to = self.ends[1 - who].sink.remote(0);
        let mut draft = Draft::new(
            SendRequest::write(WrId(id), Sgl::new(), to),
            Opcode::Write,
            0,
        );
        (draft.request.signaled, draft.work.signaled) = (false, false);
        self.submit(who, draft.request, draft.work);
    }

    /// Posts some receives at once to a queue of a queue pair's own.
    pub(crate) fn post_recv_list(&mut self, who: usize, buffers: &mut Buffers, count: usize) {
        let end = &mut self.ends[who];
        let (state, before) = (end.shown_state(), end.recvs.len());
        let taken: Vec<_> = (0..count).map(|_| buffers.take()).collect();
        let requests = taken
            .iter()
            .map(|(id, place)| RecvRequest::new(WrId(*id), *place));
        let requests: Vec<RecvRequest> = requests.collect();
        let room = match state {
            QpState::Idle | QpState::Rts if !end.shared => end.queue_depths[1] - before,
            _ => 0,
        };
        let posted = match end.qp().post_recv_list(requests) {
            Ok(posted) => posted,
            Err(PostListError { posted, error, .. }) => {
                let full = matches!(error, PostError::TooManyWorkRequests(_));
                assert!(full || room == 0, "{error}");
                posted
            }
        };
        assert_eq!(posted, room.min(count), "{before} in {state:?}");
        for (n, (id, _)) in taken.into_iter().enumerate() {
            if n < posted {
                end.recvs.push_back(id);
            } else {
                buffers.put_back(id);
            }
        }
    }

    /// Posts a receive, to the shared receive queue where there is one.
    pub(crate) fn post_recv(
        &mut self,
        who: usize,
        buffers: &mut Buffers,
        srq: &mut SharedReceiveQueue,
        model: &mut SharedModel,
    ) {
        let end = &mut self.ends[who];
        let (id, place) = buffers.take();
        let request = RecvRequest::new(WrId(id), place);
        if end.shared {
            let result = srq.post_recv(request.clone());
            assert_eq!(
                result.is_ok(),
                model.posted.len() < SHARED_DEPTH,
                "{result:?}"
            );
            assert!(end.qp().post_recv(request).is_err());
            match result {
                Ok(()) => assert!(model.posted.insert(id)),
                Err(_) => buffers.put_back(id),
            }
            return;
        }
        let state = end.shown_state();
        match end.qp().post_recv(request) {
            Ok(()) => {
                assert!(matches!(state, QpState::Idle | QpState::Rts));
                end.recvs.push_back(id);
                assert!(end.recvs.len() <= end.queue_depths[1]);
                return;
            }
            Err(PostError::InvalidState(its)) => assert_eq!(its, state),
            Err(error) => {
                let [_, depth] = end.queue_depths;
                assert_eq!(error, PostError::TooManyWorkRequests(depth));
                assert_eq!(end.recvs.len(), depth);
            }
        }
        buffers.put_back(id);
    }
}

//! Work requests that are put together by one call for each part, and posted together.

use std::sync::{Condvar, Mutex, PoisonError};

use nix::errno::Errno;

use crate::abi::Zeroed;
use crate::abi::numbers::IBV_SEND_INLINE;
use crate::abi::requests::SendList;
use crate::abi::verbs::{ibv_send_wr, ibv_sge};
use crate::backend::QpPort;
use crate::entry::{Result, lock};

/// The requests of one thread between its start and its completion. Others wait for that.
#[derive(Default)]
pub(super) struct Batch {
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Default)]
struct State {
    is_open: bool,
    requests: Vec<Request>,
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// Why nothing of it will be posted.
    refused: Option<Errno>,
}

/// A request, whose scatter/gather list is a part of `sges`. The addresses of inline data are places in `inline`.
struct Request {
    wr: ibv_send_wr,
    first_sge: usize,
    sges: usize,
}

// SAFETY: nobody follows the pointers in a request before it is posted. They are null until then, or a Bind's, which are the program's.
unsafe impl Send for State {}

impl Batch {
    /// Waits for the batch of another thread, and begins one.
    pub(super) fn open(&self) {
        let state = lock(&self.state);
        let waited = self.closed.wait_while(state, |state| state.is_open);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        *state = State {
            is_open: true,
            ..State::default()
        };
    }

    /// Adds a request, to which data are added next.
    pub(super) fn push(&self, change: impl FnOnce(&mut ibv_send_wr)) {
        let mut state = lock(&self.state);
        let mut wr = ibv_send_wr::zeroed();
        change(&mut wr);
        let first_sge = state.sges.len();
        state.requests.push(Request {
            wr,
            first_sge,
            sges: 0,
        });
    }

    /// Sets the scatter/gather list of the last request.
    pub(super) fn set_sges(&self, sges: &[ibv_sge]) {
        let mut state = lock(&self.state);
        let Some(last) = state.requests.last_mut() else {
            return;
        };
        last.sges = sges.len();
        let first = last.first_sge;
        state.sges.truncate(first);
        state.sges.extend_from_slice(sges);
    }

    /// Sets the inline data of the last request.
    pub(super) fn set_inline<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) {
        let place = {
            let mut state = lock(&self.state);
            let start = state.inline.len();
            for piece in pieces {
                state.inline.extend_from_slice(piece);
            }
            let Ok(length) = u32::try_from(state.inline.len() - start) else {
                state.refused = Some(Errno::EINVAL);
                return;
            };
            if let Some(last) = state.requests.last_mut() {
                last.wr.send_flags |= IBV_SEND_INLINE;
            }
            ibv_sge {
                addr: start as u64,
                length,
                lkey: 0,
            }
        };
        self.set_sges(&[place]);
    }

    /// Has nothing of the batch posted.
    pub(super) fn refuse(&self, errno: Errno) {
        lock(&self.state).refused = Some(errno);
    }

    /// Ends the batch without posting.
    pub(super) fn abort(&self) {
        lock(&self.state).is_open = false;
        self.closed.notify_one();
    }

    /// Ends the batch and posts it.
    pub(super) fn post(&self, port: &dyn QpPort) -> Result<()> {
        let mut state = lock(&self.state);
        let posted = state.post(port);
        state.is_open = false;
        drop(state);
        self.closed.notify_one();
        posted
    }
}

impl State {
    fn post(&mut self, port: &dyn QpPort) -> Result<()> {
        if !self.is_open {
            return Err(Errno::EINVAL);
        }
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        let mut requests = self.linked()?;
        let Some(first) = requests.first_mut() else {
            return Ok(());
        };
        // SAFETY: the requests, their lists and inline data live until they are posted.
        let list = unsafe { SendList::new(first) };
        port.post_send(list).map_err(|failure| failure.errno)
    }

    /// The requests as a list of C.
    fn linked(&mut self) -> Result<Vec<ibv_send_wr>> {
        let inline = self.inline.as_ptr().expose_provenance() as u64;
        let mut requests = Vec::with_capacity(self.requests.len());
        for Request {
            wr,
            first_sge,
            sges,
        } in &self.requests
        {
            let mut wr = *wr;
            let list = self.sges.get_mut(*first_sge..*first_sge + *sges);
            let list = list.ok_or(Errno::EINVAL)?;
            if wr.send_flags & IBV_SEND_INLINE != 0 {
                for sge in list.iter_mut() {
                    sge.addr += inline;
                }
            }
            wr.sg_list = list.as_mut_ptr();
            wr.num_sge = i32::try_from(*sges).map_err(|_too_many| Errno::EINVAL)?;
            requests.push(wr);
        }
        let first = requests.as_mut_ptr();
        for (next, request) in (1..requests.len()).zip(requests.iter_mut()) {
            request.next = first.wrapping_add(next);
        }
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::requests::RecvList;
    use crate::backend::PostFailure;

    /// Notes the name and the inline data of each request.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(u64, Vec<u8>)>>);

    impl QpPort for Noted {
        fn post_send(&self, list: SendList<'_>) -> std::result::Result<(), PostFailure> {
            let note = |request: crate::abi::requests::SendWr<'_>| {
                let mut bytes = [0; 16];
                let has_data = request.fields().send_flags & IBV_SEND_INLINE != 0;
                let data = has_data.then(|| request.copy_inline(&mut bytes)).flatten();
                let bytes = bytes.get(..data.unwrap_or(0)).unwrap_or_default();
                (request.fields().wr_id, bytes.to_vec())
            };
            lock(&self.0).extend(list.map(note));
            Ok(())
        }

        fn post_recv(&self, _list: RecvList<'_>) -> std::result::Result<(), PostFailure> {
            Ok(())
        }
    }

    #[test]
    fn batch_is_posted_as_one_list_in_order() {
        let (batch, port) = (Batch::default(), Noted::default());
        batch.open();
        for (name, data) in [(1, &b"one"[..]), (2, b"two")] {
            batch.push(|wr| wr.wr_id = name);
            batch.set_inline([data].into_iter());
        }
        batch.push(|wr| wr.wr_id = 3);
        assert_eq!(batch.post(&port), Ok(()));
        let expected = [(1, b"one".to_vec()), (2, b"two".to_vec()), (3, Vec::new())];
        assert_eq!(*lock(&port.0), expected);
        assert_eq!(batch.post(&port), Err(Errno::EINVAL));
    }

    #[test]
    fn batch_that_was_refused_or_aborted_posts_nothing() {
        let (batch, port) = (Batch::default(), Noted::default());
        batch.open();
        batch.push(|wr| wr.wr_id = 1);
        batch.refuse(Errno::EOPNOTSUPP);
        assert_eq!(batch.post(&port), Err(Errno::EOPNOTSUPP));
        batch.open();
        batch.push(|wr| wr.wr_id = 2);
        batch.abort();
        batch.open();
        assert_eq!(batch.post(&port), Ok(()));
        assert!(lock(&port.0).is_empty());
    }
}

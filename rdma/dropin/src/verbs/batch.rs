//! Work requests that are put together by one call for each part, and posted together.

use nix::errno::Errno;

use super::turn::Turn;
use crate::abi::Zeroed;
use crate::abi::numbers::IBV_SEND_INLINE;
use crate::abi::requests::SendList;
use crate::abi::verbs::{ibv_send_wr, ibv_sge};
use crate::backend::QpPort;
use crate::entry::Result;

/// The requests of one thread between its start and its completion. Others wait for that.
#[derive(Default)]
pub(super) struct Batch(Turn<Parts>);

#[derive(Default)]
struct Parts {
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
    is_inline: bool,
}

// SAFETY: nobody follows the pointers in a request before it is posted. They are null until then, or a Bind's, which are the program's.
unsafe impl Send for Parts {}

impl Batch {
    /// Waits for the batch of another thread, and begins one.
    pub(super) fn open(&self) {
        self.0.begin(Parts::default());
    }

    /// Adds a request, to which data are added next. Which function adds them says whether they are inline, whatever the flags say.
    pub(super) fn push(&self, change: impl FnOnce(&mut ibv_send_wr)) {
        self.0.with(|parts| parts.push(change));
    }

    /// Sets the scatter/gather list of the last request.
    pub(super) fn set_sges(&self, sges: &[ibv_sge]) {
        self.0.with(|parts| parts.set_data(sges, false));
    }

    /// Sets the inline data of the last request.
    pub(super) fn set_inline<'a>(&self, pieces: impl Iterator<Item = &'a [u8]>) {
        self.0.with(|parts| parts.set_inline(pieces));
    }

    /// Has nothing of the batch posted.
    pub(super) fn refuse(&self, errno: Errno) {
        self.0.with(|parts| parts.refused = Some(errno));
    }

    /// Ends the batch without posting.
    pub(super) fn abort(&self) {
        self.0.end(drop);
    }

    /// Ends the batch and posts all of it, or nothing.
    pub(super) fn post(&self, port: &dyn QpPort) -> Result<()> {
        let posted = self.0.end(|parts| parts.post(port));
        posted.unwrap_or(Err(Errno::EINVAL))
    }
}

impl Parts {
    fn push(&mut self, change: impl FnOnce(&mut ibv_send_wr)) {
        let mut wr = ibv_send_wr::zeroed();
        change(&mut wr);
        wr.send_flags &= !IBV_SEND_INLINE;
        self.requests.push(Request {
            wr,
            first_sge: self.sges.len(),
            sges: 0,
            is_inline: false,
        });
    }

    fn set_inline<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        let start = self.inline.len();
        for piece in pieces {
            self.inline.extend_from_slice(piece);
        }
        let Ok(length) = u32::try_from(self.inline.len() - start) else {
            self.refused = Some(Errno::EINVAL);
            return;
        };
        let place = ibv_sge {
            addr: start as u64,
            length,
            lkey: 0,
        };
        self.set_data(&[place], true);
    }

    /// Sets where the data of the last request are.
    fn set_data(&mut self, sges: &[ibv_sge], is_inline: bool) {
        let Some(last) = self.requests.last_mut() else {
            return;
        };
        (last.sges, last.is_inline) = (sges.len(), is_inline);
        self.sges.truncate(last.first_sge);
        self.sges.extend_from_slice(sges);
    }

    fn post(mut self, port: &dyn QpPort) -> Result<()> {
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        let mut requests = self.linked()?;
        let Some(first) = requests.first_mut() else {
            return Ok(());
        };
        // SAFETY: the requests, their lists and inline data live until they are posted.
        let list = unsafe { SendList::new(first) };
        port.post_all(list)
    }

    /// The requests as a list of C.
    fn linked(&mut self) -> Result<Vec<ibv_send_wr>> {
        let inline = self.inline.as_ptr().expose_provenance() as u64;
        let mut requests = Vec::with_capacity(self.requests.len());
        for Request {
            wr,
            first_sge,
            sges,
            is_inline,
        } in &self.requests
        {
            let mut wr = *wr;
            let list = self.sges.get_mut(*first_sge..*first_sge + *sges);
            let list = list.ok_or(Errno::EINVAL)?;
            if *is_inline {
                wr.send_flags |= IBV_SEND_INLINE;
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
    use crate::entry::lock;
    use std::sync::Mutex;

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

        fn post_all(&self, list: SendList<'_>) -> Result<()> {
            self.post_send(list).map_err(|failure| failure.errno)
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
    fn who_adds_the_data_says_whether_they_are_inline() {
        let (batch, port) = (Batch::default(), Noted::default());
        batch.open();
        batch.push(|wr| wr.send_flags = IBV_SEND_INLINE);
        let nowhere = ibv_sge {
            addr: 8,
            length: 8,
            lkey: 1,
        };
        batch.set_sges(&[nowhere]);
        batch.push(|wr| wr.wr_id = 1);
        batch.set_inline([&b"gone"[..]].into_iter());
        batch.set_sges(&[nowhere]);
        batch.push(|wr| wr.wr_id = 2);
        batch.set_inline([&b"kept"[..]].into_iter());
        assert_eq!(batch.post(&port), Ok(()));
        let expected = [(0, Vec::new()), (1, Vec::new()), (2, b"kept".to_vec())];
        assert_eq!(*lock(&port.0), expected);
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

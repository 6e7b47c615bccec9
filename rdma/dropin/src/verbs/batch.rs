//! Work requests that are put together by one call for each part, and posted together.

use nix::errno::Errno;

use super::turn::Turn;
use crate::abi::Zeroed;
use crate::abi::numbers::IBV_SEND_INLINE;
use crate::abi::requests::{Element, SendList};
use crate::abi::verbs::{ibv_send_wr, ibv_sge};
use crate::backend::QpPort;
use crate::entry::Result;

/// The requests of one thread between its start and its completion. Others wait for that.
pub(super) struct Batch(Turn<Parts>);

/// What a batch consists of. The next batch finds the memory of the last one.
#[derive(Default)]
struct Parts {
    /// Places for requests, the first `used` of which are the batch's. Their flag says whether data are inline, their number of elements how many
    /// of `sges` are theirs. Lists and links are null until the batch is posted.
    requests: Vec<ibv_send_wr>,
    used: usize,
    /// Elements of all requests in their order. The addresses of inline data are places in `inline`.
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// Why nothing of it will be posted.
    refused: Option<Errno>,
}

// SAFETY: nobody follows the pointers in a request before it is posted. They are null until then, or a Bind's, which are the program's. Those that
// posting leaves are overwritten by the next batch.
unsafe impl Send for Parts {}

impl Batch {
    pub(super) fn new() -> Self {
        Self(Turn::new(Parts::default()))
    }

    /// Waits for the batch of another thread, and begins one.
    #[inline]
    pub(super) fn open(&self) {
        self.0.begin(Parts::clear);
    }

    /// Adds a request, to which data are added next. Which function adds them says whether they are inline, whatever the flags say.
    #[inline]
    pub(super) fn push(&self, change: impl FnOnce(&mut ibv_send_wr)) {
        self.0.with(|parts| parts.push(change));
    }

    /// Sets the scatter/gather list of the last request.
    pub(super) fn set_sges(&self, sges: &[Element]) {
        self.0.with(|parts| parts.set_sges(sges));
    }

    /// Sets the only element of the last request, as most have.
    #[inline]
    pub(super) fn set_sge(&self, sge: ibv_sge) {
        self.0.with(|parts| parts.set_only(sge, 0));
    }

    /// Sets the inline data of the last request.
    pub(super) fn set_inline<'a>(&self, pieces: impl Iterator<Item = Result<&'a [u8]>>) {
        self.0.with(|parts| {
            if let Err(errno) = parts.set_inline(pieces) {
                parts.refused = Some(errno);
            }
        });
    }

    /// Has nothing of the batch posted.
    pub(super) fn refuse(&self, errno: Errno) {
        self.0.with(|parts| parts.refused = Some(errno));
    }

    /// Ends the batch without posting.
    pub(super) fn abort(&self) {
        self.0.end(|_parts| ());
    }

    /// Ends the batch and posts all of it, or nothing.
    #[inline]
    pub(super) fn post(&self, port: &dyn QpPort) -> Result<()> {
        let posted = self.0.end(|parts| parts.post(port));
        posted.unwrap_or(Err(Errno::EINVAL))
    }
}

impl Parts {
    #[inline]
    fn clear(&mut self) {
        self.used = 0;
        self.sges.clear();
        self.inline.clear();
        self.refused = None;
    }

    #[inline]
    fn push(&mut self, change: impl FnOnce(&mut ibv_send_wr)) {
        if self.used == self.requests.len() {
            self.grow();
        }
        if let Some(wr) = self.requests.get_mut(self.used) {
            *wr = ibv_send_wr::zeroed();
            change(wr);
            wr.send_flags &= !IBV_SEND_INLINE;
            self.used += 1;
        }
    }

    #[inline(never)]
    fn grow(&mut self) {
        self.requests.push(ibv_send_wr::zeroed());
    }

    fn set_inline<'a>(&mut self, pieces: impl Iterator<Item = Result<&'a [u8]>>) -> Result<()> {
        let start = self.inline.len();
        for piece in pieces {
            self.inline.extend_from_slice(piece?);
        }
        let length = u32::try_from(self.inline.len() - start);
        let place = ibv_sge {
            addr: start as u64,
            length: length.map_err(|_too_long| Errno::EINVAL)?,
            lkey: 0,
        };
        self.set_only(place, IBV_SEND_INLINE);
        Ok(())
    }

    /// The last request, without data and not inline.
    #[inline]
    fn last(&mut self) -> Option<&mut ibv_send_wr> {
        let last = self.requests.get_mut(self.used.checked_sub(1)?)?;
        if last.num_sge != 0 {
            self.sges.truncate(self.sges.len() - elements_of(last));
        }
        (last.num_sge, last.send_flags) = (0, last.send_flags & !IBV_SEND_INLINE);
        Some(last)
    }

    /// Sets where the data of the last request are, and whether they are inline.
    #[inline]
    fn set_only(&mut self, sge: ibv_sge, inline_flag: u32) {
        if let Some(last) = self.last() {
            (last.num_sge, last.send_flags) = (1, last.send_flags | inline_flag);
            self.sges.push(sge);
        }
    }

    /// Sets the scatter/gather list of the last request.
    fn set_sges(&mut self, sges: &[Element]) {
        let Ok(number) = i32::try_from(sges.len()) else {
            self.refused = Some(Errno::EINVAL);
            return;
        };
        if let Some(last) = self.last() {
            last.num_sge = number;
            self.sges.extend(sges.iter().map(|sge| sge.fields()));
        }
    }

    #[inline]
    fn post(&mut self, port: &dyn QpPort) -> Result<()> {
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        if self.used == 0 {
            return Ok(());
        }
        self.link()?;
        // SAFETY: the requests, their lists and inline data stay as they are until they are posted.
        let list = unsafe { SendList::new(self.requests.as_ptr()) };
        if self.used == 1 {
            // One is all of it.
            return port.post_send(list).map_err(|failure| failure.errno);
        }
        port.post_all(list)
    }

    /// Makes the requests a list of C.
    #[inline]
    fn link(&mut self) -> Result<()> {
        let inline = self.inline.as_ptr().expose_provenance() as u64;
        let first = self.requests.as_mut_ptr();
        let mut sges = self.sges.as_mut_slice();
        for (next, wr) in (1..=self.used).zip(&mut self.requests) {
            let own = sges.split_off_mut(..elements_of(wr)).ok_or(Errno::EINVAL)?;
            wr.sg_list = own.as_mut_ptr();
            if wr.send_flags & IBV_SEND_INLINE != 0 {
                for sge in own {
                    sge.addr += inline;
                }
            }
            if next < self.used {
                wr.next = first.wrapping_add(next);
            }
        }
        Ok(())
    }
}

/// How many elements a request of a batch has.
#[inline]
fn elements_of(wr: &ibv_send_wr) -> usize {
    usize::try_from(wr.num_sge).unwrap_or(0)
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
        let (batch, port) = (Batch::new(), Noted::default());
        batch.open();
        for (name, data) in [(1, &b"one"[..]), (2, b"two")] {
            batch.push(|wr| wr.wr_id = name);
            batch.set_inline([Ok(data)].into_iter());
        }
        batch.push(|wr| wr.wr_id = 3);
        assert_eq!(batch.post(&port), Ok(()));
        let expected = [(1, b"one".to_vec()), (2, b"two".to_vec()), (3, Vec::new())];
        assert_eq!(*lock(&port.0), expected);
        assert_eq!(batch.post(&port), Err(Errno::EINVAL));
    }

    #[test]
    fn who_adds_the_data_says_whether_they_are_inline() {
        let (batch, port) = (Batch::new(), Noted::default());
        batch.open();
        batch.push(|wr| wr.send_flags = IBV_SEND_INLINE);
        let nowhere = ibv_sge {
            addr: 8,
            length: 8,
            lkey: 1,
        };
        batch.set_sges(&[Element::from(nowhere)]);
        batch.push(|wr| wr.wr_id = 1);
        batch.set_inline([Ok(&b"gone"[..])].into_iter());
        batch.set_sges(&[Element::from(nowhere)]);
        batch.push(|wr| wr.wr_id = 2);
        batch.set_inline([Ok(&b"kept"[..])].into_iter());
        assert_eq!(batch.post(&port), Ok(()));
        let expected = [(0, Vec::new()), (1, Vec::new()), (2, b"kept".to_vec())];
        assert_eq!(*lock(&port.0), expected);
    }

    #[test]
    fn batch_that_was_refused_or_aborted_posts_nothing() {
        let (batch, port) = (Batch::new(), Noted::default());
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

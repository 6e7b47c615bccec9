//! Work requests that a program builds with one call for each part, and posts together.

use nix::errno::Errno;

use crate::abi::Zeroed;
use crate::abi::numbers::IBV_SEND_INLINE;
use crate::abi::requests::{Element, SendList};
use crate::abi::verbs::{Target, ibv_send_wr, ibv_sge};
use crate::backend::QpPort;
use crate::backend::single::{Single, Stage};
use crate::entry::Result;
use crate::lock::Lock;

/// The requests of one thread between start and completion of a batch. Other threads wait
/// meanwhile.
///
/// A batch of one plain request is in `single`. A batch of several requests, or of another kind, is
/// in `listed` from the call on that makes it such.
pub(super) struct Batch {
    turn: Lock<()>,
    single: Single,
    listed: Lock<Parts>,
}

/// Ends the turn, even if posting panics.
struct Ending<'a>(&'a Lock<()>);

impl Drop for Ending<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// The parts of a listed batch. The next batch reuses the memory of the last one.
#[derive(Default)]
struct Parts {
    /// Places for requests, the first `used` of which belong to the batch. A request's flag says
    /// whether its data are inline, and its number of elements how many of `sges` it has. Lists and
    /// links are null until the batch is posted.
    requests: Vec<ibv_send_wr>,
    used: usize,
    /// Elements of all requests in their order. The addresses of inline data are places in
    /// `inline`.
    sges: Vec<ibv_sge>,
    inline: Vec<u8>,
    /// The error that keeps the batch from being posted.
    refused: Option<Errno>,
}

// SAFETY: no thread follows the pointers in a request before it is posted. They are null until
// then, or those of a Bind, which belong to the program. The pointers that posting leaves behind
// are overwritten by the next batch.
unsafe impl Send for Parts {}

impl Batch {
    pub(super) fn new() -> Self {
        Self {
            turn: Lock::new(()),
            single: Single::default(),
            listed: Lock::new(Parts::default()),
        }
    }

    /// Waits for the batch of another thread, and begins one unless the queue pair is destroyed.
    #[inline]
    pub(super) fn open(&self) {
        if self.turn.enter() {
            self.single.open();
        }
    }

    /// Ends all batches of a destroyed queue pair: no thread waits for a batch that no call can
    /// end.
    pub(super) fn end(&self) {
        self.turn.end();
    }

    /// The place that takes a request without a lock, if it is plain and the first of the batch.
    #[inline]
    pub(super) fn single(&self) -> &Single {
        &self.single
    }

    /// Changes the batch as a list, if there is one.
    fn with(&self, change: impl FnOnce(&mut Parts)) {
        let mut parts = self.listed.lock();
        let stage = self.single.list();
        if stage != Stage::Closed {
            parts.take_over(stage, &self.single);
            change(&mut parts);
        }
    }

    /// Adds a request, to which data are added next. The function that adds them decides whether
    /// they are inline, whatever the flags say.
    pub(super) fn push(&self, change: impl FnOnce(&mut ibv_send_wr)) {
        self.with(|parts| parts.push(change));
    }

    /// Sets the scatter/gather list of the last request.
    pub(super) fn set_sges(&self, sges: &[Element]) {
        self.with(|parts| parts.set_sges(sges));
    }

    /// Sets the only element of the last request.
    pub(super) fn set_sge(&self, sge: ibv_sge) {
        self.with(|parts| parts.set_only(sge, 0));
    }

    /// Sets the inline data of the last request.
    pub(super) fn set_inline<'a>(&self, pieces: impl Iterator<Item = Result<&'a [u8]>>) {
        self.with(|parts| {
            if let Err(errno) = parts.set_inline(pieces) {
                parts.refused = Some(errno);
            }
        });
    }

    /// Refuses the batch: none of it will be posted.
    pub(super) fn refuse(&self, errno: Errno) {
        self.with(|parts| parts.refused = Some(errno));
    }

    /// Ends the batch without posting.
    pub(super) fn abort(&self) {
        if self.single.close() != Err(Stage::Closed) {
            self.turn.leave();
        }
    }

    /// Ends the batch and posts all of it, or nothing.
    #[inline]
    pub(super) fn post(&self, port: &dyn QpPort) -> Result<()> {
        if let Err(stage) = self.single.close() {
            return self.post_listed(stage, port);
        }
        let _ending = Ending(&self.turn);
        port.post_single(&self.single)
    }

    #[inline(never)]
    fn post_listed(&self, stage: Stage, port: &dyn QpPort) -> Result<()> {
        if stage == Stage::Closed {
            return Err(Errno::EINVAL);
        }
        let _ending = Ending(&self.turn);
        let mut parts = self.listed.lock();
        parts.take_over(stage, &self.single);
        parts.post(port)
    }
}

impl Parts {
    /// Begins a list with the present contents of the batch.
    fn take_over(&mut self, stage: Stage, single: &Single) {
        if stage == Stage::Listed {
            return;
        }
        self.clear();
        if stage != Stage::Open {
            self.push(|wr| {
                (wr.wr_id, wr.send_flags, wr.opcode) =
                    (single.wr_id(), single.flags(), single.opcode());
                wr.wr = Target {
                    rdma: single.rdma(),
                };
            });
        }
        if stage == Stage::Whole {
            self.set_only(single.sge(), 0);
        }
    }

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

    /// Sets the place of the last request's data, and whether they are inline.
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
            // One request is the whole list.
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

/// The number of elements of a batch's request.
#[inline]
fn elements_of(wr: &ibv_send_wr) -> usize {
    usize::try_from(wr.num_sge).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::numbers::{IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND};
    use crate::abi::requests::RecvList;
    use crate::abi::verbs::Rdma;
    use crate::backend::PostFailure;
    use crate::entry::lock;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    /// Notes the name and the inline data of each request.
    #[derive(Default)]
    struct Noted(Mutex<Vec<(u64, Vec<u8>)>>);

    /// Takes requests that come alone and are whole, by their name, opcode, key of the peer and
    /// element.
    #[derive(Default)]
    struct Alone(Mutex<Vec<(u64, u32, u32, u64)>>);

    impl QpPort for Alone {
        fn post_send(&self, list: SendList<'_>) -> std::result::Result<(), PostFailure> {
            assert_eq!(list.count(), 0, "a list was posted");
            Ok(())
        }

        fn post_single(&self, request: &Single) -> Result<()> {
            assert_ne!(request.wr_id(), NEVER, "this port panics");
            let (rkey, place) = (request.rdma().rkey, request.sge().addr);
            lock(&self.0).push((request.wr_id(), request.opcode(), rkey, place));
            Ok(())
        }

        fn post_all(&self, list: SendList<'_>) -> Result<()> {
            self.post_send(list).map_err(|failure| failure.errno)
        }

        fn post_recv(&self, _list: RecvList<'_>) -> std::result::Result<(), PostFailure> {
            Ok(())
        }
    }

    /// Name of a request that [`Alone`] panics at.
    const NEVER: u64 = u64::MAX;

    fn place(addr: u64) -> ibv_sge {
        ibv_sge {
            addr,
            length: 8,
            lkey: 1,
        }
    }

    /// Puts a Write by its short way.
    fn write(batch: &Batch, wr_id: u64, rkey: u32) -> bool {
        let at = Rdma {
            remote_addr: 16,
            rkey,
        };
        (batch.single()).reach_memory(wr_id, 0, IBV_WR_RDMA_WRITE, at)
    }

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

        fn post_single(&self, request: &Single) -> Result<()> {
            lock(&self.0).push((request.wr_id(), Vec::new()));
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

    #[test]
    fn one_request_of_one_piece_is_posted_without_a_list() {
        let (batch, port) = (Batch::new(), Alone::default());
        let single = batch.single();
        batch.open();
        assert!(write(&batch, 1, 5) && single.set_sge(place(64)));
        assert_eq!(batch.post(&port), Ok(()));
        batch.open();
        assert!(single.send(2, 0, IBV_WR_SEND) && single.set_sge(place(72)));
        assert_eq!(batch.post(&port), Ok(()));
        let expected = [(1, IBV_WR_RDMA_WRITE, 5, 64), (2, IBV_WR_SEND, 5, 72)];
        assert_eq!(*lock(&port.0), expected);
    }

    #[test]
    fn nothing_is_added_to_a_batch_that_is_closed() {
        let (batch, port) = (Batch::new(), Alone::default());
        batch.open();
        batch.abort();
        assert!(!write(&batch, 1, 5) && !batch.single().set_sge(place(64)));
        batch.push(|wr| wr.wr_id = 2);
        batch.set_sge(place(64));
        assert_eq!(batch.post(&port), Err(Errno::EINVAL));
        batch.open();
        assert_eq!(batch.post(&port), Ok(()));
        assert!(lock(&port.0).is_empty());
    }

    /// What a batch that began with a Write of eight bytes has in its list: names, opcodes, keys of
    /// the peer, and elements.
    fn listed(change: impl FnOnce(&Batch)) -> Vec<(u64, u32, u32, Vec<u64>)> {
        let batch = Batch::new();
        batch.open();
        assert!(write(&batch, 1, 5) && batch.single().set_sge(place(64)));
        change(&batch);
        let mut parts = batch.listed.lock();
        assert_eq!(batch.single.list(), Stage::Listed);
        let (requests, sges) = (parts.requests.clone(), parts.sges.clone());
        let mut places = sges.iter().map(|sge| sge.addr);
        let of = |wr: &ibv_send_wr| {
            // SAFETY: all fields of the union are integers.
            let rkey = unsafe { wr.wr.rdma }.rkey;
            let own = places.by_ref().take(elements_of(wr)).collect();
            (wr.wr_id, wr.opcode, rkey, own)
        };
        let found = requests.iter().take(parts.used).map(of).collect();
        assert_eq!((places.next(), parts.link()), (None, Ok(())));
        found
    }

    #[test]
    fn whatever_follows_makes_a_list_that_has_the_first_request_too() {
        let first = |places: &[u64]| (1, IBV_WR_RDMA_WRITE, 5, places.to_vec());
        let replaced = listed(|batch| batch.set_sge(place(72)));
        assert_eq!(replaced, [first(&[72])]);
        let longer = [place(80), place(88)].map(Element::from);
        let replaced = listed(|batch| batch.set_sges(&longer));
        assert_eq!(replaced, [first(&[80, 88])]);
        let more = listed(|batch| {
            assert!(!write(batch, 2, 6));
            batch.push(|wr| (wr.wr_id, wr.opcode) = (2, IBV_WR_RDMA_READ));
            assert!(!batch.single().set_sge(place(96)));
            batch.set_sge(place(96));
        });
        assert_eq!(more, [first(&[64]), (2, IBV_WR_RDMA_READ, 0, vec![96])]);
    }

    #[test]
    fn request_without_data_is_posted_as_a_list() {
        let (batch, port) = (Batch::new(), Noted::default());
        batch.open();
        assert!(write(&batch, 1, 5));
        assert_eq!(batch.post(&port), Ok(()));
        assert_eq!(*lock(&port.0), [(1, Vec::new())]);
    }

    #[test]
    fn threads_have_batches_one_at_a_time() {
        const ROUNDS: u32 = 2000;
        let (batch, port, names) = (Batch::new(), Alone::default(), AtomicU64::new(0));
        thread::scope(|scope| {
            for thread in 0..4 {
                let (batch, port, names) = (&batch, &port, &names);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        batch.open();
                        let name = names.fetch_add(1, Ordering::Relaxed);
                        assert!(write(batch, name, thread));
                        thread::yield_now();
                        assert!(batch.single().set_sge(place(thread.into())));
                        assert_eq!(batch.post(port), Ok(()));
                    }
                });
            }
        });
        let posted = lock(&port.0);
        assert!(posted.iter().map(|it| it.0).eq(0..u64::from(4 * ROUNDS)));
        assert!(posted.iter().all(|it| u64::from(it.2) == it.3));
    }

    #[test]
    fn panic_while_posting_ends_the_batch() {
        let (batch, port) = (Batch::new(), Alone::default());
        batch.open();
        assert!(write(&batch, NEVER, 5) && batch.single().set_sge(place(64)));
        let panicked = catch_unwind(AssertUnwindSafe(|| batch.post(&port)));
        assert!(panicked.is_err());
        batch.open();
        batch.abort();
    }
}

//! Posting lists of work requests: the functions in the slots of a context.

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use super::qp::Qp;
use super::srq::Srq;
use crate::abi::requests::{RecvList, RecvWr, SendList, SendWr};
use crate::abi::verbs::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_srq};
use crate::backend::PostFailure;
use crate::entry::data_path::returns;
use crate::object::Object;

/// The request of a list that was refused.
fn at<'a, R>(mut list: impl Iterator<Item = &'a R>, failure: PostFailure) -> *mut R
where
    R: 'a,
{
    let request = list.nth(failure.posted);
    request.map_or(ptr::null_mut(), |request| ptr::from_ref(request).cast_mut())
}

/// `ibv_post_send(3)`: returns the error number. If a request of the list is refused, those in
/// front of it are posted.
pub(super) extern "C" fn post_send(
    qp: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: Option<&mut *mut ibv_send_wr>,
) -> c_int {
    returns(|| {
        // SAFETY: inline functions of the header have found this function by the handle.
        let qp = unsafe { Object::<Qp>::living(qp.cast()) };
        // SAFETY: by its manual page, the list is one of requests, and points to readable memory.
        let list = unsafe { SendList::new(first) };
        let posted = qp
            .map_err(refused)
            .and_then(|qp| qp.body().port().post_send(list.clone()));
        posted.map_err(|failure| {
            if let Some(bad) = bad {
                *bad = at(list.map(SendWr::fields), failure);
            }
            failure.errno
        })
    })
}

/// `ibv_post_recv(3)`: returns the error number, as [`post_send`] does.
pub(super) extern "C" fn post_recv(
    qp: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: Option<&mut *mut ibv_recv_wr>,
) -> c_int {
    returns(|| {
        // SAFETY: inline functions of the header have found this function by the handle.
        let qp = unsafe { Object::<Qp>::living(qp.cast()) };
        // SAFETY: by its manual page, the list is one of requests, and points to readable memory.
        let list = unsafe { RecvList::new(first) };
        let post = |list| qp.map_err(refused)?.body().port().post_recv(list);
        received(list, bad, post)
    })
}

/// `ibv_post_srq_recv(3)`: returns the error number, as [`post_send`] does.
pub(super) extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    first: *mut ibv_recv_wr,
    bad: Option<&mut *mut ibv_recv_wr>,
) -> c_int {
    returns(|| {
        // SAFETY: inline functions of the header have found this function by the handle.
        let srq = unsafe { Object::<Srq>::living(srq) };
        // SAFETY: by its manual page, the list is one of requests, and points to readable memory.
        let list = unsafe { RecvList::new(first) };
        let post = |list| srq.map_err(refused)?.body().port().post_recv(list);
        received(list, bad, post)
    })
}

/// A list of which nothing is posted.
fn refused(errno: Errno) -> PostFailure {
    PostFailure { posted: 0, errno }
}

#[inline]
fn received<'a>(
    list: RecvList<'a>,
    bad: Option<&mut *mut ibv_recv_wr>,
    post: impl FnOnce(RecvList<'a>) -> std::result::Result<(), PostFailure>,
) -> Result<(), Errno> {
    post(list.clone()).map_err(|failure| {
        if let Some(bad) = bad {
            *bad = at(list.map(RecvWr::fields), failure);
        }
        failure.errno
    })
}

//! A host with a context, a domain, a completion queue and a queue pair, as a program of C makes
//! them.
#![allow(clippy::missing_panics_doc, reason = "a test ends by panics")]

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::async_events::{ibv_ack_async_event, ibv_get_async_event};
use super::channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use super::context::ibv_close_device;
use super::cq::{ibv_create_cq, ibv_destroy_cq};
use super::device::Device;
use super::mr::{ibv_dereg_mr, ibv_reg_mr};
use super::operations::open;
use super::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use super::qp::{Qp, ibv_destroy_qp};
use crate::abi::Zeroed;
use crate::abi::numbers::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_MW_BIND, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ,
    IBV_ACCESS_REMOTE_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WC_SUCCESS,
    IBV_WR_RDMA_WRITE_WITH_IMM,
};
use crate::abi::verbs::{
    Rdma, Target, ibv_async_event, ibv_comp_channel, ibv_context, ibv_context_ops, ibv_cq, ibv_mr,
    ibv_pd, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
    verbs_context,
};
use crate::backend;
use crate::object::Object;

/// Bytes of a host's memory.
pub const LEN: usize = 8192;
const ALL_RIGHTS: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

/// One host.
#[allow(missing_docs, reason = "the fields are named like the verbs' objects")]
pub struct Host {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub pd: *mut ibv_pd,
    pub cq: *mut ibv_cq,
    pub mr: *mut ibv_mr,
    pub qp: *mut ibv_qp,
    /// [`LEN`] bytes, which stay allocated.
    pub memory: *mut u8,
}

/// Memory of zeros that is never freed.
pub fn memory(len: usize) -> *mut u8 {
    Box::leak(vec![0_u64; len / 8].into_boxed_slice())
        .as_mut_ptr()
        .cast()
}

/// A queue pair whose receive queue is its own.
pub fn qp_attr(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let mut attr = ibv_qp_init_attr::zeroed();
    (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, IBV_QPT_RC);
    (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (16, 16);
    (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (4, 4);
    attr.cap.max_inline_data = 64;
    attr
}

impl Host {
    /// A host whose completion queue has `entries` entries, and whose queue pair is made by
    /// `create`.
    pub(crate) fn new(
        device: &Arc<Object<Device>>,
        entries: c_int,
        create: impl FnOnce(*mut ibv_pd, *mut ibv_cq) -> *mut ibv_qp,
    ) -> Self {
        let context = open(device).expect("descriptors");
        let channel = ibv_create_comp_channel(context);
        let pd = ibv_alloc_pd(context);
        let cq = ibv_create_cq(context, entries, ptr::null_mut(), channel, 0);
        let memory = memory(LEN);
        let mr = ibv_reg_mr(pd, memory.cast(), LEN, ALL_RIGHTS.cast_signed());
        let qp = create(pd, cq);
        let host = Self {
            context,
            channel,
            pd,
            cq,
            mr,
            qp,
            memory,
        };
        assert!(!mr.is_null() && !qp.is_null());
        host
    }

    /// Destroys all of its objects.
    pub fn end(&self) {
        let ends = [
            ibv_destroy_qp(self.qp),
            ibv_dereg_mr(self.mr),
            ibv_destroy_cq(self.cq),
            ibv_dealloc_pd(self.pd),
            ibv_destroy_comp_channel(self.channel),
            ibv_close_device(self.context),
        ];
        assert_eq!(ends, [0; 6]);
    }

    /// The functions that later inline functions of the header call: the slots in front of the
    /// context.
    pub fn later(&self) -> verbs_context {
        let offset = std::mem::offset_of!(verbs_context, context);
        let start = self.context.wrapping_byte_sub(offset);
        let start = start.cast::<verbs_context>();
        // SAFETY: the context lives, and is a part of that struct.
        unsafe { *start }
    }

    /// The functions that inline functions of the header call.
    pub fn ops(&self) -> ibv_context_ops {
        // SAFETY: the context lives.
        unsafe { (*self.context).ops }
    }

    /// The functions that inline functions of the header call of a queue pair that has them.
    pub fn qp_ex(&self) -> ibv_qp_ex {
        // SAFETY: the queue pair lives, and the struct that it is given out by is the longer one.
        unsafe { *self.qp.cast::<ibv_qp_ex>() }
    }

    /// Sets the identifier of the next work request of such a queue pair, which is signaled.
    pub fn name_next(&self, wr_id: u64) {
        let qp = self.qp.cast::<ibv_qp_ex>();
        // SAFETY: the queue pair lives, and the struct that it is given out by is the longer one.
        let abi = unsafe { &mut *qp };
        (abi.wr_id, abi.wr_flags) = (wr_id, IBV_SEND_SIGNALED);
    }

    /// The key of its memory.
    pub fn key(&self) -> u32 {
        rkey(self.mr)
    }

    /// A piece of its memory.
    pub fn sge(&self, offset: usize, length: u32) -> ibv_sge {
        ibv_sge {
            addr: self.memory.addr() as u64 + offset as u64,
            length,
            lkey: self.key(),
        }
    }

    /// Its memory, as a peer addresses it.
    pub fn remote(&self, offset: usize) -> Target {
        let rdma = Rdma {
            remote_addr: self.memory.addr() as u64 + offset as u64,
            rkey: self.key(),
        };
        Target { rdma }
    }

    /// Writes bytes into its memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= LEN);
        let place = self.memory.wrapping_add(offset);
        // SAFETY: the place is in the host's memory, to which there are no references.
        unsafe { place.copy_from(bytes.as_ptr(), bytes.len()) };
    }

    /// Reads bytes of its memory.
    pub fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        assert!(offset + N <= LEN);
        let place = self.memory.wrapping_add(offset).cast::<[u8; N]>();
        // SAFETY: the place is in the host's memory, to which there are no references.
        unsafe { place.read_volatile() }
    }

    /// Posts a request, and returns the error number. Only a refused request sets the pointer to
    /// the bad request.
    pub fn post_send(&self, wr: &mut ibv_send_wr) -> c_int {
        let mut bad = ptr::null_mut();
        let post = self.ops().post_send.expect("a slot");
        let failed = post(self.qp, wr, Some(&mut bad));
        assert_eq!(failed != 0, ptr::eq(bad, wr));
        failed
    }

    /// Writes 5 bytes with immediate data to a host.
    pub fn write_with_immediate(&self, to: &Self, data: u32) {
        let mut piece = [self.sge(0, 5)];
        let mut wr = request(1, IBV_WR_RDMA_WRITE_WITH_IMM, &mut piece);
        (wr.wr, wr.imm_data) = (to.remote(512), data);
        assert_eq!(self.post_send(&mut wr), 0);
    }

    /// Posts a receive into a piece of its memory.
    pub fn post_recv(&self, wr_id: u64, mut sge: ibv_sge) {
        let mut wr = ibv_recv_wr::zeroed();
        (wr.wr_id, wr.sg_list, wr.num_sge) = (wr_id, &raw mut sge, 1);
        let post = self.ops().post_recv.expect("a slot");
        assert_eq!(post(self.qp, &raw mut wr, None), 0);
    }

    /// Waits for an asynchronous event, which must be this one, and acknowledges it.
    pub fn expect_event(&self, element: *mut c_void, kind: u32) {
        await_readable(self.async_fd());
        let mut event = ibv_async_event::zeroed();
        assert_eq!(ibv_get_async_event(self.context, Some(&mut event)), 0);
        assert_eq!((event.element, event.event_type), (element, kind));
        ibv_ack_async_event(Some(&event));
    }

    /// No asynchronous event waits.
    pub fn expect_no_event(&self) {
        assert!(!is_readable(self.async_fd()));
    }

    fn async_fd(&self) -> RawFd {
        // SAFETY: the context lives.
        unsafe { (*self.context).async_fd }
    }

    /// The descriptor of its channel.
    pub fn channel_fd(&self) -> RawFd {
        // SAFETY: the channel lives.
        unsafe { (*self.channel).fd }
    }

    /// The next completion, which must arrive in time.
    pub fn completion(&self) -> ibv_wc {
        let mut wc = ibv_wc::zeroed();
        let poll = self.ops().poll_cq.expect("a slot");
        let deadline = Instant::now() + Duration::from_secs(20);
        while poll(self.cq, 1, &raw mut wc) == 0 {
            assert!(Instant::now() < deadline, "nothing has completed");
            thread::yield_now();
        }
        wc
    }

    /// The next completion, which must be a success.
    pub fn success(&self) -> ibv_wc {
        let wc = self.completion();
        assert_eq!((wc.status, wc.vendor_err), (IBV_WC_SUCCESS, 0));
        wc
    }
}

/// Whether the descriptor of a channel has an event now.
pub fn is_readable(descriptor: RawFd) -> bool {
    is_readable_within(descriptor, PollTimeout::ZERO)
}

/// Waits until the descriptor has an event, which must arrive in time.
pub fn await_readable(descriptor: RawFd) {
    let in_time = PollTimeout::from(20_000_u16);
    assert!(is_readable_within(descriptor, in_time), "no event");
}

fn is_readable_within(descriptor: RawFd, timeout: PollTimeout) -> bool {
    // SAFETY: the descriptor is open while its channel lives.
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    let mut polled = [PollFd::new(descriptor, PollFlags::POLLIN)];
    poll(&mut polled, timeout).expect("a descriptor") == 1
}

/// The key of a region.
pub fn rkey(mr: *mut ibv_mr) -> u32 {
    // SAFETY: the region lives.
    unsafe { (*mr).rkey }
}

/// The library's part of a queue pair of C.
pub(crate) fn queue_pair(qp: *mut ibv_qp) -> Arc<backend::Qp> {
    let qp = Object::<Qp>::find(qp).expect("it lives");
    Arc::clone(qp.body().queue_pair())
}

/// A buffer of these places.
pub fn receive(wr_id: u64, sges: &mut [ibv_sge]) -> ibv_recv_wr {
    let mut wr = ibv_recv_wr::zeroed();
    (wr.wr_id, wr.sg_list) = (wr_id, sges.as_mut_ptr());
    wr.num_sge = i32::try_from(sges.len()).expect("a few");
    wr
}

/// A signaled request with these pieces.
pub fn request(wr_id: u64, opcode: u32, sges: &mut [ibv_sge]) -> ibv_send_wr {
    let mut wr = ibv_send_wr::zeroed();
    (wr.wr_id, wr.opcode, wr.send_flags) = (wr_id, opcode, IBV_SEND_SIGNALED);
    wr.sg_list = sges.as_mut_ptr();
    wr.num_sge = i32::try_from(sges.len()).expect("a few");
    wr
}

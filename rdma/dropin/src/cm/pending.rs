//! Functions of librdmacm that are not written yet.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

macro_rules! pending {
    ($type:ty, $value:expr; $($name:ident,)*) => { $(
        /// Not written yet.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $type {
            Errno::ENOSYS.set();
            $value
        }
    )* };
}

pending! { *mut c_void, ptr::null_mut();
    rdma_create_event_channel,
    rdma_event_str,
    rdma_get_devices,
}
pending! { c_int, -1;
    rdma_accept,
    rdma_ack_cm_event,
    rdma_bind_addr,
    rdma_connect,
    rdma_create_ep,
    rdma_create_id,
    rdma_create_qp,
    rdma_create_qp_ex,
    rdma_create_srq,
    rdma_create_srq_ex,
    rdma_destroy_ep,
    rdma_destroy_event_channel,
    rdma_destroy_id,
    rdma_destroy_qp,
    rdma_destroy_srq,
    rdma_disconnect,
    rdma_establish,
    rdma_free_devices,
    rdma_freeaddrinfo,
    rdma_get_cm_event,
    rdma_get_dst_port,
    rdma_get_remote_ece,
    rdma_get_request,
    rdma_get_src_port,
    rdma_getaddrinfo,
    rdma_init_qp_attr,
    rdma_join_multicast,
    rdma_join_multicast_ex,
    rdma_leave_multicast,
    rdma_listen,
    rdma_migrate_id,
    rdma_notify,
    rdma_reject,
    rdma_reject_ece,
    rdma_resolve_addr,
    rdma_resolve_route,
    rdma_set_local_ece,
    rdma_set_option,
}

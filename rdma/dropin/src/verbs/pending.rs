//! Functions of libibverbs that are not written yet.

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
    ibv_create_ah,
    ibv_create_comp_channel,
    ibv_create_cq,
    ibv_create_qp,
    ibv_create_srq,
    ibv_event_type_str,
    ibv_node_type_str,
    ibv_port_state_str,
    ibv_qp_to_qp_ex,
    ibv_reg_mr,
    ibv_reg_mr_iova,
    ibv_reg_mr_iova2,
    ibv_wc_status_str,
}
pending! { c_int, Errno::ENOSYS as c_int;
    _ibv_query_gid_ex,
    _ibv_query_gid_table,
    ibv_ack_async_event,
    ibv_ack_cq_events,
    ibv_dereg_mr,
    ibv_destroy_ah,
    ibv_destroy_comp_channel,
    ibv_destroy_cq,
    ibv_destroy_qp,
    ibv_destroy_srq,
    ibv_dofork_range,
    ibv_dontfork_range,
    ibv_fork_init,
    ibv_get_async_event,
    ibv_get_cq_event,
    ibv_get_pkey_index,
    ibv_is_fork_initialized,
    ibv_modify_qp,
    ibv_modify_srq,
    ibv_query_device,
    ibv_query_ece,
    ibv_query_gid,
    ibv_query_gid_type,
    ibv_query_pkey,
    ibv_query_port,
    ibv_query_qp,
    ibv_query_qp_data_in_order,
    ibv_query_srq,
    ibv_rate_to_mbps,
    ibv_rate_to_mult,
    ibv_rereg_mr,
    ibv_resize_cq,
    ibv_resolve_eth_l2_from_gid,
    ibv_set_ece,
    mbps_to_ibv_rate,
    mult_to_ibv_rate,
}

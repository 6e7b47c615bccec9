//! Functions of C that are not supported, and report that: rsockets, multicast, and extensions for
//! hardware of mlx5 and efa.
//!
//! Their arguments are ignored, so they are declared without any.

use std::ffi::{c_int, c_void};
use std::ptr;

use nix::errno::Errno;

/// Functions that return the given value, and set errno.
macro_rules! refused {
    ($errno:ident, $type:ty, $value:expr; $($name:ident,)*) => { $(
        /// Not supported.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $type {
            Errno::$errno.set();
            $value
        }
    )* };
}

// rsockets.
refused! { ENOSYS, isize, -1;
    raccept,
    rbind,
    rclose,
    rconnect,
    rfcntl,
    rgetpeername,
    rgetsockname,
    rgetsockopt,
    riounmap,
    rlisten,
    rpoll,
    rread,
    rreadv,
    rrecv,
    rrecvfrom,
    rrecvmsg,
    rselect,
    rsend,
    rsendmsg,
    rsendto,
    rsetsockopt,
    rshutdown,
    rsocket,
    rwrite,
    rwritev,
    riomap,
    riowrite,
}

// Multicast and datagrams, memory of other processes, and functions that the distribution's
// librdmacm calls in its own libibverbs.
refused! { EOPNOTSUPP, c_int, Errno::EOPNOTSUPP as c_int;
    ibv_attach_mcast,
    ibv_detach_mcast,
    ibv_init_ah_from_wc,
    ibv_resolve_eth_l2_from_gid,
}
refused! { EOPNOTSUPP, *mut c_void, ptr::null_mut();
    ibv_create_ah_from_wc,
    ibv_import_device,
    ibv_import_dm,
    ibv_import_mr,
    ibv_import_pd,
    ibv_reg_dmabuf_mr,
}
refused! { EOPNOTSUPP, (), ();
    ibv_copy_ah_attr_from_kern,
    ibv_copy_path_rec_from_kern,
    ibv_copy_path_rec_to_kern,
    ibv_copy_qp_attr_from_kern,
    ibv_register_driver,
    ibv_unimport_dm,
    ibv_unimport_mr,
    ibv_unimport_pd,
}

// mlx5 and efa.
refused! { EOPNOTSUPP, bool, false;
    mlx5dv_is_supported,
}
refused! { EOPNOTSUPP, isize, -1;
    mlx5dv_devx_get_event,
}
refused! { EOPNOTSUPP, (), ();
    mlx5dv_devx_destroy_cmd_comp,
    mlx5dv_devx_destroy_event_channel,
    mlx5dv_devx_free_uar,
    mlx5dv_dr_domain_allow_duplicate_rules,
    mlx5dv_dr_domain_set_reclaim_device_memory,
    mlx5dv_free_var,
    mlx5dv_pp_free,
}
refused! { EOPNOTSUPP, c_int, Errno::EOPNOTSUPP as c_int;
    _mlx5dv_mkey_check,
    _mlx5dv_query_port,
    efadv_query_ah,
    efadv_query_device,
    mlx5dv_crypto_login,
    mlx5dv_crypto_login_destroy,
    mlx5dv_crypto_login_query,
    mlx5dv_crypto_login_query_state,
    mlx5dv_crypto_logout,
    mlx5dv_dci_stream_id_reset,
    mlx5dv_dek_destroy,
    mlx5dv_dek_query,
    mlx5dv_destroy_flow_matcher,
    mlx5dv_destroy_mkey,
    mlx5dv_destroy_steering_anchor,
    mlx5dv_devx_cq_modify,
    mlx5dv_devx_cq_query,
    mlx5dv_devx_destroy_eq,
    mlx5dv_devx_free_msi_vector,
    mlx5dv_devx_general_cmd,
    mlx5dv_devx_get_async_cmd_comp,
    mlx5dv_devx_ind_tbl_modify,
    mlx5dv_devx_ind_tbl_query,
    mlx5dv_devx_obj_destroy,
    mlx5dv_devx_obj_modify,
    mlx5dv_devx_obj_query,
    mlx5dv_devx_obj_query_async,
    mlx5dv_devx_qp_modify,
    mlx5dv_devx_qp_query,
    mlx5dv_devx_query_eqn,
    mlx5dv_devx_srq_modify,
    mlx5dv_devx_srq_query,
    mlx5dv_devx_subscribe_devx_event,
    mlx5dv_devx_subscribe_devx_event_fd,
    mlx5dv_devx_umem_dereg,
    mlx5dv_devx_wq_modify,
    mlx5dv_devx_wq_query,
    mlx5dv_dr_action_destroy,
    mlx5dv_dr_action_modify_aso,
    mlx5dv_dr_action_modify_flow_meter,
    mlx5dv_dr_aso_other_domain_link,
    mlx5dv_dr_aso_other_domain_unlink,
    mlx5dv_dr_domain_destroy,
    mlx5dv_dr_domain_sync,
    mlx5dv_dr_matcher_destroy,
    mlx5dv_dr_matcher_set_layout,
    mlx5dv_dr_rule_destroy,
    mlx5dv_dr_table_destroy,
    mlx5dv_dump_dr_domain,
    mlx5dv_dump_dr_matcher,
    mlx5dv_dump_dr_rule,
    mlx5dv_dump_dr_table,
    mlx5dv_get_clock_info,
    mlx5dv_init_obj,
    mlx5dv_map_ah_to_qp,
    mlx5dv_modify_qp_lag_port,
    mlx5dv_modify_qp_sched_elem,
    mlx5dv_modify_qp_udp_sport,
    mlx5dv_qp_cancel_posted_send_wrs,
    mlx5dv_query_device,
    mlx5dv_query_qp_lag_port,
    mlx5dv_reserved_qpn_alloc,
    mlx5dv_reserved_qpn_dealloc,
    mlx5dv_sched_leaf_destroy,
    mlx5dv_sched_leaf_modify,
    mlx5dv_sched_node_destroy,
    mlx5dv_sched_node_modify,
    mlx5dv_set_context_attr,
    mlx5dv_vfio_get_events_fd,
    mlx5dv_vfio_process_events,
}
refused! { EOPNOTSUPP, *mut c_void, ptr::null_mut();
    efadv_cq_from_ibv_cq_ex,
    efadv_create_cq,
    efadv_create_driver_qp,
    efadv_create_qp_ex,
    mlx5dv_alloc_dm,
    mlx5dv_alloc_var,
    mlx5dv_create_cq,
    mlx5dv_create_flow,
    mlx5dv_create_flow_action_esp,
    mlx5dv_create_flow_action_modify_header,
    mlx5dv_create_flow_action_packet_reformat,
    mlx5dv_create_flow_matcher,
    mlx5dv_create_mkey,
    mlx5dv_create_qp,
    mlx5dv_create_steering_anchor,
    mlx5dv_create_wq,
    mlx5dv_crypto_login_create,
    mlx5dv_dek_create,
    mlx5dv_devx_alloc_msi_vector,
    mlx5dv_devx_alloc_uar,
    mlx5dv_devx_create_cmd_comp,
    mlx5dv_devx_create_eq,
    mlx5dv_devx_create_event_channel,
    mlx5dv_devx_obj_create,
    mlx5dv_devx_umem_reg,
    mlx5dv_devx_umem_reg_ex,
    mlx5dv_dm_map_op_addr,
    mlx5dv_dr_action_create_aso,
    mlx5dv_dr_action_create_default_miss,
    mlx5dv_dr_action_create_dest_array,
    mlx5dv_dr_action_create_dest_devx_tir,
    mlx5dv_dr_action_create_dest_ib_port,
    mlx5dv_dr_action_create_dest_ibv_qp,
    mlx5dv_dr_action_create_dest_root_table,
    mlx5dv_dr_action_create_dest_table,
    mlx5dv_dr_action_create_dest_vport,
    mlx5dv_dr_action_create_drop,
    mlx5dv_dr_action_create_flow_counter,
    mlx5dv_dr_action_create_flow_meter,
    mlx5dv_dr_action_create_flow_sampler,
    mlx5dv_dr_action_create_modify_header,
    mlx5dv_dr_action_create_packet_reformat,
    mlx5dv_dr_action_create_pop_vlan,
    mlx5dv_dr_action_create_push_vlan,
    mlx5dv_dr_action_create_tag,
    mlx5dv_dr_domain_create,
    mlx5dv_dr_matcher_create,
    mlx5dv_dr_rule_create,
    mlx5dv_dr_table_create,
    mlx5dv_get_vfio_device_list,
    mlx5dv_open_device,
    mlx5dv_pp_alloc,
    mlx5dv_qp_ex_from_ibv_qp_ex,
    mlx5dv_sched_leaf_create,
    mlx5dv_sched_node_create,
}

//! Structs of `rdma/rdma_cma.h`.

use std::ffi::{c_char, c_int, c_void};

use super::layout::{Layout, Zeroed, c_name, c_structs};
use super::verbs::{
    ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_srq,
};

/// Parameters of an event: [`rdma_conn_param`] of a connection, [`rdma_ud_param`] of a datagram
/// service.
#[repr(C)]
#[derive(Clone, Copy)]
pub union RdmaCmEventParam {
    pub conn: rdma_conn_param,
    pub ud: rdma_ud_param,
}

c_structs! {
    /// An event channel of the connection manager.
    rdma_event_channel 4 {
        0 fd: c_int,
    }
    /// GIDs of a route.
    rdma_ib_addr 40 {
        0 sgid: ibv_gid,
        16 dgid: ibv_gid,
        32 pkey: u16,
    }
    /// Addresses of a route.
    rdma_addr 296 {
        0 src = "src_storage": libc::sockaddr_storage,
        128 dst = "dst_storage": libc::sockaddr_storage,
        256 ibaddr = "addr.ibaddr": rdma_ib_addr,
    }
    /// A route.
    rdma_route 312 {
        0 addr: rdma_addr,
        296 path_rec: *mut c_void,
        304 num_paths: c_int,
    }
    /// An identifier of the connection manager.
    rdma_cm_id 416 {
        0 verbs: *mut ibv_context,
        8 channel: *mut rdma_event_channel,
        16 context: *mut c_void,
        24 qp: *mut ibv_qp,
        32 route: rdma_route,
        344 ps: u32,
        348 port_num: u8,
        352 event: *mut rdma_cm_event,
        360 send_cq_channel: *mut ibv_comp_channel,
        368 send_cq: *mut ibv_cq,
        376 recv_cq_channel: *mut ibv_comp_channel,
        384 recv_cq: *mut ibv_cq,
        392 srq: *mut ibv_srq,
        400 pd: *mut ibv_pd,
        408 qp_type: u32,
    }
    /// Parameters of a connection request or its answer.
    rdma_conn_param 24 {
        0 private_data: *const c_void,
        8 private_data_len: u8,
        9 responder_resources: u8,
        10 initiator_depth: u8,
        11 flow_control: u8,
        12 retry_count: u8,
        13 rnr_retry_count: u8,
        14 srq: u8,
        16 qp_num: u32,
    }
    /// Parameters of a datagram service.
    rdma_ud_param 56 {
        0 private_data: *const c_void,
        8 private_data_len: u8,
        16 ah_attr: ibv_ah_attr,
        48 qp_num: u32,
        52 qkey: u32,
    }
    /// An event of the connection manager.
    rdma_cm_event 80 {
        0 id: *mut rdma_cm_id,
        8 listen_id: *mut rdma_cm_id,
        16 event: u32,
        20 status: c_int,
        24 param: RdmaCmEventParam,
    }
    /// Addresses of a name.
    rdma_addrinfo 96 {
        0 ai_flags: c_int,
        4 ai_family: c_int,
        8 ai_qp_type: c_int,
        12 ai_port_space: c_int,
        16 ai_src_len: u32,
        20 ai_dst_len: u32,
        24 ai_src_addr: *mut libc::sockaddr,
        32 ai_dst_addr: *mut libc::sockaddr,
        40 ai_src_canonname: *mut c_char,
        48 ai_dst_canonname: *mut c_char,
        56 ai_route_len: usize,
        64 ai_route: *mut c_void,
        72 ai_connect_len: usize,
        80 ai_connect: *mut c_void,
        88 ai_next: *mut rdma_addrinfo,
    }
}

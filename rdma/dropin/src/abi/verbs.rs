//! Structs of `infiniband/verbs.h`.

use std::ffi::{c_int, c_void};

use super::layout::{Layout, Zeroed, c_name, c_structs};

/// A slot that this library leaves empty: inline functions of the header report that the operation
/// is not supported.
pub type Unused = usize;
/// A mutex of the C library, initialised by zeros and unused.
pub type PthreadMutex = [u64; 5];
/// A condition variable of the C library, as large as the header has it.
pub type PthreadCond = [u64; 6];

pub type PostSend =
    extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, Option<&mut *mut ibv_send_wr>) -> c_int;
pub type PostRecv =
    extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, Option<&mut *mut ibv_recv_wr>) -> c_int;
pub type PostSrqRecv =
    extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, Option<&mut *mut ibv_recv_wr>) -> c_int;

/// A GID: 16 bytes, aligned as the two halves of the C union are.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ibv_gid(pub [u8; 16]);

/// The peer's memory, by opcode.
#[repr(C)]
#[derive(Clone, Copy)]
pub union Target {
    pub rdma: Rdma,
    pub atomic: Atomic,
}

/// Of a Write or Read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Of an atomic operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

c_structs! {
    /// A device: an interface that an RNIC can be opened on.
    ibv_device 664 {
        0 ops = "_ops": [usize; 2],
        16 node_type: u32,
        20 transport_type: u32,
        24 name: [u8; 64],
        88 dev_name: [u8; 64],
        152 dev_path: [u8; 256],
        408 ibdev_path: [u8; 256],
    }
    /// The functions that inline functions of the header call.
    ibv_context_ops 256 {
        0 query_device = "_compat_query_device": Unused,
        8 query_port = "_compat_query_port": Option<extern "C" fn(*mut ibv_context, u8, *mut c_void) -> c_int>,
        16 unused_2 = "_compat_alloc_pd": [Unused; 5],
        56 alloc_mw: Option<extern "C" fn(*mut ibv_pd, u32) -> *mut ibv_mw>,
        64 bind_mw: Option<extern "C" fn(*mut ibv_qp, *mut ibv_mw, Option<&ibv_mw_bind>) -> c_int>,
        72 dealloc_mw: Option<extern "C" fn(*mut ibv_mw) -> c_int>,
        80 unused_10 = "_compat_create_cq": Unused,
        88 poll_cq: Option<extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
        96 req_notify_cq: Option<extern "C" fn(*mut ibv_cq, c_int) -> c_int>,
        104 unused_13 = "_compat_cq_event": [Unused; 7],
        160 post_srq_recv: Option<PostSrqRecv>,
        168 unused_21 = "_compat_create_qp": [Unused; 4],
        200 post_send: Option<PostSend>,
        208 post_recv: Option<PostRecv>,
        216 unused_27 = "_compat_create_ah": [Unused; 5],
    }
    /// An open device as programs see it.
    ibv_context 328 {
        0 device: *mut ibv_device,
        8 ops: ibv_context_ops,
        264 cmd_fd: c_int,
        268 async_fd: c_int,
        272 num_comp_vectors: c_int,
        280 mutex: PthreadMutex,
        320 abi_compat: usize,
    }
    /// The functions in front of an `ibv_context`, which later versions have added. An empty slot
    /// is not supported.
    verbs_context 648 {
        0 query_port: Option<extern "C" fn(*mut ibv_context, u8, *mut c_void, usize) -> c_int>,
        8 advise_mr: Option<extern "C" fn(*mut ibv_pd, u32, u32, *mut ibv_sge, u32) -> c_int>,
        16 alloc_null_mr: [Unused; 12],
        112 alloc_parent_domain: Option<extern "C" fn(*mut ibv_context, Option<&ibv_parent_domain_init_attr>) -> *mut ibv_pd>,
        120 dealloc_td: Option<extern "C" fn(*mut ibv_td) -> c_int>,
        128 alloc_td: Option<extern "C" fn(*mut ibv_context, Option<&ibv_td_init_attr>) -> *mut ibv_td>,
        136 modify_cq: Unused,
        144 post_srq_ops: Unused,
        152 destroy_rwq_ind_table: [Unused; 5],
        192 query_rt_values: Option<extern "C" fn(*mut ibv_context, Option<&mut ibv_values_ex>) -> c_int>,
        200 create_cq_ex: Option<extern "C" fn(*mut ibv_context, Option<&mut ibv_cq_init_attr_ex>) -> *mut ibv_cq_ex>,
        208 private = "priv": usize,
        216 query_device_ex: Option<extern "C" fn(*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex, usize) -> c_int>,
        224 ibv_destroy_flow: [Unused; 5],
        264 create_qp_ex: Option<extern "C" fn(*mut ibv_context, Option<&mut ibv_qp_init_attr_ex>) -> *mut ibv_qp>,
        272 get_srq_num: Unused,
        280 create_srq_ex: Option<extern "C" fn(*mut ibv_context, Option<&mut ibv_srq_init_attr_ex>) -> *mut ibv_srq>,
        288 open_xrcd: Unused,
        296 close_xrcd: Unused,
        304 placeholder3 = "_ABI_placeholder3": u64,
        312 sz: usize,
        320 context: ibv_context,
    }
    /// A protection domain.
    ibv_pd 16 {
        0 context: *mut ibv_context,
        8 handle: u32,
    }
    /// A memory region.
    ibv_mr 48 {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 addr: *mut c_void,
        24 length: usize,
        32 handle: u32,
        36 lkey: u32,
        40 rkey: u32,
    }
    /// A memory window.
    ibv_mw 32 {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 rkey: u32,
        20 handle: u32,
        24 kind = "type": u32,
    }
    /// A completion channel.
    ibv_comp_channel 16 {
        0 context: *mut ibv_context,
        8 fd: c_int,
        12 refcnt: c_int,
    }
    /// A completion queue.
    ibv_cq 128 {
        0 context: *mut ibv_context,
        8 channel: *mut ibv_comp_channel,
        16 cq_context: *mut c_void,
        24 handle: u32,
        28 cqe: c_int,
        32 mutex: PthreadMutex,
        72 cond: PthreadCond,
        120 comp_events_completed: u32,
        124 async_events_completed: u32,
    }
    /// A completion queue that is polled one completion at a time. It begins as an `ibv_cq`.
    ibv_cq_ex 288 {
        0 cq = "context": ibv_cq,
        128 comp_mask: u32,
        132 status: u32,
        136 wr_id: u64,
        144 start_poll: Option<extern "C" fn(*mut ibv_cq_ex, Option<&ibv_poll_cq_attr>) -> c_int>,
        152 next_poll: Option<extern "C" fn(*mut ibv_cq_ex) -> c_int>,
        160 end_poll: Option<extern "C" fn(*mut ibv_cq_ex)>,
        168 read_opcode: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        176 read_vendor_err: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        184 read_byte_len: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        192 read_imm_data: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        200 read_qp_num: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        208 read_src_qp: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        216 read_wc_flags: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        224 read_slid: Option<extern "C" fn(*mut ibv_cq_ex) -> u32>,
        232 read_sl: Option<extern "C" fn(*mut ibv_cq_ex) -> u8>,
        240 read_dlid_path_bits: Option<extern "C" fn(*mut ibv_cq_ex) -> u8>,
        248 read_completion_ts: Option<extern "C" fn(*mut ibv_cq_ex) -> u64>,
        256 read_cvlan: Unused,
        264 read_flow_tag: Unused,
        272 read_tm_info: Unused,
        280 read_completion_wallclock_ns: Option<extern "C" fn(*mut ibv_cq_ex) -> u64>,
    }
    /// A shared receive queue.
    ibv_srq 128 {
        0 context: *mut ibv_context,
        8 srq_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 handle: u32,
        32 mutex: PthreadMutex,
        72 cond: PthreadCond,
        120 events_completed: u32,
    }
    /// A queue pair.
    ibv_qp 160 {
        0 context: *mut ibv_context,
        8 qp_context: *mut c_void,
        16 pd: *mut ibv_pd,
        24 send_cq: *mut ibv_cq,
        32 recv_cq: *mut ibv_cq,
        40 srq: *mut ibv_srq,
        48 handle: u32,
        52 qp_num: u32,
        56 state: u32,
        60 qp_type: u32,
        64 mutex: PthreadMutex,
        104 cond: PthreadCond,
        152 events_completed: u32,
    }
    /// A queue pair that is posted to by one call for each part of a work request.
    ibv_qp_ex 352 {
        0 qp_base: ibv_qp,
        160 comp_mask: u64,
        168 wr_id: u64,
        176 wr_flags: u32,
        184 wr_atomic_cmp_swp: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64)>,
        192 wr_atomic_fetch_add: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64, u64)>,
        200 wr_bind_mw: Option<extern "C" fn(*mut ibv_qp_ex, *mut ibv_mw, u32, Option<&ibv_mw_bind_info>)>,
        208 wr_local_inv: Option<extern "C" fn(*mut ibv_qp_ex, u32)>,
        216 wr_rdma_read: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        224 wr_rdma_write: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64)>,
        232 wr_rdma_write_imm: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        240 wr_send: Option<extern "C" fn(*mut ibv_qp_ex)>,
        248 wr_send_imm: Option<extern "C" fn(*mut ibv_qp_ex, u32)>,
        256 wr_send_inv: Option<extern "C" fn(*mut ibv_qp_ex, u32)>,
        264 wr_send_tso: Option<extern "C" fn(*mut ibv_qp_ex, *const c_void, u16, u16)>,
        272 wr_set_ud_addr: Option<extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32)>,
        280 wr_set_xrc_srqn: Option<extern "C" fn(*mut ibv_qp_ex, u32)>,
        288 wr_set_inline_data: Option<extern "C" fn(*mut ibv_qp_ex, *const c_void, usize)>,
        296 wr_set_inline_data_list: Option<extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf)>,
        304 wr_set_sge: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64, u32)>,
        312 wr_set_sge_list: Option<extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge)>,
        320 wr_start: Option<extern "C" fn(*mut ibv_qp_ex)>,
        328 wr_complete: Option<extern "C" fn(*mut ibv_qp_ex) -> c_int>,
        336 wr_abort: Option<extern "C" fn(*mut ibv_qp_ex)>,
        344 wr_atomic_write: Option<extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void)>,
    }
    /// An address handle.
    ibv_ah 24 {
        0 context: *mut ibv_context,
        8 pd: *mut ibv_pd,
        16 handle: u32,
    }
    /// An element of a scatter/gather list.
    ibv_sge 16 {
        0 addr: u64,
        8 length: u32,
        12 lkey: u32,
    }
    /// A work request for a send queue.
    ibv_send_wr 128 {
        0 wr_id: u64,
        8 next: *mut ibv_send_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
        28 opcode: u32,
        32 send_flags: u32,
        36 imm_data: u32,
        40 wr = "wr": Target,
        72 xrc_remote_srqn = "qp_type.xrc.remote_srqn": u32,
        80 mw = "bind_mw.mw": *mut ibv_mw,
        88 bind_rkey = "bind_mw.rkey": u32,
        96 bind_info = "bind_mw.bind_info": ibv_mw_bind_info,
    }
    /// A buffer for a receive queue.
    ibv_recv_wr 32 {
        0 wr_id: u64,
        8 next: *mut ibv_recv_wr,
        16 sg_list: *mut ibv_sge,
        24 num_sge: c_int,
    }
    /// A completion.
    ibv_wc 48 {
        0 wr_id: u64,
        8 status: u32,
        12 opcode: u32,
        16 vendor_err: u32,
        20 byte_len: u32,
        24 imm_data: u32,
        28 qp_num: u32,
        32 src_qp: u32,
        36 wc_flags: u32,
        40 pkey_index: u16,
        42 slid: u16,
        44 sl: u8,
        45 dlid_path_bits: u8,
    }
    /// The memory and rights that a window is bound to.
    ibv_mw_bind_info 32 {
        0 mr: *mut ibv_mr,
        8 addr: u64,
        16 length: u64,
        24 mw_access_flags: u32,
    }
    /// A bind of a window of type 1.
    ibv_mw_bind 48 {
        0 wr_id: u64,
        8 send_flags: u32,
        16 bind_info: ibv_mw_bind_info,
    }
    /// Bytes that are sent inline.
    ibv_data_buf 16 {
        0 addr: *mut c_void,
        8 length: usize,
    }
    /// Attributes of a poll.
    ibv_poll_cq_attr 4 {
        0 comp_mask: u32,
    }
    /// Capabilities of a device.
    ibv_device_attr 232 {
        0 fw_ver: [u8; 64],
        64 node_guid: u64,
        72 sys_image_guid: u64,
        80 max_mr_size: u64,
        88 page_size_cap: u64,
        96 vendor_id: u32,
        100 vendor_part_id: u32,
        104 hw_ver: u32,
        108 max_qp: c_int,
        112 max_qp_wr: c_int,
        116 device_cap_flags: u32,
        120 max_sge: c_int,
        124 max_sge_rd: c_int,
        128 max_cq: c_int,
        132 max_cqe: c_int,
        136 max_mr: c_int,
        140 max_pd: c_int,
        144 max_qp_rd_atom: c_int,
        148 max_ee_rd_atom: c_int,
        152 max_res_rd_atom: c_int,
        156 max_qp_init_rd_atom: c_int,
        160 max_ee_init_rd_atom: c_int,
        164 atomic_cap: u32,
        168 max_ee: c_int,
        172 max_rdd: c_int,
        176 max_mw: c_int,
        180 max_raw_ipv6_qp: c_int,
        184 max_raw_ethy_qp: c_int,
        188 max_mcast_grp: c_int,
        192 max_mcast_qp_attach: c_int,
        196 max_total_mcast_qp_attach: c_int,
        200 max_ah: c_int,
        204 max_fmr: c_int,
        208 max_map_per_fmr: c_int,
        212 max_srq: c_int,
        216 max_srq_wr: c_int,
        220 max_srq_sge: c_int,
        224 max_pkeys: u16,
        226 local_ca_ack_delay: u8,
        227 phys_port_cnt: u8,
    }
    /// Capabilities of a device, as later versions report them. All but the first field, masks and
    /// ports is zero here.
    ibv_device_attr_ex 400 {
        0 orig_attr: ibv_device_attr,
        232 comp_mask: u32,
        240 odp_caps: [u64; 3],
        264 completion_timestamp_mask: u64,
        272 hca_core_clock: u64,
        280 device_cap_flags_ex: u64,
        288 tso_caps: [u32; 2],
        296 rss_caps: [u64; 4],
        328 max_wq_type_rq: u32,
        332 packet_pacing_caps: [u32; 3],
        344 raw_packet_caps: u32,
        348 tm_caps: [u32; 5],
        368 cq_mod_caps: [u16; 2],
        376 max_dm_size: u64,
        384 pci_atomic_caps: [u16; 3],
        392 xrc_odp_caps: u32,
        396 phys_port_cnt_ex: u32,
    }
    /// Further attributes that are asked for: none yet.
    ibv_query_device_ex_input 4 {
        0 comp_mask: u32,
    }
    /// A port.
    ibv_port_attr 52 {
        0 state: u32,
        4 max_mtu: u32,
        8 active_mtu: u32,
        12 gid_tbl_len: c_int,
        16 port_cap_flags: u32,
        20 max_msg_sz: u32,
        24 bad_pkey_cntr: u32,
        28 qkey_viol_cntr: u32,
        32 pkey_tbl_len: u16,
        34 lid: u16,
        36 sm_lid: u16,
        38 lmc: u8,
        39 max_vl_num: u8,
        40 sm_sl: u8,
        41 subnet_timeout: u8,
        42 init_type_reply: u8,
        43 active_width: u8,
        44 active_speed: u8,
        45 phys_state: u8,
        46 link_layer: u8,
        47 flags: u8,
        48 port_cap_flags2: u16,
    }
    /// A row of the GID table.
    ibv_gid_entry 32 {
        0 gid: ibv_gid,
        16 gid_index: u32,
        20 port_num: u32,
        24 gid_type: u32,
        28 ndev_ifindex: u32,
    }
    /// Sizes of a queue pair.
    ibv_qp_cap 20 {
        0 max_send_wr: u32,
        4 max_recv_wr: u32,
        8 max_send_sge: u32,
        12 max_recv_sge: u32,
        16 max_inline_data: u32,
    }
    /// Attributes that a queue pair is created with.
    ibv_qp_init_attr 64 {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: u32,
        56 sq_sig_all: c_int,
    }
    /// Attributes that a queue pair is created with, in later versions.
    ibv_qp_init_attr_ex 136 {
        0 qp_context: *mut c_void,
        8 send_cq: *mut ibv_cq,
        16 recv_cq: *mut ibv_cq,
        24 srq: *mut ibv_srq,
        32 cap: ibv_qp_cap,
        52 qp_type: u32,
        56 sq_sig_all: c_int,
        60 comp_mask: u32,
        64 pd: *mut ibv_pd,
        72 xrcd: *mut c_void,
        80 create_flags: u32,
        84 max_tso_header: u16,
        88 rwq_ind_tbl: *mut c_void,
        96 rx_hash_conf: [usize; 3],
        120 source_qpn: u32,
        128 send_ops_flags: u64,
    }
    /// The global part of an address.
    ibv_global_route 24 {
        0 dgid: ibv_gid,
        16 flow_label: u32,
        20 sgid_index: u8,
        21 hop_limit: u8,
        22 traffic_class: u8,
    }
    /// An address.
    ibv_ah_attr 32 {
        0 grh: ibv_global_route,
        24 dlid: u16,
        26 sl: u8,
        27 src_path_bits: u8,
        28 static_rate: u8,
        29 is_global: u8,
        30 port_num: u8,
    }
    /// Attributes that Modify QP changes and Query QP reports.
    ibv_qp_attr 144 {
        0 qp_state: u32,
        4 cur_qp_state: u32,
        8 path_mtu: u32,
        12 path_mig_state: u32,
        16 qkey: u32,
        20 rq_psn: u32,
        24 sq_psn: u32,
        28 dest_qp_num: u32,
        32 qp_access_flags: u32,
        36 cap: ibv_qp_cap,
        56 ah_attr: ibv_ah_attr,
        88 alt_ah_attr: ibv_ah_attr,
        120 pkey_index: u16,
        122 alt_pkey_index: u16,
        124 en_sqd_async_notify: u8,
        125 sq_draining: u8,
        126 max_rd_atomic: u8,
        127 max_dest_rd_atomic: u8,
        128 min_rnr_timer: u8,
        129 port_num: u8,
        130 timeout: u8,
        131 retry_cnt: u8,
        132 rnr_retry: u8,
        133 alt_port_num: u8,
        134 alt_timeout: u8,
        136 rate_limit: u32,
    }
    /// Attributes that a completion queue is created with, in later versions.
    ibv_cq_init_attr_ex 56 {
        0 cqe: u32,
        8 cq_context: *mut c_void,
        16 channel: *mut ibv_comp_channel,
        24 comp_vector: u32,
        32 wc_flags: u64,
        40 comp_mask: u32,
        44 flags: u32,
        48 parent_domain: *mut ibv_pd,
    }
    /// Sizes and limit of a shared receive queue.
    ibv_srq_attr 12 {
        0 max_wr: u32,
        4 max_sge: u32,
        8 srq_limit: u32,
    }
    /// Attributes that a shared receive queue is created with.
    ibv_srq_init_attr 24 {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
    }
    /// Attributes that a shared receive queue is created with, in later versions.
    ibv_srq_init_attr_ex 64 {
        0 srq_context: *mut c_void,
        8 attr: ibv_srq_attr,
        20 comp_mask: u32,
        24 srq_type: u32,
        32 pd: *mut ibv_pd,
        40 xrcd: *mut c_void,
        48 cq: *mut ibv_cq,
        56 tm_cap: [u32; 2],
    }
    /// An asynchronous event.
    ibv_async_event 16 {
        0 element: *mut c_void,
        8 event_type: u32,
    }
    /// Options of a vendor's connections: none here.
    ibv_ece 12 {
        0 vendor_id: u32,
        4 options: u32,
        8 comp_mask: u32,
    }
    /// The header in front of a datagram.
    ibv_grh 40 {
        0 version_tclass_flow: u32,
        4 paylen: u16,
        6 next_hdr: u8,
        7 hop_limit: u8,
        8 sgid: ibv_gid,
        24 dgid: ibv_gid,
    }
    /// Moderation of completion events: not supported.
    ibv_modify_cq_attr 8 {
        0 attr_mask: u32,
        4 moderate: [u16; 2],
    }
    /// A thread domain.
    ibv_td 8 {
        0 context: *mut ibv_context,
    }
    /// Attributes of a parent domain.
    ibv_parent_domain_init_attr 48 {
        0 pd: *mut ibv_pd,
        8 td: *mut ibv_td,
        16 comp_mask: u32,
        24 alloc: Unused,
        32 free: Unused,
        40 pd_context: *mut c_void,
    }
    /// Attributes of a thread domain.
    ibv_td_init_attr 4 {
        0 comp_mask: u32,
    }
    /// Clocks of a device.
    ibv_values_ex 24 {
        0 comp_mask: u32,
        8 raw_clock: libc::timespec,
    }
}

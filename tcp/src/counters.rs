//! What a stack has counted.

/// What a stack has counted since its start: segments, and frames dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCounters {
    /// TCP segments received with valid checksums.
    pub segments_in: u64,
    /// TCP segments sent.
    pub segments_out: u64,
    /// Segments sent that began below the highest sequence number sent before.
    pub retransmissions: u64,
    /// RSTs sent in answer to segments of no flow.
    pub resets_out: u64,
    /// Frames that are neither IPv4 nor IPv6, or too short to tell.
    pub drop_not_ip: u64,
    /// Frames sent to a group of hosts, by Ethernet or IP address, or from no host.
    pub drop_not_unicast: u64,
    /// IP headers that contradict themselves or the frame's length.
    pub drop_bad_ip: u64,
    /// IPv4 fragments.
    pub drop_fragment: u64,
    /// IPv4 header checksums or TCP checksums that do not fit.
    pub drop_bad_checksum: u64,
    /// IP packets of other protocols than TCP.
    pub drop_not_tcp: u64,
    /// TCP headers that contradict themselves.
    pub drop_bad_tcp: u64,
    /// Segments of no flow and no listener, answered by a RST unless they were one.
    pub drop_no_flow: u64,
    /// SYNs to a listener whose backlog is full.
    pub drop_backlog_full: u64,
    /// SYNs for which there was no connection left.
    pub drop_table_full: u64,
    /// Segments beyond the window that was announced, in the cases where smoltcp would take them.
    pub drop_beyond_window: u64,
    /// Answers for which there was no TX frame.
    pub drop_no_tx_frame: u64,
    /// Segments that do not fit a TX frame.
    pub drop_tx_too_long: u64,
}

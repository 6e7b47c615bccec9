//! Counters of a stack.

/// What a stack has counted since its start: segments, and frames dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackCounters {
    /// TCP segments received with valid checksums.
    pub segments_in: u64,
    /// TCP segments received that are for another engine of the interface, which got them.
    pub handed_over: u64,
    /// TCP segments sent.
    pub segments_out: u64,
    /// Times that the stack visited a connection: for a segment, a timer, or a call.
    pub conn_visits: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// Of these, tail loss probes (RFC 8985 §7).
    pub tail_probes: u64,
    /// Recoveries that turned out to be for nothing, and were undone.
    pub undone: u64,
    /// Echoes of congestion that were answered by a smaller window, once per window (RFC 3168 §6.1.2).
    pub congestion_answered: u64,
    /// ACKs that called a segment a duplicate (RFC 2883).
    pub duplicates_reported: u64,
    /// Segments received before others in front of them.
    pub out_of_order: u64,
    /// Payloads that were copied out of their frames, as connections kept half of the receive frames.
    pub copied_out: u64,
    /// Probes of closed windows and silent peers sent.
    pub probes_out: u64,
    /// Challenge ACKs (RFC 5961).
    pub challenge_acks: u64,
    /// Probes that ask a peer whether the NIC computes checksums.
    pub checksum_probes_out: u64,
    /// Probes of these that were answered: from then on, their connections leave checksums to the NIC.
    pub checksums_proven: u64,
    /// Probes of these that were sent anew after a loss.
    pub checksums_doubted: u64,
    /// Connections that computed checksums themselves after a timeout, though the NIC had been found to.
    pub checksums_given_up: u64,
    /// SYNs answered by a cookie, as the backlog was full.
    pub cookies_out: u64,
    /// Connections established by a cookie.
    pub cookies_in: u64,
    /// Paths that have become narrower, as ICMP messages told.
    pub narrowed: u64,
    /// Connections whose next hop has become another.
    pub rerouted: u64,
    /// Times that a connection has begun anew, mostly from another port, as the answer to its SYN had come to another engine.
    pub opened_anew: u64,
    /// Other ICMP messages: about what the kernel has sent, or forged.
    pub icmp_ignored: u64,
    /// RSTs sent in answer to segments of no flow.
    pub resets_out: u64,
    /// RSTs that were not sent, as too many had been provoked.
    pub resets_withheld: u64,
    /// Frames that are neither IPv4 nor IPv6, or too short to tell.
    pub drop_not_ip: u64,
    /// Frames sent to a group of hosts, by Ethernet or IP address.
    pub drop_not_unicast: u64,
    /// Frames sent to another station's Ethernet address.
    pub drop_other_station: u64,
    /// Frames with the tag of a VLAN: the interface is in none.
    pub drop_vlan: u64,
    /// Segments of no flow from an address that no peer has: this host's own, loopback's, a broadcast's, a group's, one that is reserved.
    pub drop_bad_source: u64,
    /// Packets on a route that their sender chose (RFC 791, RFC 8200 §4.4).
    pub drop_source_route: u64,
    /// IPv4 options that contradict themselves.
    pub drop_bad_ip_option: u64,
    /// IPv6 extension headers that cannot be stepped over: too many, out of place, or with an option that must not be skipped.
    pub drop_bad_extension: u64,
    /// IP headers that contradict themselves or the frame's length.
    pub drop_bad_ip: u64,
    /// Fragments of IP packets.
    pub drop_fragment: u64,
    /// IPv4 header checksums or TCP checksums that do not fit.
    pub drop_bad_checksum: u64,
    /// TCP checksums that the sender's kernel has left to a device, as on a virtual link (`ethtool -K DEV tx off` at the sender).
    pub drop_partial_checksum: u64,
    /// Likewise in packets that are larger than the MTU, as a device was to cut them (`tx off tso off` at the sender, or `gro off` here).
    pub drop_super_packet: u64,
    /// IP packets of other protocols than TCP.
    pub drop_not_tcp: u64,
    /// TCP headers that contradict themselves.
    pub drop_bad_tcp: u64,
    /// Segments of no flow and no listener, answered by a RST unless they were one.
    pub drop_no_flow: u64,
    /// SYNs to a listener, and ACKs of its cookies, while too many connections wait to be polled.
    pub drop_backlog_full: u64,
    /// SYNs for which there was no connection left.
    pub drop_table_full: u64,
    /// Segments that lie beyond the window that was announced.
    pub drop_beyond_window: u64,
    /// Segments received before others in front of them for which there was no memory. The cause is too many pieces of one connection, or
    /// too much of all of them.
    pub drop_reassembly_full: u64,
    /// Segments without a timestamp on connections that use them (RFC 7323 §3.2).
    pub drop_no_timestamp: u64,
    /// Segments with new bytes and a timestamp that is too old (PAWS, RFC 7323 §5).
    pub drop_old_timestamp: u64,
    /// Segments that echo a timestamp that was not sent, or minutes before another one that came back.
    pub drop_false_echo: u64,
    /// RSTs in answer to segments of no flow, and SYN cookies, for which there was no TX frame.
    pub drop_no_tx_frame: u64,
}

xwarp_driver::named_counters!(StackCounters {
    segments_in,
    handed_over,
    segments_out,
    conn_visits,
    retransmissions,
    tail_probes,
    undone,
    congestion_answered,
    duplicates_reported,
    out_of_order,
    copied_out,
    probes_out,
    challenge_acks,
    checksum_probes_out,
    checksums_proven,
    checksums_doubted,
    checksums_given_up,
    cookies_out,
    cookies_in,
    narrowed,
    rerouted,
    opened_anew,
    icmp_ignored,
    resets_out,
    resets_withheld,
    drop_not_ip,
    drop_not_unicast,
    drop_other_station,
    drop_vlan,
    drop_bad_source,
    drop_source_route,
    drop_bad_ip_option,
    drop_bad_extension,
    drop_bad_ip,
    drop_fragment,
    drop_bad_checksum,
    drop_partial_checksum,
    drop_super_packet,
    drop_not_tcp,
    drop_bad_tcp,
    drop_no_flow,
    drop_backlog_full,
    drop_table_full,
    drop_beyond_window,
    drop_reassembly_full,
    drop_no_timestamp,
    drop_old_timestamp,
    drop_false_echo,
    drop_no_tx_frame,
});

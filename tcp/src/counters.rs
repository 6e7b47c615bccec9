//! Counters of a stack.

/// Counters of a stack since its start: segments, and frames dropped by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackCounters {
    /// TCP segments received with valid checksums.
    pub segments_in: u64,
    /// TCP segments received for another engine of the interface and handed to it.
    pub handed_over: u64,
    /// TCP segments sent.
    pub segments_out: u64,
    /// Visits to a connection: for a segment, a timer, or a call.
    pub conn_visits: u64,
    /// Segments retransmitted.
    pub retransmissions: u64,
    /// Retransmissions that were tail loss probes (RFC 8985 §7).
    pub tail_probes: u64,
    /// Recoveries that turned out to be spurious and were undone.
    pub undone: u64,
    /// Congestion echoes answered by reducing the window, once per window (RFC 3168 §6.1.2).
    pub congestion_answered: u64,
    /// ACKs that reported a duplicate segment (RFC 2883).
    pub duplicates_reported: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Payloads copied out of their frames because connections held half of the receive frames.
    pub copied_out: u64,
    /// Zero window probes and keep-alive probes sent.
    pub probes_out: u64,
    /// Challenge ACKs sent (RFC 5961).
    pub challenge_acks: u64,
    /// Probes sent to find out whether the NIC computes checksums.
    pub checksum_probes_out: u64,
    /// Checksum probes that were answered. From then on the connection leaves checksums to the NIC.
    pub checksums_proven: u64,
    /// Checksum probes sent again after a loss.
    pub checksums_doubted: u64,
    /// Connections that went back to computing checksums after a timeout, although the NIC had
    /// proved to compute them.
    pub checksums_given_up: u64,
    /// SYNs answered with a cookie because the backlog was full.
    pub cookies_out: u64,
    /// Connections established by a cookie.
    pub cookies_in: u64,
    /// Paths whose MTU an ICMP message has lowered.
    pub narrowed: u64,
    /// Connections whose next hop has changed.
    pub rerouted: u64,
    /// Connections opened again, mostly from another port, because the answer to their SYN came to
    /// another engine.
    pub opened_anew: u64,
    /// ICMP messages ignored: forged, or about packets that the kernel sent.
    pub icmp_ignored: u64,
    /// RSTs sent in answer to segments of no flow.
    pub resets_out: u64,
    /// RSTs withheld by the rate limit.
    pub resets_withheld: u64,
    /// Frames that are neither IPv4 nor IPv6, or are too short.
    pub drop_not_ip: u64,
    /// Frames with a multicast or broadcast address, in Ethernet or IP.
    pub drop_not_unicast: u64,
    /// Frames for another station's Ethernet address.
    pub drop_other_station: u64,
    /// Frames with a VLAN tag, although the interface belongs to no VLAN.
    pub drop_vlan: u64,
    /// Segments of no flow whose source address is impossible: one of this host, loopback,
    /// broadcast, multicast or reserved.
    pub drop_bad_source: u64,
    /// Source-routed packets (RFC 791, RFC 8200 §4.4).
    pub drop_source_route: u64,
    /// Packets with malformed IPv4 options.
    pub drop_bad_ip_option: u64,
    /// Packets with IPv6 extension headers that cannot be skipped: too many, out of place, or with
    /// an option that must not be skipped.
    pub drop_bad_extension: u64,
    /// Packets with malformed IP headers, or whose length contradicts the frame's.
    pub drop_bad_ip: u64,
    /// Fragments of IP packets.
    pub drop_fragment: u64,
    /// Packets with a wrong IPv4 header checksum or TCP checksum.
    pub drop_bad_checksum: u64,
    /// Segments whose TCP checksum the sender's kernel has left to a device, as on a virtual link
    /// (`ethtool -K DEV tx off` at the sender).
    pub drop_partial_checksum: u64,
    /// Segments without a TCP checksum in packets larger than the MTU, which a device should have
    /// cut (`tx off tso off` at the sender, or `gro off` here).
    pub drop_super_packet: u64,
    /// IP packets of protocols other than TCP.
    pub drop_not_tcp: u64,
    /// Segments with malformed TCP headers.
    pub drop_bad_tcp: u64,
    /// Segments of no flow and no listener. They are answered with a RST unless they are RSTs.
    pub drop_no_flow: u64,
    /// SYNs to a listener, and ACKs of its cookies, dropped because too many connections wait to be
    /// polled.
    pub drop_backlog_full: u64,
    /// SYNs dropped because the connection table is full.
    pub drop_table_full: u64,
    /// Segments beyond the announced window.
    pub drop_beyond_window: u64,
    /// Out-of-order segments dropped for lack of memory: too many pieces on one connection, or too
    /// many bytes on all of them.
    pub drop_reassembly_full: u64,
    /// Segments without a timestamp on connections that use timestamps (RFC 7323 §3.2).
    pub drop_no_timestamp: u64,
    /// Segments with new bytes and an outdated timestamp (PAWS, RFC 7323 §5).
    pub drop_old_timestamp: u64,
    /// Segments that echo a timestamp that was never sent, or one older by minutes than the latest
    /// echo.
    pub drop_false_echo: u64,
    /// RSTs to segments of no flow, and SYN cookies, not sent for lack of a TX frame.
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

// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Steers the RNIC's TCP flows into AF_XDP sockets and leaves everything else to the kernel.
 *
 * A frame is ours only when every header up to and including TCP's is whole and plausible and its
 * (destination address, destination port) is in xwarp_flows. When in doubt it passes: the kernel
 * knows what to answer. Configuration lives in maps, so `ip link set DEV xdp obj` can load this.
 *
 * With RX_VLAN_TAG the program can be loaded for one device only, and asks its driver for the tags
 * that it has taken off. With RX_METADATA as well, it writes in front of each frame of ours what
 * the driver reports of its arrival.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FLOWS 65536
#define MAX_QUEUES 64
#define BOARD_WORDS 128
#define MAX_VLAN_TAGS 2
#define MAX_EXTENSIONS 8
#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET_MASK 0x1fff
#define IPV6_OFFSET_AND_MORE 0xfff9 /* without the two bits that are reserved */
#define VLAN_IDENTIFIER 0x0fff

/* What became of a frame, and the key of its counter; verdicts.rs has the same list. */
enum verdict {
	REDIRECTED,   /* also "nothing against it so far" while parsing */
	NO_SOCKET,    /* our flow, but its process has gone: no socket in the slot of its first queue */
	NOT_OUR_FLOW, /* TCP of a flow that is not xwarp's */
	NOT_TCP,
	NOT_IP,
	FRAGMENT,
	TRUNCATED,    /* the frame ends before a header or before the IP packet does */
	MALFORMED,    /* a header contradicts itself or the one before it */
	EXTENSIONS,   /* IPv6 headers only the kernel handles: too many, or a route to follow */
	GROUP_MAC,    /* TCP is unicast only (RFC 9293 section 3.9.2.3) */
	VLAN,         /* the interface is in none: those that are on top of it have their own */
	UNSERVED,     /* our flow, whose process serves other queues than this one: dropped */
	VERDICTS,
};

/* IPv4 addresses are stored v4-mapped, ::ffff:a.b.c.d. All fields as on the wire. */
struct flow {
	__be32 addr[4];
	__be16 port;
	__u16 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_FLOWS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct flow);
	__type(value, __u32); /* the first queue that its process serves */
} xwarp_flows SEC(".maps");

/*
 * The IPv4 flows of a port. ports.rs keeps the entry in step with xwarp_flows, so that most
 * segments need no hash. If the port has one flow, `addr` is its address. If `addr` is 0, or there
 * are several flows, xwarp_flows decides.
 */
struct port {
	__be32 addr;
	__u16 first; /* queue, as in xwarp_flows */
	__u16 flows;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32); /* in host byte order */
	__type(value, struct port);
} xwarp_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32); /* receive queue */
	__type(value, __u32);
} xwarp_xsks SEC(".maps");

/* Frames of one queue by verdict. */
struct verdicts {
	__u64 frames[VERDICTS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_QUEUES + 1);
	__type(key, __u32); /* receive queue; the last entry is for all that have no slot */
	__type(value, struct verdicts);
} xwarp_verdicts SEC(".maps");

/* The state that the engine of a queue has shown last; board.rs says what the words are. */
struct board {
	__u64 words[BOARD_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32); /* receive queue */
	__type(value, struct board);
} xwarp_board SEC(".maps");

/* The part of the frame that is not parsed yet. */
struct rest {
	void *start;
	void *next;
	void *end;    /* of what is in reach: a large frame goes on in further buffers */
	__u32 bytes; /* of the whole frame, from `start` on */
	__u32 ip_left; /* bytes of the IP packet from `next` on, as its length field has it */
};

/* The first 8 bytes of an IPv6 extension header. */
struct extension {
	__u8 next_header;
	__u8 length;
	union {
		struct {
			__u8 type;
			__u8 segments_left;
		} routing;
		__be16 fragment; /* offset, flags */
		__u8 options[2];
	};
	__u8 data[4];
};

/* Steps over `size` bytes and returns them, or NULL when the frame has fewer. */
static __always_inline void *take(struct rest *rest, __u32 size)
{
	void *header = rest->next;

	if (header + size > rest->end)
		return NULL;
	rest->next = header + size;
	return header;
}

/* Bytes of the frame from `next` on, in reach or not. */
static __always_inline __u32 left(const struct rest *rest)
{
	__u32 parsed = rest->next - rest->start;

	barrier_var(parsed); /* or the compiler adds the length to a pointer, which the verifier refuses */
	return rest->bytes - parsed;
}

/*
 * A tag with identifier 0 has a priority only (IEEE 802.1Q section 6.9): the kernel takes such a
 * frame for one without.
 */
static __always_inline enum verdict skip_vlan_tags(struct rest *rest, __be16 *ethertype)
{
	struct {
		__be16 tci;
		__be16 ethertype;
	} *tag;

#pragma unroll
	for (int i = 0; i < MAX_VLAN_TAGS; i++) {
		if (*ethertype != bpf_htons(ETH_P_8021Q) && *ethertype != bpf_htons(ETH_P_8021AD))
			break;
		tag = take(rest, sizeof(*tag));
		if (!tag)
			return TRUNCATED;
		if (tag->tci & bpf_htons(VLAN_IDENTIFIER))
			return VLAN;
		*ethertype = tag->ethertype;
	}
	return REDIRECTED;
}

static __always_inline enum verdict parse_ipv4(struct rest *rest, struct flow *flow)
{
	__u32 frame_left = left(rest);
	struct iphdr *ip = take(rest, sizeof(*ip));
	__u32 header_len, total_len;

	if (!ip)
		return TRUNCATED;
	header_len = ip->ihl * 4;
	total_len = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || header_len < sizeof(*ip) || total_len < header_len)
		return MALFORMED;
	if (total_len > frame_left || !take(rest, header_len - sizeof(*ip)))
		return TRUNCATED;
	if (ip->frag_off & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_OFFSET_MASK))
		return FRAGMENT;
	if (ip->protocol != IPPROTO_TCP)
		return NOT_TCP;
	flow->addr[2] = bpf_htonl(0xffff);
	flow->addr[3] = ip->daddr;
	rest->ip_left = total_len - header_len;
	return REDIRECTED;
}

/*
 * True for a routing header that is of no more effect (RFC 8200 section 4.4). Those of types 2 to 4
 * (mobile hosts, RPL, segment routing) are for a kernel that is set up for them.
 */
static __always_inline int has_arrived(const struct extension *ext)
{
	return !ext->routing.segments_left && (ext->routing.type < 2 || ext->routing.type > 4);
}

/*
 * Steps over one extension header of the given kind (RFC 8200 section 4). Options are ignored: they
 * are for the receiver of the frame, and tcp/src/wire/extensions.rs does it.
 */
static __always_inline enum verdict skip_extension(struct rest *rest, __u8 *kind)
{
	struct extension *ext = take(rest, sizeof(*ext));
	__u32 len;

	if (!ext)
		return TRUNCATED;
	len = *kind == IPPROTO_FRAGMENT ? sizeof(*ext) : (ext->length + 1) * 8;
	if (len > rest->ip_left)
		return MALFORMED;
	/* A fragment that is the whole packet is none (RFC 6946 section 4). */
	if (*kind == IPPROTO_FRAGMENT && ext->fragment & bpf_htons(IPV6_OFFSET_AND_MORE))
		return FRAGMENT;
	if (*kind == IPPROTO_ROUTING && !has_arrived(ext))
		return EXTENSIONS;
	if (!take(rest, len - sizeof(*ext)))
		return TRUNCATED;
	rest->ip_left -= len;
	*kind = ext->next_header;
	return REDIRECTED;
}

/*
 * Steps over the extension headers between the IPv6 and the TCP header, as
 * tcp/src/wire/extensions.rs does. An authentication header is as ESP is: only the kernel can check
 * whether what is behind it is authentic.
 */
static __always_inline enum verdict skip_extensions(struct rest *rest, __u8 kind)
{
	enum verdict verdict;

	for (int i = 0; i <= MAX_EXTENSIONS; i++) {
		if (kind == IPPROTO_TCP)
			return REDIRECTED;
		if (kind == IPPROTO_HOPOPTS && i > 0)
			return MALFORMED; /* allowed in the first place only */
		if (kind != IPPROTO_HOPOPTS && kind != IPPROTO_ROUTING && kind != IPPROTO_DSTOPTS &&
		    kind != IPPROTO_FRAGMENT)
			return NOT_TCP;
		if (i == MAX_EXTENSIONS)
			break;
		verdict = skip_extension(rest, &kind);
		if (verdict)
			return verdict;
	}
	return EXTENSIONS;
}

static __always_inline enum verdict parse_ipv6(struct rest *rest, struct flow *flow)
{
	struct ipv6hdr *ip = take(rest, sizeof(*ip));

	if (!ip)
		return TRUNCATED;
	if (ip->version != 6)
		return MALFORMED;
	rest->ip_left = bpf_ntohs(ip->payload_len);
	if (rest->ip_left > left(rest))
		return TRUNCATED;
	__builtin_memcpy(flow->addr, &ip->daddr, sizeof(flow->addr));
	/* Such an address must not be on the wire, and it would match a flow of IPv4. */
	if (!flow->addr[0] && !flow->addr[1] && flow->addr[2] == bpf_htonl(0xffff))
		return NOT_OUR_FLOW;
	return skip_extensions(rest, ip->nexthdr);
}

static __always_inline enum verdict parse_tcp(struct rest *rest, struct flow *flow)
{
	struct tcphdr *tcp;

	if (rest->ip_left < sizeof(*tcp))
		return MALFORMED;
	tcp = take(rest, sizeof(*tcp));
	if (!tcp)
		return TRUNCATED;
	if (tcp->doff * 4 < sizeof(*tcp) || tcp->doff * 4 > rest->ip_left)
		return MALFORMED;
	flow->port = tcp->dest;
	return REDIRECTED;
}

/* The kernel keeps 15 characters of a name. */
#ifdef RX_METADATA
#define STEER steer_meta
#define STEER_FRAGS steer_meta_frg
#elif defined(RX_VLAN_TAG)
#define STEER steer_bound
#define STEER_FRAGS steer_bound_frg
#else
#define STEER steer
#define STEER_FRAGS steer_frags
#endif

#ifdef RX_VLAN_TAG

/*
 * The tag that the driver has taken off the frame: an error, also where it has taken off none, or
 * does not report it.
 */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
					__u16 *vlan_tci) __ksym;

static __always_inline int is_in_stripped_vlan(struct xdp_md *ctx)
{
	__be16 protocol = 0;
	__u16 tci = 0;

	return !bpf_xdp_metadata_rx_vlan_tag(ctx, &protocol, &tci) && tci & VLAN_IDENTIFIER;
}
#else
static __always_inline int is_in_stripped_vlan(struct xdp_md *ctx)
{
	return 0;
}
#endif

#ifdef RX_METADATA
/*
 * The driver's report of a frame's arrival, in front of the frame; metadata.rs has the same
 * layout.
 */
struct rx_metadata {
	__u32 mark;
	__u32 hash_type; /* what the hash is of, enum xdp_rss_hash_type; 0: of nothing that is known */
	__u32 hash;
	__u32 zero;
	__u64 time; /* nanoseconds of the NIC's clock; 0 if it was not reported */
};

#define RX_METADATA_MARK 0x6d657461

/* The kernel's, which no header of uapi has; the names of its values do not matter. */
enum xdp_rss_hash_type {
	HASH_OF_NOTHING,
};

extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
				    enum xdp_rss_hash_type *rss_type) __ksym;
extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;

/*
 * Makes the pointers into the frame invalid, so it is called when the frame is parsed. A driver
 * without room for metadata gets none.
 */
static __always_inline void describe(struct xdp_md *ctx)
{
	enum xdp_rss_hash_type hash_type = HASH_OF_NOTHING;
	struct rx_metadata *metadata;
	__u32 hash = 0;
	__u64 time = 0;

	if (bpf_xdp_metadata_rx_hash(ctx, &hash, &hash_type))
		hash_type = HASH_OF_NOTHING;
	if (bpf_xdp_metadata_rx_timestamp(ctx, &time))
		time = 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*metadata)))
		return;
	metadata = (void *)(long)ctx->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)ctx->data)
		return;
	*metadata = (struct rx_metadata) {
		.mark = RX_METADATA_MARK,
		.hash_type = hash_type,
		.hash = hash,
		.time = time,
	};
}
#else
static __always_inline void describe(struct xdp_md *ctx)
{
}
#endif

/* Fills in the flow of a TCP segment, or says why the frame is none. */
static __always_inline enum verdict parse(struct rest *rest, struct flow *flow)
{
	struct ethhdr *eth = take(rest, sizeof(*eth));
	enum verdict verdict;
	__be16 ethertype;

	if (!eth)
		return TRUNCATED;
	ethertype = eth->h_proto;
	verdict = skip_vlan_tags(rest, &ethertype);
	if (verdict)
		return verdict;
	if (ethertype == bpf_htons(ETH_P_IP))
		verdict = parse_ipv4(rest, flow);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		verdict = parse_ipv6(rest, flow);
	else
		return NOT_IP;
	if (verdict)
		return verdict;
	verdict = parse_tcp(rest, flow);
	if (verdict)
		return verdict;
	return eth->h_dest[0] & 1 ? GROUP_MAC : REDIRECTED;
}

static __always_inline void count(__u32 queue, enum verdict verdict)
{
	__u32 row = queue < MAX_QUEUES ? queue : MAX_QUEUES;
	struct verdicts *counters = bpf_map_lookup_elem(&xwarp_verdicts, &row);

	if (counters && verdict < VERDICTS)
		counters->frames[verdict] += 1;
}

/* Addresses of IPv6 that look so do not get here. */
static __always_inline int is_ipv4(const struct flow *flow)
{
	return !flow->addr[0] && !flow->addr[1] && flow->addr[2] == bpf_htonl(0xffff);
}

/* The first queue of the process that has the flow, or -1 if it is not ours. */
static __always_inline int owner(const struct flow *flow)
{
	if (is_ipv4(flow)) {
		__u32 key = bpf_ntohs(flow->port);
		const struct port *port = bpf_map_lookup_elem(&xwarp_ports, &key);

		if (!port || !port->flows)
			return -1;
		if (port->addr == flow->addr[3])
			return port->first;
		if (port->addr && port->flows == 1)
			return -1;
	}
	const __u32 *first = bpf_map_lookup_elem(&xwarp_flows, flow);

	return first ? (int)*first : -1;
}

/*
 * What becomes of a segment of a flow of ours. If its queue has no socket, but the flow's process
 * has one at another queue, the segment is dropped and counted: the kernel, which does not know the
 * connection, would reset it, and TCP sends the segment again. If neither queue has a socket the
 * process may have ended, and the segment passes (decision record bpf/0002).
 */
static __always_inline enum verdict redirect(struct xdp_md *ctx, __u32 first, int *action)
{
	*action = bpf_redirect_map(&xwarp_xsks, ctx->rx_queue_index, XDP_PASS);
	if (*action == XDP_REDIRECT) {
		describe(ctx);
		return REDIRECTED;
	}
	if (!bpf_map_lookup_elem(&xwarp_xsks, &first))
		return NO_SOCKET;
	*action = XDP_DROP;
	return UNSERVED;
}

static __always_inline int steer_frame(struct xdp_md *ctx, __u32 bytes)
{
	struct rest rest = {
		.start = (void *)(long)ctx->data,
		.next = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
		.bytes = bytes,
	};
	struct flow flow = {};
	enum verdict verdict = parse(&rest, &flow);
	int action = XDP_PASS;
	int first = -1;

	if (verdict == REDIRECTED) {
		first = owner(&flow);
		verdict = first < 0 ? NOT_OUR_FLOW : REDIRECTED;
	}
	if (first >= 0 && is_in_stripped_vlan(ctx))
		verdict = VLAN;
	else if (first >= 0)
		verdict = redirect(ctx, first, &action);
	/*
	 * Nothing here reads the board, but `xwarp stat` finds it as a map of the attached program.
	 */
	asm volatile("" : : "r"(&xwarp_board));
	count(ctx->rx_queue_index, verdict);
	return action;
}

/* For frames of one buffer: native mode takes it up to an MTU of about 3500. */
SEC("xdp")
int STEER(struct xdp_md *ctx)
{
	return steer_frame(ctx, ctx->data_end - ctx->data);
}

/* For frames of any size, from Linux 5.18 on. */
SEC("xdp.frags")
int STEER_FRAGS(struct xdp_md *ctx)
{
	return steer_frame(ctx, bpf_xdp_get_buff_len(ctx));
}

/* What the kernel asks for; the program calls no helper that is reserved for GPL. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";

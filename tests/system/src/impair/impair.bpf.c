// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * For tests: loses TCP segments, marks them, or diverts them to a delay line, by a seeded rule. All else passes, so that neighbours are found.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* What became of a segment, and the key of its counter; impairment.rs has the same list. */
enum fate { PASSED, LOST, DIVERTED, MARKED, FATES };

/*
 * impairment.rs writes it. The segment with which the countdown comes to 0 is lost; a draw below `lost` loses any other, one below `diverted`
 * diverts it to the delay line, one below `marked` marks it if it may be marked.
 */
struct rule {
	__u64 state; /* of the generator, never 0 */
	__u32 lost;
	__u32 diverted;
	__u32 countdown; /* 0: it has ended */
	__u32 marked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} delay_line SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FATES);
	__type(key, __u32);
	__type(value, __u64);
} fates SEC(".maps");

static int is_tcp(const struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = frame;

	if ((void *)(ethernet + 1) > end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(ethernet + 1);
		return (void *)(ip + 1) <= end && ip->protocol == IPPROTO_TCP;
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(ethernet + 1);
		return (void *)(ip + 1) <= end && ip->nexthdr == IPPROTO_TCP;
	}
	return 0;
}

/* Marsaglia's xorshift64*. Frames of one interface come one after the other, so nobody else has the state meanwhile. */
static __u32 draw(struct rule *rule)
{
	__u64 state = rule->state;

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	rule->state = state;
	return (state * 0x2545f4914f6cdd1dULL) >> 32;
}

static enum fate decide(struct rule *rule)
{
	__u32 drawn = draw(rule);

	if (rule->countdown && --rule->countdown == 0)
		return LOST;
	if (drawn < rule->lost)
		return LOST;
	if (drawn < rule->diverted)
		return DIVERTED;
	return drawn < rule->marked ? MARKED : PASSED;
}

/* Congestion experienced (RFC 3168 section 5), where the sender has said that it understands that; 0 where it has not. */
static int mark(const struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *ethernet = frame;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct ipv6hdr *ip6 = (void *)(ethernet + 1);
	__u32 sum, added;

	if ((void *)(ethernet + 1) > end)
		return 0;
	if (ethernet->h_proto == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end) {
		if (!(ip->tos & 3))
			return 0;
		/* RFC 1624: what is added to the header is taken off its checksum. */
		added = 3 - (ip->tos & 3);
		sum = (~bpf_ntohs(ip->check) & 0xffff) + added;
		ip->tos |= 3;
		ip->check = bpf_htons(~((sum & 0xffff) + (sum >> 16)) & 0xffff);
		return 1;
	}
	if (ethernet->h_proto == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end) {
		if (!(ip6->flow_lbl[0] & 0x30))
			return 0;
		ip6->flow_lbl[0] |= 0x30;
		return 1;
	}
	return 0;
}

SEC("xdp")
int impair(struct xdp_md *ctx)
{
	__u32 zero = 0, fate;
	__u64 *count;
	struct rule *rule = bpf_map_lookup_elem(&rules, &zero);

	if (!rule || !is_tcp(ctx))
		return XDP_PASS;
	fate = decide(rule);
	if (fate == MARKED && !mark(ctx))
		fate = PASSED;
	count = bpf_map_lookup_elem(&fates, &fate);
	if (count)
		__sync_fetch_and_add(count, 1);
	switch (fate) {
	case LOST:
		return XDP_DROP;
	case DIVERTED:
		return bpf_redirect_map(&delay_line, 0, XDP_PASS);
	default:
		return XDP_PASS;
	}
}

char _license[] SEC("license") = "Dual MIT/GPL";

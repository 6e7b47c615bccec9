/* Work requests and their completions. */
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* What a line asks for, `times` times: each with the next number and the bytes that follow. */
struct work {
	struct connection *connection;
	struct ibv_sge piece;
	uint64_t id;
	uint64_t times;
};

/* False after an error line. */
static bool read_work(const struct line *line, struct work *work)
{
	struct region *region;

	work->connection = find_connection(line, "name");
	region = work->connection ? find_region(line) : NULL;
	if (!region)
		return false;
	work->id = number(line, "id", 0);
	work->times = number(line, "times", 1);
	if (!work->times)
		return error("times must be 1 or more"), false;
	/* Not checked against the region: that is what the device is to be tried with. */
	work->piece = (struct ibv_sge){
		.addr = (uintptr_t)region->bytes + number(line, "offset", 0),
		.length = (uint32_t)number(line, "length", 0),
		.lkey = region->mr->lkey,
	};
	return true;
}

int do_recv(const struct line *line)
{
	struct work work;
	struct ibv_recv_wr *refused;

	if (!read_work(line, &work))
		return -1;
	for (uint64_t i = 0; i < work.times; i++, work.piece.addr += work.piece.length) {
		struct ibv_recv_wr request = {
			.wr_id = work.id + i,
			.sg_list = &work.piece,
			/* libsiw refuses a receive without any, so that of no bytes has one, too. */
			.num_sge = 1,
		};

		errno = ibv_post_recv(work.connection->id->qp, &request, &refused);
		if (errno)
			return failed("ibv_post_recv");
	}
	return ok();
}

static unsigned int read_flags(const struct line *line)
{
	const char *flags = text(line, "flags", "");

	return (has_word(flags, "solicited") ? IBV_SEND_SOLICITED : 0) | (has_word(flags, "fence") ? IBV_SEND_FENCE : 0) |
	       (has_word(flags, "unsignaled") ? 0 : IBV_SEND_SIGNALED);
}

/* The request number i of a line. */
static void fill_request(const struct line *line, enum ibv_wr_opcode opcode, const struct work *work, uint64_t i, struct ibv_sge *piece,
			 struct ibv_send_wr *request)
{
	*piece = work->piece;
	piece->addr += i * piece->length;
	*request = (struct ibv_send_wr){
		.wr_id = work->id + i,
		.sg_list = piece,
		.num_sge = piece->length ? 1 : 0,
		.opcode = opcode,
		.send_flags = read_flags(line),
		.next = i + 1 < work->times ? request + 1 : NULL,
	};
	if (opcode == IBV_WR_SEND_WITH_INV) {
		request->invalidate_rkey = (uint32_t)number(line, "invalidate", 0);
		/* Where libsiw looks for it. */
		request->wr.rdma.rkey = request->invalidate_rkey;
	}
	if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ) {
		request->wr.rdma.rkey = (uint32_t)number(line, "stag", 0);
		request->wr.rdma.remote_addr = number(line, "to", 0) + i * piece->length;
	}
}

/*
 * Posts all of it as one list: siw never completes what is posted after it has flushed its queue, so requests that may be refused by the
 * other side have to be there before the first of them leaves.
 */
static int post(const struct line *line, enum ibv_wr_opcode opcode)
{
	struct work work;
	struct ibv_send_wr *refused, *requests;
	struct ibv_sge *pieces;
	int failure;

	if (!read_work(line, &work))
		return -1;
	requests = calloc(work.times, sizeof(*requests));
	pieces = calloc(work.times, sizeof(*pieces));
	if (!requests || !pieces) {
		free(requests);
		free(pieces);
		return error("no memory for %llu requests", (unsigned long long)work.times);
	}
	for (uint64_t i = 0; i < work.times; i++)
		fill_request(line, opcode, &work, i, &pieces[i], &requests[i]);
	failure = ibv_post_send(work.connection->id->qp, requests, &refused);
	free(requests);
	free(pieces);
	errno = failure;
	return failure ? failed("ibv_post_send") : ok();
}

int do_send(const struct line *line)
{
	return post(line, text(line, "invalidate", NULL) ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND);
}

int do_write(const struct line *line)
{
	return post(line, IBV_WR_RDMA_WRITE);
}

int do_read(const struct line *line)
{
	return post(line, IBV_WR_RDMA_READ);
}

static const char *opcode_name(const struct ibv_wc *done)
{
	/* Of a request that failed, only number, status and queue pair are known. */
	if (done->status != IBV_WC_SUCCESS)
		return "-";
	switch (done->opcode) {
	case IBV_WC_SEND: return "send";
	case IBV_WC_RDMA_WRITE: return "write";
	case IBV_WC_RDMA_READ: return "read";
	case IBV_WC_RECV: return "recv";
	default: return "other";
	}
}

static void print_completion(const struct ibv_wc *done)
{
	printf("completion id=%llu status=%s opcode=%s length=%u\n", (unsigned long long)done->wr_id,
	       one_word(ibv_wc_status_str(done->status)), opcode_name(done),
	       done->status == IBV_WC_SUCCESS ? done->byte_len : 0);
}

/* Milliseconds from an arbitrary moment. */
static int64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Sleeps until the completion queue, which is armed, says that it has something; 0 when the time is over. */
static int sleep_until_woken(struct connection *connection, int64_t deadline)
{
	struct ibv_cq *cq;
	void *context;
	int64_t left = deadline - now();

	if (!wait_readable(connection->wakes->fd, left > 0 ? (int)left : 0))
		return 0;
	if (ibv_get_cq_event(connection->wakes, &cq, &context))
		return 0;
	ibv_ack_cq_events(cq, 1);
	return 1;
}

int do_poll(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");
	uint64_t count = number(line, "count", 1), got = 0;
	uint64_t least = number(line, "least", count);
	int64_t deadline = now() + (int64_t)number(line, "timeout", TIMEOUT);
	bool armed = false;

	if (!connection)
		return -1;
	while (got < count) {
		struct ibv_wc done;
		int found = ibv_poll_cq(connection->cq, 1, &done);

		if (found < 0)
			return failed("ibv_poll_cq");
		if (found) {
			print_completion(&done);
			got++;
		} else if (!armed) {
			/* Looked at once more after this: what came before it wakes nobody. */
			ibv_req_notify_cq(connection->cq, 0);
			armed = true;
		} else if (sleep_until_woken(connection, deadline)) {
			armed = false;
		} else if (got >= least) {
			break;
		} else {
			return error("%llu of %llu completions", (unsigned long long)got, (unsigned long long)count);
		}
	}
	return ok();
}

int do_arm(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");

	if (!connection)
		return -1;
	errno = ibv_req_notify_cq(connection->cq, number(line, "solicited", 0) != 0);
	return errno ? failed("ibv_req_notify_cq") : ok();
}

/* Whether an armed queue has woken its sleeper within the time. */
int do_woken(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");

	if (!connection)
		return -1;
	return gives("woken=%d", sleep_until_woken(connection, now() + (int64_t)number(line, "timeout", TIMEOUT)));
}

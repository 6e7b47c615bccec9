/* The connection manager: who listens, who asks, who is connected. Each has an event channel of its own. */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct connection *connections;

struct connection *find_connection(const struct line *line, const char *key)
{
	const char *name = text(line, key, "");

	for (struct connection *connection = connections; connection; connection = connection->next)
		if (!strcmp(connection->name, name))
			return connection;
	error("there is no connection %s", name);
	return NULL;
}

/* Frees whatever of it there is. */
static void end(struct connection *connection)
{
	struct connection **link = &connections;

	while (*link && *link != connection)
		link = &(*link)->next;
	if (*link)
		*link = connection->next;
	if (connection->id && connection->id->qp)
		rdma_destroy_qp(connection->id);
	if (connection->id)
		rdma_destroy_id(connection->id);
	if (connection->cq)
		ibv_destroy_cq(connection->cq);
	if (connection->wakes)
		ibv_destroy_comp_channel(connection->wakes);
	if (connection->events)
		rdma_destroy_event_channel(connection->events);
	free(connection);
}

/* The error line first, as ending may change errno. */
static int give_up(struct connection *connection, const char *call)
{
	int result = failed(call);

	end(connection);
	return result;
}

/* A new one without an identifier, not yet among the others; NULL after an error line. */
static struct connection *begin(const struct line *line)
{
	struct connection *connection = calloc(1, sizeof *connection);

	if (connection)
		connection->events = rdma_create_event_channel();
	if (!connection || !connection->events) {
		failed("rdma_create_event_channel");
		free(connection);
		return NULL;
	}
	snprintf(connection->name, sizeof connection->name, "%s", text(line, "name", ""));
	return connection;
}

static void keep(struct connection *connection)
{
	connection->next = connections;
	connections = connection;
}

static int make_queue_pair(struct connection *connection, const struct line *line)
{
	uint32_t depth = (uint32_t)number(line, "depth", 256);
	struct ibv_qp_init_attr wanted = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	connection->wakes = ibv_create_comp_channel(device.context);
	if (!connection->wakes)
		return -1;
	connection->cq = ibv_create_cq(device.context, (int)(2 * depth), NULL, connection->wakes, 0);
	if (!connection->cq)
		return -1;
	wanted.send_cq = connection->cq;
	wanted.recv_cq = connection->cq;
	return rdma_create_qp(connection->id, device.pd, &wanted);
}

/* The address that a line names; false after an error line. The caller frees it. */
static bool find_address(const struct line *line, struct addrinfo **found)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM };
	int wrong = getaddrinfo(text(line, "address", ""), text(line, "port", ""), &hints, found);

	if (wrong)
		error("address: %s", gai_strerror(wrong));
	return !wrong;
}

int do_listen(const struct line *line)
{
	struct connection *connection = begin(line);
	struct addrinfo *address;

	if (!connection)
		return -1;
	if (!find_address(line, &address)) {
		end(connection);
		return -1;
	}
	if (rdma_create_id(connection->events, &connection->id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(connection->id, address->ai_addr) ||
	    rdma_listen(connection->id, (int)number(line, "backlog", 16))) {
		freeaddrinfo(address);
		return give_up(connection, "listening");
	}
	freeaddrinfo(address);
	keep(connection);
	return gives("port=%u", ntohs(rdma_get_src_port(connection->id)));
}

/* The next event, to be acknowledged; NULL after an error line. */
static struct rdma_cm_event *next_event(struct connection *connection, const struct line *line)
{
	struct rdma_cm_event *event;

	if (!wait_readable(connection->events->fd, (int)number(line, "timeout", TIMEOUT))) {
		error("no event");
		return NULL;
	}
	if (rdma_get_cm_event(connection->events, &event)) {
		failed("rdma_get_cm_event");
		return NULL;
	}
	return event;
}

/* RDMA_CM_EVENT_ESTABLISHED and so on, without the part that all have. */
static void print_event(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;

	printf("ok event=%s status=%d ird=%u ord=%u data=", rdma_event_str(event->event) + strlen("RDMA_CM_EVENT_"),
	       event->status, param->responder_resources, param->initiator_depth);
	print_hex(param->private_data, param->private_data ? param->private_data_len : 0);
	putchar('\n');
}

int do_event(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");
	struct rdma_cm_event *event = connection ? next_event(connection, line) : NULL;

	if (!event)
		return -1;
	print_event(event);
	return rdma_ack_cm_event(event);
}

/* Waits for a request at a listener, and makes it a connection that can be accepted or rejected. */
int do_take(const struct line *line)
{
	struct connection *listener = find_connection(line, "listener"), *connection;
	struct rdma_cm_event *event = listener ? next_event(listener, line) : NULL;
	struct rdma_cm_event copy;
	uint8_t data[256];

	if (!event)
		return -1;
	copy = *event;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && event->param.conn.private_data) {
		memcpy(data, event->param.conn.private_data, event->param.conn.private_data_len);
		copy.param.conn.private_data = data;
	}
	/* An identifier can change its channel only when nothing is unacknowledged. */
	rdma_ack_cm_event(event);
	if (copy.event != RDMA_CM_EVENT_CONNECT_REQUEST)
		return error("the listener has %s", rdma_event_str(copy.event));
	connection = begin(line);
	if (!connection)
		return -1;
	connection->id = copy.id;
	if (rdma_migrate_id(connection->id, connection->events))
		return give_up(connection, "rdma_migrate_id");
	if (make_queue_pair(connection, line))
		return give_up(connection, "making a queue pair");
	keep(connection);
	print_event(&copy);
	return 0;
}

/* Private data and depths for a request or a reply; false after an error line. */
static bool read_parameters(const struct line *line, struct rdma_conn_param *param, uint8_t data[256])
{
	int length = read_hex(text(line, "data", "-"), data, 255);

	if (length < 0) {
		error("data= is not hexadecimal, or longer than 255 bytes");
		return false;
	}
	*param = (struct rdma_conn_param){
		.private_data = length ? data : NULL,
		.private_data_len = (uint8_t)length,
		.responder_resources = (uint8_t)number(line, "ird", 16),
		.initiator_depth = (uint8_t)number(line, "ord", 16),
	};
	return true;
}

/* What ends in a request or a reply. How that goes on is an event. */
static int call(const struct line *line, int (*function)(struct rdma_cm_id *, struct rdma_conn_param *), const char *name)
{
	struct connection *connection = find_connection(line, "name");
	struct rdma_conn_param param;
	uint8_t data[256];

	if (!connection || !read_parameters(line, &param, data))
		return -1;
	return function(connection->id, &param) ? failed(name) : ok();
}

int do_accept(const struct line *line)
{
	return call(line, rdma_accept, "rdma_accept");
}

int do_connect(const struct line *line)
{
	return call(line, rdma_connect, "rdma_connect");
}

int do_reject(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");
	struct rdma_conn_param param;
	uint8_t data[256];

	if (!connection || !read_parameters(line, &param, data))
		return -1;
	if (rdma_reject(connection->id, param.private_data, param.private_data_len))
		return failed("rdma_reject");
	end(connection);
	return ok();
}

/* Waits for this event and no other; false after an error line. */
static bool expect(struct connection *connection, const struct line *line, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(connection, line);
	bool right;

	if (!event)
		return false;
	right = event->event == wanted;
	if (!right)
		error("%s instead of %s, status %d", rdma_event_str(event->event), rdma_event_str(wanted), event->status);
	rdma_ack_cm_event(event);
	return right;
}

/*
 * How long the kernel may look for a neighbour, in milliseconds. It misses a neighbour that answers too soon, and looks again only
 * when this time is over.
 */
#define RESOLUTION 500

/* Everything that an initiator does before its request, so that receives can be posted first. */
int do_resolve(const struct line *line)
{
	struct connection *connection = begin(line);
	struct addrinfo *address;
	int wrong;

	if (!connection)
		return -1;
	if (!find_address(line, &address)) {
		end(connection);
		return -1;
	}
	wrong = rdma_create_id(connection->events, &connection->id, NULL, RDMA_PS_TCP) ||
		rdma_resolve_addr(connection->id, NULL, address->ai_addr, RESOLUTION);
	freeaddrinfo(address);
	if (wrong)
		return give_up(connection, "rdma_resolve_addr");
	if (!expect(connection, line, RDMA_CM_EVENT_ADDR_RESOLVED)) {
		end(connection);
		return -1;
	}
	if (rdma_resolve_route(connection->id, RESOLUTION))
		return give_up(connection, "rdma_resolve_route");
	if (!expect(connection, line, RDMA_CM_EVENT_ROUTE_RESOLVED)) {
		end(connection);
		return -1;
	}
	if (make_queue_pair(connection, line))
		return give_up(connection, "making a queue pair");
	keep(connection);
	return ok();
}

int do_disconnect(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");

	if (!connection)
		return -1;
	return rdma_disconnect(connection->id) ? failed("rdma_disconnect") : ok();
}

int do_close(const struct line *line)
{
	struct connection *connection = find_connection(line, "name");

	if (!connection)
		return -1;
	end(connection);
	return ok();
}

int do_state(const struct line *line)
{
	static const char *const names[] = { "reset", "init", "rtr", "rts", "sqd", "sqe", "err" };
	struct connection *connection = find_connection(line, "name");
	struct ibv_qp_init_attr initial;
	struct ibv_qp_attr now;

	if (!connection)
		return -1;
	if (!connection->id->qp)
		return error("%s has no queue pair", connection->name);
	errno = ibv_query_qp(connection->id->qp, &now, IBV_QP_STATE, &initial);
	if (errno)
		return failed("ibv_query_qp");
	if (now.qp_state >= sizeof names / sizeof *names)
		return error("state %d", now.qp_state);
	return gives("state=%s", names[now.qp_state]);
}

int do_async(const struct line *line)
{
	struct ibv_async_event event;
	const char *about = "-";

	if (!wait_readable(device.context->async_fd, (int)number(line, "timeout", TIMEOUT)))
		return error("no event");
	if (ibv_get_async_event(device.context, &event))
		return failed("ibv_get_async_event");
	for (struct connection *connection = connections; connection; connection = connection->next)
		if (event.event_type <= IBV_EVENT_PATH_MIG_ERR && connection->id->qp &&
		    connection->id->qp == event.element.qp)
			about = connection->name;
	gives("event=%s name=%s", one_word(ibv_event_type_str(event.event_type)), about);
	ibv_ack_async_event(&event);
	return 0;
}

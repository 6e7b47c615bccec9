/*
 * The other end of every interoperation test: a verbs program that does what the lines on its standard input say.
 *
 * One line in: a command and its parameters, `key=value` each. Any number of lines out, the last of them `ok`, with what the
 * command gives, or `error` and what went wrong. Nothing spins: whatever waits sleeps in poll(2), and has a time limit.
 */
#ifndef PEER_H
#define PEER_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

/* How long something may take unless `timeout=` says otherwise, in milliseconds. */
#define TIMEOUT 5000

/* A line of input, taken apart. */
struct line {
	char *key[24];
	char *value[24];
	int pairs;
};

/* The value of a parameter, or the default. The parameters that a command must have are in the table of commands. */
const char *text(const struct line *line, const char *key, const char *otherwise);
uint64_t number(const struct line *line, const char *key, uint64_t otherwise);
/* Whether a comma-separated list has this word. */
bool has_word(const char *list, const char *word);

/* The last line of an answer; all return what a command returns. */
int ok(void);
int gives(const char *format, ...) __attribute__((format(printf, 1, 2)));
int error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, for a call that set errno. */
int failed(const char *call);

/* Bytes as hexadecimal digits, `-` for none. */
void print_hex(const uint8_t *bytes, size_t length);
/* The reverse, into `bytes`: how many, or -1. */
int read_hex(const char *digits, uint8_t *bytes, size_t room);
/* Words of a message of libibverbs, as one. */
const char *one_word(const char *words);

/* Waits until there is something to read: 1, or 0 when the time is over. */
int wait_readable(int fd, int timeout);

/* The device, the protection domain that everything belongs to, and one that only regions with `foreign=1` belong to. */
struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_pd *other_pd;
};
extern struct device device;

/* Registered memory (memory.c). */
struct region {
	struct region *next;
	char name[32];
	uint8_t *bytes;
	uint64_t size;
	struct ibv_mr *mr;
};
/* The region of this name, or NULL after an error line. */
struct region *find_region(const struct line *line);

/* A connection with its queue pair, or a listener (connection.c). */
struct connection {
	struct connection *next;
	char name[32];
	struct rdma_cm_id *id;
	struct rdma_event_channel *events;
	struct ibv_comp_channel *wakes;
	struct ibv_cq *cq;
};
/* The connection of this name, or NULL after an error line. */
struct connection *find_connection(const struct line *line, const char *key);

int do_region(const struct line *line);
int do_dereg(const struct line *line);
int do_fill(const struct line *line);
int do_check(const struct line *line);
int do_put(const struct line *line);
int do_dump(const struct line *line);

int do_listen(const struct line *line);
int do_take(const struct line *line);
int do_accept(const struct line *line);
int do_reject(const struct line *line);
int do_resolve(const struct line *line);
int do_connect(const struct line *line);
int do_event(const struct line *line);
int do_disconnect(const struct line *line);
int do_close(const struct line *line);
int do_state(const struct line *line);
int do_async(const struct line *line);

int do_recv(const struct line *line);
int do_send(const struct line *line);
int do_write(const struct line *line);
int do_read(const struct line *line);
int do_poll(const struct line *line);
int do_arm(const struct line *line);
int do_woken(const struct line *line);

#endif

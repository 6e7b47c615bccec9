/* Reads commands, finds who does them, and answers. */
#include "peer.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct device device;

/* What there is, and the parameters that must be given. Brackets: those that may be. */
static const struct command {
	const char *name;
	int (*run)(const struct line *);
	const char *needs;
	const char *may;
} commands[] = {
	{ "region", do_region, "region size rights", "foreign" },
	{ "dereg", do_dereg, "region", "" },
	{ "fill", do_fill, "region offset length seed", "" },
	{ "check", do_check, "region offset length seed", "" },
	{ "put", do_put, "region offset data", "" },
	{ "dump", do_dump, "region offset length", "" },

	{ "listen", do_listen, "name address port", "backlog" },
	{ "take", do_take, "listener name", "timeout depth" },
	{ "accept", do_accept, "name", "data ird ord" },
	{ "reject", do_reject, "name", "data" },
	{ "resolve", do_resolve, "name address port", "timeout depth" },
	{ "connect", do_connect, "name", "data ird ord" },
	{ "event", do_event, "name", "timeout" },
	{ "disconnect", do_disconnect, "name", "" },
	{ "close", do_close, "name", "" },
	{ "state", do_state, "name", "" },
	{ "async", do_async, "", "timeout" },

	{ "recv", do_recv, "name id region offset length", "times" },
	{ "send", do_send, "name id region offset length", "times flags invalidate" },
	{ "write", do_write, "name id region offset length stag to", "times flags" },
	{ "read", do_read, "name id region offset length stag to", "times flags" },
	{ "poll", do_poll, "name count", "least timeout" },
	{ "arm", do_arm, "name", "solicited" },
	{ "woken", do_woken, "name", "timeout" },
};

const char *text(const struct line *line, const char *key, const char *otherwise)
{
	for (int i = 0; i < line->pairs; i++)
		if (!strcmp(line->key[i], key))
			return line->value[i];
	return otherwise;
}

uint64_t number(const struct line *line, const char *key, uint64_t otherwise)
{
	const char *value = text(line, key, NULL);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

bool has_word(const char *list, const char *word)
{
	size_t length = strlen(word);

	for (; list && *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == length && !strncmp(list, word, length))
			return true;
	return false;
}

int ok(void)
{
	puts("ok");
	return 0;
}

int gives(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("ok ", stdout);
	vprintf(format, values);
	putchar('\n');
	va_end(values);
	return 0;
}

int error(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	fputs("error ", stdout);
	vprintf(format, values);
	putchar('\n');
	va_end(values);
	return -1;
}

int failed(const char *call)
{
	return error("%s: %s", call, strerror(errno));
}

void print_hex(const uint8_t *bytes, size_t length)
{
	if (!length)
		putchar('-');
	for (size_t i = 0; i < length; i++)
		printf("%02x", bytes[i]);
}

int read_hex(const char *digits, uint8_t *bytes, size_t room)
{
	size_t length = strcmp(digits, "-") ? strlen(digits) : 0;

	if (length % 2 || length / 2 > room || strspn(digits, "0123456789abcdef") < length)
		return -1;
	for (size_t i = 0; i < length / 2; i++)
		sscanf(digits + 2 * i, "%2hhx", &bytes[i]);
	return (int)(length / 2);
}

const char *one_word(const char *words)
{
	static char word[96];
	size_t i;

	for (i = 0; words[i] && i + 1 < sizeof word; i++)
		word[i] = isspace((unsigned char)words[i]) ? '-' : (char)tolower((unsigned char)words[i]);
	word[i] = 0;
	return word;
}

int wait_readable(int fd, int timeout)
{
	struct pollfd wanted = { .fd = fd, .events = POLLIN };

	return poll(&wanted, 1, timeout) > 0;
}

/* Takes a line apart in place; the command's name is returned. */
static char *take_apart(char *input, struct line *line)
{
	char *rest, *name = strtok_r(input, " \t\r\n", &rest), *word;

	line->pairs = 0;
	while (name && (word = strtok_r(NULL, " \t\r\n", &rest)) && line->pairs < 24) {
		char *value = strchr(word, '=');

		if (!value)
			return NULL;
		*value++ = 0;
		line->key[line->pairs] = word;
		line->value[line->pairs++] = value;
	}
	return name;
}

static bool in_words(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (; *words; words += strcspn(words, " "), words += *words == ' ')
		if (strcspn(words, " ") == length && !strncmp(words, word, length))
			return true;
	return false;
}

/* Refuses parameters that are missing and those that nobody would read. */
static int run(const struct command *command, const struct line *line)
{
	char needs[128], *rest = needs, *key;

	snprintf(needs, sizeof needs, "%s", command->needs);
	while ((key = strsep(&rest, " ")))
		if (*key && !text(line, key, NULL))
			return error("%s needs %s=", command->name, key);
	for (int i = 0; i < line->pairs; i++)
		if (!in_words(command->needs, line->key[i]) && !in_words(command->may, line->key[i]))
			return error("%s knows no %s=", command->name, line->key[i]);
	return command->run(line);
}

static int obey(const char *name, const struct line *line)
{
	if (!name)
		return error("not understood");
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].name, name))
			return run(&commands[i], line);
	return error("there is no %s", name);
}

static int open_device(void)
{
	struct ibv_context **devices = rdma_get_devices(NULL);

	if (!devices || !devices[0])
		return error("there is no RDMA device");
	/* The list is not freed: the connection manager's contexts live as long as the program. */
	device.context = devices[0];
	device.pd = ibv_alloc_pd(device.context);
	device.other_pd = ibv_alloc_pd(device.context);
	if (!device.pd || !device.other_pd)
		return failed("ibv_alloc_pd");
	return gives("device=%s", ibv_get_device_name(device.context->device));
}

int main(void)
{
	char *input = NULL;
	size_t room = 0;

	if (open_device())
		return 1;
	fflush(stdout);
	while (getline(&input, &room, stdin) > 0) {
		struct line line;
		char *name = take_apart(input, &line);

		if (name && !strcmp(name, "exit"))
			return 0;
		obey(name, &line);
		fflush(stdout);
	}
	return 0;
}

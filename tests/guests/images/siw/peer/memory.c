/* Registered memory, and what is in it. */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct region *regions;

/* The byte at a place of the pattern that `fill` writes and `check` expects. `pattern` in tests/guests/src/siw/peer.rs is the same. */
static uint8_t pattern(uint64_t at, uint64_t seed)
{
	return (uint8_t)((at ^ at >> 8 ^ at >> 16) * 167 + seed * 29 + 1);
}

struct region *find_region(const struct line *line)
{
	const char *name = text(line, "region", "");

	for (struct region *region = regions; region; region = region->next)
		if (!strcmp(region->name, name))
			return region;
	error("there is no region %s", name);
	return NULL;
}

/* The range that a line names, or NULL after an error line. */
static uint8_t *find_range(const struct line *line, uint64_t length)
{
	struct region *region = find_region(line);
	uint64_t offset = number(line, "offset", 0);

	if (!region)
		return NULL;
	if (offset > region->size || length > region->size - offset) {
		error("%s has %llu bytes", region->name, (unsigned long long)region->size);
		return NULL;
	}
	return region->bytes + offset;
}

int do_region(const struct line *line)
{
	struct region *region = calloc(1, sizeof *region);
	const char *rights = text(line, "rights", "");
	int access = (has_word(rights, "local-write") ? IBV_ACCESS_LOCAL_WRITE : 0) |
		     (has_word(rights, "remote-read") ? IBV_ACCESS_REMOTE_READ : 0) |
		     (has_word(rights, "remote-write") ? IBV_ACCESS_REMOTE_WRITE : 0);

	if (!region)
		return failed("calloc");
	snprintf(region->name, sizeof region->name, "%s", text(line, "region", ""));
	region->size = number(line, "size", 0);
	region->bytes = mmap(NULL, region->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region->bytes == MAP_FAILED) {
		free(region);
		return failed("mmap");
	}
	region->mr = ibv_reg_mr(number(line, "foreign", 0) ? device.other_pd : device.pd, region->bytes, region->size, access);
	if (!region->mr) {
		munmap(region->bytes, region->size);
		free(region);
		return failed("ibv_reg_mr");
	}
	region->next = regions;
	regions = region;
	return gives("stag=%u to=%llu", region->mr->rkey, (unsigned long long)(uintptr_t)region->bytes);
}

int do_dereg(const struct line *line)
{
	struct region *region = find_region(line);
	struct region **link = &regions;

	if (!region)
		return -1;
	if (ibv_dereg_mr(region->mr))
		return failed("ibv_dereg_mr");
	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	munmap(region->bytes, region->size);
	free(region);
	return ok();
}

int do_fill(const struct line *line)
{
	uint64_t length = number(line, "length", 0), seed = number(line, "seed", 0);
	uint8_t *bytes = find_range(line, length);

	if (!bytes)
		return -1;
	for (uint64_t at = 0; at < length; at++)
		bytes[at] = pattern(at, seed);
	return ok();
}

int do_check(const struct line *line)
{
	uint64_t length = number(line, "length", 0), seed = number(line, "seed", 0);
	const volatile uint8_t *bytes = find_range(line, length);

	if (!bytes)
		return -1;
	for (uint64_t at = 0; at < length; at++)
		if (bytes[at] != pattern(at, seed))
			return error("byte %llu of %llu is %02x", (unsigned long long)at,
				     (unsigned long long)length, bytes[at]);
	return ok();
}

int do_put(const struct line *line)
{
	const char *digits = text(line, "data", "");
	size_t length = strlen(digits) / 2;
	uint8_t *bytes = find_range(line, length);

	if (!bytes)
		return -1;
	if (read_hex(digits, bytes, length) < 0)
		return error("data= is not hexadecimal");
	return ok();
}

int do_dump(const struct line *line)
{
	uint64_t length = number(line, "length", 0);
	uint8_t *bytes = find_range(line, length);

	if (!bytes)
		return -1;
	fputs("ok data=", stdout);
	print_hex(bytes, length);
	putchar('\n');
	return 0;
}

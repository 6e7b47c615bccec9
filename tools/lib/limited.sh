#!/usr/bin/env bash
# Runs a program of tests, as cargo's runner, for at most XWARP_TEST_SECONDS. Ends and names a
# program that hangs.
set -euo pipefail

limit=${XWARP_TEST_SECONDS:-1800}
status=0
timeout --foreground --kill-after=10 "$limit" "$@" || status=$?
# 137 is a killed program: by timeout if its time was over.
if [ "$status" = 124 ] || { [ "$status" = 137 ] && [ "$SECONDS" -ge "$limit" ]; }; then
    suite=$(basename "$1" | sed 's/-[0-9a-f]\{16\}$//')
    printf '\nthe suite %s of %s has not ended within %s s: one of its tests hangs, of those that it says have been running for over 60 s\n' \
        "$suite" "${CARGO_PKG_NAME:-its package}" "$limit" >&2
fi
exit "$status"

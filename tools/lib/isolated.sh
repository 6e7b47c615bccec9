#!/usr/bin/env bash
# Runs a program of tests with namespaces of networks and processes and with folders of its own for
# temporary files and in place of /run, so that tests with hosts of equal names can run in parallel,
# and no process outlives a run that is killed: a daemon of another user would not end with its
# parent. The folders are in memory: a disk that compilers keep busy holds programs up for seconds,
# and libiscsi waits for one. Fails if the program fails or leaves a namespace.
#   isolated.sh NAME PROGRAM ARGUMENT...     prints NAME and the program's output at its end
set -euo pipefail

name=$1
shift
output=$(mktemp)
# Folders are named by the numbers of processes, which begin anew in the namespace.
folder=$(mktemp -d)
trap 'rm -rf "$output" "$folder"' EXIT
trap 'exit 143' TERM
begun=$SECONDS status=0
export TMPDIR=$folder TIMEFORMAT='CPU %U s user, %S s system'
# shellcheck disable=SC2016 # for the shell in the namespaces
cpu=$({ time unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private sh -c '
    mount -t tmpfs tmpfs /run && mount -t tmpfs -o mode=1777 tmpfs "$TMPDIR" && ip link set lo up || exit 1
    "$@" || exit
    left=$(ip netns list)
    [ -z "$left" ] || { echo "namespaces are left: $left"; exit 1; }
' isolated "$(dirname "$0")/limited.sh" "$@" >"$output" 2>&1; } 2>&1) || status=$?
# One writer at a time, as several of these scripts share a standard output.
flock "$0" sh -c 'printf "\n-- %s (%s s; %s)\n" "$1" "$2" "$3"; cat "$4"' isolated "$name" "$((SECONDS - begun))" "$cpu" "$output"
[ "$status" = 0 ] || echo "$name failed with $status" >&2
exit "$status"

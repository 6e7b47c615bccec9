#!/usr/bin/env bash
# Tests that need no kernel, in Miri: an interpreter that reports undefined behaviour. Installs Miri
# with rustup if it is missing. Its threads, clock and random numbers are the same in every run.
#   --short   tests that take some minutes, by Stacked Borrows, the stricter model of what a pointer
#             may reach (the default)
#   --all     also those that take hours, and all of them by Tree Borrows, too, which allows nearly
#             all that Stacked Borrows does
# Exits with 77 and a reason if Miri is not available. XWARP_NIGHTLY names another toolchain.
set -euo pipefail
. "$(dirname "$0")/common.sh"

toolchain=$nightly
tests=short
case "${1:-}" in
    "" | --short) ;;
    --all) tests=all ;;
    *) fail "unknown argument $1; there are --short and --all" ;;
esac

# unavailable WHY: exits, with the error message of a command.
unavailable() {
    printf 'skipped: no Miri, %s %s\n' "$1" "$(grep -m 1 'error\|not found' "$said" || tail -n 1 "$said")"
    exit 77
}

has_miri() {
    cargo "+$toolchain" miri --version >"$said" 2>&1 || return 1
    [ -e "$(rustc "+$toolchain" --print sysroot)/lib/rustlib/src/rust/library/Cargo.toml" ]
}

get_miri() {
    has_miri && return
    command -v rustup >/dev/null || unavailable "and no rustup to install it with:"
    say "installing Miri for $toolchain"
    timeout 600 rustup toolchain install "$toolchain" --profile minimal --component miri --component rust-src --allow-downgrade --no-self-update \
        >"$said" 2>&1 || unavailable "and rustup cannot install it:"
    has_miri || unavailable "though rustup has installed it:"
    timeout 900 cargo "+$toolchain" miri setup >"$said" 2>&1 || unavailable "as its standard library cannot be built:"
}

# every_name_found OUTPUT ARGUMENTS...: succeeds if each name behind --, except those of --skip, has
# selected a test that passed.
every_name_found() {
    local output=$1 names=no skip=no argument absent=0
    for argument in "${@:2}"; do
        case "$names$skip$argument" in
            no*--) names=yes ;;
            yesno--skip) skip=yes ;;
            yesyes*) skip=no ;;
            yesno*) grep -q "^test .*$argument.* ok\$" "$output" || { echo "no test that Miri can run is called $argument"; absent=1; } ;;
        esac
    done
    grep -q '^test .* ok$' "$output" && [ "$absent" = 0 ]
}

# in_miri MODEL FLAGS ARGUMENTS...: tests of one package.
in_miri() {
    local flags="-Zmiri-seed=1 $2" status=0 output
    output=$(mktemp)
    [ "$1" = stacked ] || flags+=" -Zmiri-tree-borrows"
    # Miri's weak memory does not support atomics of several sizes in one place, as racing copies
    # use (driver/src/memory/racy.rs).
    time MIRIFLAGS="$flags -Zmiri-disable-weak-memory-emulation" \
        timeout "$limit" cargo "+$toolchain" miri test --locked "${@:3}" >"$output" 2>&1 || status=$?
    grep -v '^ *Compiling\|^ *Checking' "$output"
    [ "$status" != 0 ] || every_name_found "$output" "${@:3}" || status=1
    rm -f "$output"
    [ "$status" = 0 ] || echo "Miri, $1 borrows: ${*:3} failed$([ "$status" != 124 ] || echo ", as it took more than $limit s")"
    return "$status"
}

# side_by_side FUNCTION FUNCTION MODEL: two chains of tests, one for each core. Prints the output of
# the first, then that of the second.
side_by_side() {
    local second status=0
    second=$(mktemp)
    "$2" "$3" >"$second" 2>&1 &
    "$1" "$3" || status=$?
    wait "$!" || status=$?
    cat "$second"
    rm -f "$second"
    return "$status"
}

# short MODEL: the driver without its rings and its system calls, and crates built on the driver. Of
# TCP and the simulations these are a few tests that touch frames; the rest of TCP is arithmetic.
short() {
    side_by_side frames regions "$1"
}

frames() {
    in_miri "$1" "$seeds" --package xwarp-driver --lib -- --skip net:: --skip attach:: --skip xdp::tests:: --skip xdp::depth:: || return
    in_miri "$1" "$seeds" --package xwarp-iwarp --lib -- --skip layout_agrees_with_a_walk || return
    in_miri "$1" "$seeds" --package xwarp-tcp --lib -- conn::mtu_tests in_order_queue:: send_queue:: inbound:: outbound:: prediction:: template:: \
        --skip largest_packets --skip small_chunks --skip smoltcp --skip every_byte_counts || return
    in_miri "$1" "$seeds" --package xwarp-tcp --test stack -- data::commit loss::corrupted
}

regions() {
    in_miri "$1" "$seeds" --package xwarp-rnic --lib -- --skip stags:: --skip queues::ready_set --skip payload_pass:: || return
    in_miri "$1" "$seeds" --package xwarp --lib -- --skip burst:: --skip rss_steering:: || return
    in_miri "$1" "$seeds" --package xwarp-sim-tests --test behaviour -- buffers::message_goes_from_buffer_to_buffer
}

# long MODEL: more tests. In short runs these are left out, as they take seconds to a minute each in
# Miri: tables and layouts without unsafe beneath them (stags, ready sets, depths, markers, bursts
# of polls, hashes), headers compared with smoltcp's many times, lengths of payload that the
# driver's own tests have, too, the seeded link, a queue with thousands of frames, the corpus, and
# tests of the stack that reach no other accesses than those of the short run. Left out at all times
# is code without unsafe beneath it: congestion control, which is arithmetic, and the messages of
# rdma/iwarp/tests/wire, whose codecs and checksums the unit tests reach; floods, hoards and silent
# peers of tcp/tests/stack have no meaning with few frames. So it is with the messages of the
# switch, of which two tests try all cuts. The corpus is in files, so it is run without isolation
# from the host.
long() {
    in_miri "$1" "$seeds" --package xwarp-driver --lib -- xdp::tests:: xdp::depth:: || return
    in_miri "$1" "$seeds" --package xwarp-iwarp --lib -- layout_agrees_with_a_walk || return
    in_miri "$1" "$seeds" --package xwarp-test-kit --features netsim --lib -- netsim:: || return
    in_miri "$1" "$seeds" --package xwarp-rnic --lib -- stags:: queues::ready_set payload_pass:: || return
    in_miri "$1" "$seeds" --package xwarp --lib -- burst:: rss_steering:: || return
    in_miri "$1" "$seeds" --package xwarp-tcp --lib -- --skip congestion:: || return
    in_miri "$1" "$seeds" --package xwarp-tcp --test stack -- data::less data::room interface::segment || return
    in_miri "$1" "$seeds" --package xwarp-tcp --test scripts || return
    in_miri "$1" "$seeds" --package xwarp-switchd --test switch -- --skip closed_port_rests --skip resets_that_answer || return
    in_miri "$1" "$seeds" --package xwarp-sim-tests --test behaviour -- transfer::read_fence transfer::send_with transfer::slow_link atomics:: buffers:: || return
    in_miri "$1" -Zmiri-disable-isolation --package xwarp-fuzz --test corpus
}

all() {
    short "$1" && long "$1"
}

limit=${XWARP_TEST_SECONDS:-1800} TIMEFORMAT='%R s; CPU %U s user, %S s system'
export PROPTEST_CASES=4 PROPTEST_RNG_SEED=1 PROPTEST_DISABLE_FAILURE_PERSISTENCE=true
seeds=
for variable in PROPTEST_CASES PROPTEST_RNG_SEED PROPTEST_DISABLE_FAILURE_PERSISTENCE; do seeds+=" -Zmiri-env-forward=$variable"; done
# Miri is the runner.
for variable in ${!CARGO_TARGET_@}; do [[ $variable != *_RUNNER ]] || unset "$variable"; done

said=$(mktemp)
trap 'rm -f "$said"' EXIT
get_miri
cd "$top"
status=0
say "Stacked Borrows"
"$tests" stacked || status=$?
if [ "$tests" = all ]; then
    say "Tree Borrows"
    all tree || status=$?
fi
[ "$status" = 0 ] || fail "Miri refuses a test; one that needs the kernel or files is to be ignored: #[cfg_attr(miri, ignore = \"needs files\")]"

# Suites of tests that run in parallel. For tools/test and tools/interop.
# shellcheck shell=bash disable=SC2154

# Tests that measure times or use the whole machine: they run alone.
alone=(kernel:stall:: netns:flooding:: netns:interrupting:: netns:huge_pages::)

# The CPU time of a part or a step, below its output.
TIMEFORMAT='%R s; CPU %U s user, %S s system'

# Process groups of the started and unfinished parts, by name, and of the present step.
declare -A parts=()
step=

# begin NAME COMMAND...: starts a part of the tests in a process group. Keeps its output until it is
# finished. Its status is in a file: bash forgets the status of a child if a later child has its
# number.
begin() {
    local name=$1
    shift
    say "$name: begins"
    set -m
    {
        status=0
        time "$@" || status=$?
        echo "$status" >"$logs/$name.status"
    } >"$logs/$name" 2>&1 &
    set +m
    parts[$name]=$!
}

# finish NAME: prints the output of a part that has ended. Ends the script if the part failed.
finish() {
    local status
    status=$(cat "$logs/$1.status" || echo killed)
    unset "parts[$1]"
    say "$1: $([ "$status" = 0 ] && echo passed || echo failed) after $SECONDS s"
    cat "$logs/$1"
    [ "$status" = 0 ] || fail "$1 failed"
}

# Finishes the parts that have ended.
finish_ended() {
    local name
    for name in "${!parts[@]}"; do
        if [ -s "$logs/$name.status" ] || ! kill -0 "${parts[$name]}" 2>/dev/null; then finish "$name"; fi
    done
}

# Finishes all parts. Ends the script as soon as one has failed.
finish_all() {
    while [ "${#parts[@]}" != 0 ]; do
        finish_ended
        sleep 1
    done
}

# beside COMMAND...: runs a step while the parts run, and returns its status. Ends the script as
# soon as a part has failed.
beside() {
    local ended
    set -m
    time "$@" &
    set +m
    step=$!
    while kill -0 "$step" 2>/dev/null; do
        finish_ended
        sleep 1
    done
    ended=$step step=
    wait "$ended"
}

# Ends the parts and the step that are still running.
end_parts() {
    local group
    for group in "${parts[@]}" $step; do kill -- "-$group" 2>/dev/null || true; done
    rm -rf "$logs"
}

# Lists the programs of tests for `executable`. They must be built before.
list_executables() {
    cargo test --workspace --locked --no-run 2>"$logs/executables" || {
        cat "$logs/executables" >&2
        fail "the programs of tests cannot be listed"
    }
}

# executable SUITE FILE: the program of tests that cargo has built from a file, by cargo's list.
executable() {
    local found
    found=$(sed -n "s|^ *Executable $2 (\(.*/$1-[0-9a-f]*\))\$|\1|p" "$logs/executables")
    [ -f "$found" ] || fail "cargo names no program for $2: '$found'"
    realpath "$found"
}

# The program of the kernel suite with feature xsk-rs.
xsk_rs_program() {
    local listed
    listed=$(cargo test --workspace --features xwarp-system-tests/xsk-rs --locked --test kernel --no-run 2>&1) || fail "$listed"
    realpath "$(sed -n 's|^ *Executable tests/kernel/main.rs (\(.*\))$|\1|p' <<<"$listed")"
}

# modules PROGRAM: the modules of its tests, those with most tests first.
modules() {
    local tests
    tests=$("$1" --list --format terse)
    if [ -z "$tests" ] || grep -v :: <<<"$tests" >&2; then fail "$1 has no test, or has tests in no module"; fi
    printf '%s\n' "$tests" | sed 's/::.*//' | sort | uniq -c | sort -rn | awk '{ print $2 }'
}

# Lists the modules of netns and kernel, and the other programs of tests/system, for isolate. A line has a name, a folder, a program and a
# filter.
isolated_suites() {
    local program suite module listed
    for suite in netns kernel; do
        program=$(executable "$suite" "tests/$suite/main.rs")
        listed=$(modules "$program")
        for module in $listed; do
            [[ " ${alone[*]} " = *" $suite:$module:: "* ]] || echo "$suite::$module tests/system $program $module::"
        done
    done
    program=$(executable soak tests/soak/main.rs)
    echo "soak tests/system $program"
    program=$(executable tshark tests/tshark/main.rs)
    echo "tshark tests/system $program"
    program=$(executable impair tests/impair.rs)
    echo "impair tests/system $program"
    program=$(executable xwarp_system_tests "unittests src/lib.rs")
    echo "system tests/system $program"
}

# Lists the suites that run alone, each of which is a module with tests.
alone_suites() {
    local entry suite module program listed
    for entry in "${alone[@]}"; do
        suite=${entry%%:*} module=${entry#*:}
        program=$(executable "$suite" "tests/$suite/main.rs")
        listed=$(modules "$program")
        grep -qx "${module%::}" <<<"$listed" || fail "$program has no module ${module%::}"
        echo "$entry tests/system $program $module"
    done
}

# Lists the programs of tests/dropin.
dropin_suites() {
    local file suite program
    for file in tests/dropin/tests/*.rs; do
        suite=$(basename "$file" .rs)
        program=$(executable "$suite" "tests/$suite.rs")
        echo "dropin::$suite tests/dropin $program"
    done
}

# guest_suites ARGUMENT...: lists the programs of tests/guests without cards, that with siw by its
# modules, the longest first.
guest_suites() {
    local program listed module
    program=$(executable harness tests/harness/main.rs)
    echo "harness tests/guests $program${*:+ $*}"
    program=$(executable siw tests/siw/main.rs)
    listed=$(modules "$program")
    for module in $listed; do
        echo "siw::$module tests/guests $program $module::${*:+ $*}"
    done
}

# isolate WIDTH: runs the suites that standard input lists, WIDTH at a time. Starts no further one
# after a failure: xargs stops at 255.
isolate() {
    xargs -P "$1" -L 1 bash -c '
        cd "$2" && "$0/tools/lib/isolated.sh" "$1" "$3" --test-threads 1 "${@:4}" || exit 255
    ' "$top"
}

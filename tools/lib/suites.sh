# Suites of tests that run beside each other. For tools/test.
# shellcheck shell=bash disable=SC2154

# Tests that measure times or take what the whole machine has: they run when nothing else does.
alone=(kernel:stall:: kernel:tail:: netns:flooding:: netns:interrupting:: netns:huge_pages::)

declare -A parts=()

# begin NAME COMMAND...: runs a part of the tests in a process group of its own. Its output is kept until finish NAME.
begin() {
    local name=$1
    shift
    say "$name: begins"
    set -m
    "$@" >"$logs/$name" 2>&1 &
    set +m
    parts[$name]=$!
}

# finish NAME: waits for a part, and prints its output. Ends the script if it failed.
finish() {
    local status=0
    wait "${parts[$1]}" || status=$?
    unset "parts[$1]"
    say "$1: $([ "$status" = 0 ] && echo passed || echo failed) after $SECONDS s"
    cat "$logs/$1"
    [ "$status" = 0 ] || fail "$1 failed"
}

# Ends the parts that still run.
end_parts() {
    local name
    for name in "${!parts[@]}"; do kill -- "-${parts[$name]}" 2>/dev/null || true; done
    rm -rf "$logs"
}

# executable SUITE FILE: the program of tests that cargo has built of a file, by cargo's list.
executable() {
    realpath "$(sed -n "s|^ *Executable $2 (\(.*/$1-[0-9a-f]*\))\$|\1|p" "$logs/executables")"
}

# Lists the modules of netns and kernel for isolate, those with most tests first. A line has a name, a folder, a program and a filter.
isolated_suites() {
    local program suite module
    for suite in netns kernel; do
        program=$(executable "$suite" "tests/$suite/main.rs")
        "$program" --list --format terse | sed 's/::.*//' | sort | uniq -c | sort -rn | while read -r _ module; do
            [[ " ${alone[*]} " = *" $suite:$module:: "* ]] || echo "$suite::$module tests/system $program $module::"
        done
    done
    echo "soak tests/system $(executable soak tests/soak/main.rs)"
}

# Lists the suites that run alone.
alone_suites() {
    local entry suite
    for entry in "${alone[@]}"; do
        suite=${entry%%:*}
        echo "$entry tests/system $(executable "$suite" "tests/$suite/main.rs") ${entry#*:}"
    done
}

# Lists the programs of tests/dropin.
dropin_suites() {
    local file suite
    for file in tests/dropin/tests/*.rs; do
        suite=$(basename "$file" .rs)
        echo "dropin::$suite tests/dropin $(executable "$suite" "tests/$suite.rs")"
    done
}

# isolate WIDTH: runs the suites that standard input lists, that many beside each other.
isolate() {
    xargs -P "$1" -L 1 bash -c '
        cd "$2" && exec "$0/tools/lib/isolated.sh" "$1" "$3" --test-threads 1 "${@:4}"
    ' "$top"
}

# What several queues and engines make of a link, what the driver alone takes, and what an idle RNIC takes (`tools/bench --link --queues`).
# Two network namespaces, a veth pair of MTU 1500 with as many queues; rounds in turn, medians. What engine N sends arrives at queue N.
# shellcheck shell=bash disable=SC2154

connections=8
# Frames that callgrind counts, and the sleep of whoever takes them after a turn without any, in microseconds.
counted_milliseconds=300 pause=500

make_hosts_of() { # QUEUES
    clean_up_link
    make_hosts "$a" "$b" "$mtu" "$1"
    without_offloads "$a" "$b"
}

over_engines() { # ENGINES TEST SIZE FIGURE
    perf "$2" --size "$3" --depth 16 --duration 2s --qps "$connections" --engine thread --engines "$1"
    number "$4" <"$work/out"
}

measure_one() { over_engines 1 "${measured[@]}"; }
measure_each() { over_engines "$queues" "${measured[@]}"; }

# queues_row NAME TEST SIZE FIGURE: a line with one engine for all queues, and with one for each.
queues_row() {
    local measured=("${@:2}")
    take_turns measure one each
    pair "$queues" "$1" one each
}

# pair QUEUES NAME FIRST SECOND: a line with the figures of two contenders and their ratio.
pair() {
    local figures
    figures="$(spread "$3") $(spread "$4")"
    printf '%-34s%8s' "$2" "$1"
    echo "$figures" | awk '
        function cell(middle, least, most) { return sprintf("%.3g (%.3g-%.3g)", middle, least, most) }
        { printf "%24s%24s%8.2f\n", cell($1, $2, $3), cell($4, $5, $6), $4 / $1 }'
}

# taken COMMAND...: frames per second that a command on host B takes from a source that sends as fast as frames leave.
taken() {
    serve ready "$@"
    # shellcheck disable=SC2046
    ip netns exec "$a" $(raw raw-source "$a" 64) --window 0 --milliseconds "${milliseconds:-1500}" >/dev/null
    served
    tail -n 1 "$work/server"
}

# shellcheck disable=SC2046
by_driver() { taken $(raw driver "$b" 64) "$@"; }
by_minimal() { taken "$work/minimal" eth1 copy "$@"; }

rate_minimal() { by_minimal "$work_of_driver" 0 | awk '{ print $1 / 1e6 }'; }
rate_driver() { by_driver "$work_of_driver" | awk '{ print $1 / 1e6 }'; }

build_minimal() {
    gcc -O2 -Wall -Werror -o "$work/minimal" "$top/tests/bench/minimal.c" -lxdp
}

# counted FUNCTION COMMAND...: instructions per frame of a function, callees included, while a command takes frames.
counted() {
    local function=$1 milliseconds=$counted_milliseconds frames
    shift
    frames=$(taken valgrind --quiet --tool=callgrind --callgrind-out-file="$work/profile" "$@" | cut -d' ' -f2)
    per_frame "$function" "$frames"
}

# per_frame FUNCTION FRAMES: instructions per frame of a function in callgrind's profile, callees included.
per_frame() {
    local total
    total=$(callgrind_annotate --inclusive=yes --threshold=100 --auto=no "$work/profile" |
        sed -n "s/^ *\([0-9,]*\) .*:$1 \[.*/\1/p" | head -n 1 | tr -d ,)
    [ -n "$total" ] || fail "callgrind does not name $1"
    echo "$(((total + $2 / 2) / $2))"
}

driver_rows() {
    local work_of_driver
    for work_of_driver in receive forward; do
        take_turns rate minimal driver
        pair 1 "$work_of_driver [M frames/s]" minimal driver
    done
    for work_of_driver in receive forward; do
        # shellcheck disable=SC2046
        printf '%-34s%8s%24s%24s\n' "$work_of_driver [instr/frame]" 1 "$(counted turn "$work/minimal" eth1 copy "$work_of_driver" "$pause")" \
            "$(counted 'link::driver::xwarp_turn' $(raw driver "$b" 64) "$work_of_driver" --pause "$pause")"
    done
}

# Nanoseconds that a process has run for, all of its threads together.
ran() { # PID
    cat "/proc/$1"/task/*/schedstat | awk '{ ns += $1 } END { printf "%.0f\n", ns }'
}

# percent PID: what a process takes of a core in five seconds.
percent() {
    local before
    before=$(ran "$1")
    sleep 5
    awk -v ns="$(($(ran "$1") - before))" 'BEGIN { printf "%.2f\n", ns / 5e9 * 100 }'
}

# The process that a namespace's command has become.
process_of() { # PID NAME
    pgrep --parent "$1" --exact "$2" || echo "$1"
}

# A server that waits for a client.
waiting_server() { # ENGINE
    local pid
    serve '^waiting' "$xwarp" perf write-bw --dev eth1 --engine "$1"
    pid=$(process_of "$server" xwarp)
    sleep 1
    percent "$pid"
    kill "$pid"
    wait "$server" || true
}

# The client and the server of a connection that carries nothing for a while.
idle_connection() {
    local client
    serve '^waiting' "$xwarp" ping --dev eth1
    ip netns exec "$a" "$xwarp" ping --interval 9s --count 2 10.77.0.2 >"$work/out" 2>&1 &
    client=$!
    until grep -q '^ping *0 ' "$work/out"; do
        kill -0 "$client" || { cat "$work/out" >&2; fail "the client has ended"; }
        sleep 0.05
    done
    sleep 1
    percent "$(process_of "$client" xwarp)"
    wait "$client"
    served
}

wakeup_blocking() {
    perf send-lat --size 64 --iterations 5000 --wait blocking
    number p50 <"$work/out" | awk '{ print $1 / 1000 }'
}

queues_table() {
    local mtu=1500 mode=native queues engine
    prepare
    need_packages valgrind:/usr/bin/valgrind gcc:/usr/bin/gcc libxdp-dev:/usr/include/xdp/xsk.h ethtool:/usr/sbin/ethtool
    build_minimal
    say "medians of $rounds rounds in turn (least-most) of $connections connections, MTU $mtu, XDP $mode, copy mode, two processors for both hosts"
    printf '%-34s%8s%24s%24s%8s\n' '' queues 'one engine' 'an engine each' ratio
    for queues in 1 2 4; do
        make_hosts_of "$queues"
        queues_row 'write 64 KiB [Gb/s]' write-bw 64K gigabits_per_second
        queues_row 'write 64 B [M/s]' write-bw 64 million_messages_per_second
        queues_row 'send 64 B [M/s]' send-bw 64 million_messages_per_second
    done
    make_hosts_of 1
    printf '%-34s%8s%24s%24s%8s\n' 'driver, frames of 64 bytes' queues 'minimal loop' xwarp ratio
    driver_rows
    for engine in inline thread assisted; do
        printf '%-34s%8s%48s\n' "idle, $engine [% of a core]" 1 "$(waiting_server "$engine")"
    done
    printf '%-34s%8s%48s\n' 'idle connection [% of a core]' 1 "$(idle_connection)"
    take_turns wakeup blocking
    printf '%-34s%8s%48s\n' 'Send 64 B to a sleeper [us]' 1 "$(median blocking)"
}

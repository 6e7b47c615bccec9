# What RDMA makes of a link, next to raw AF_XDP and to the kernel's TCP (`tools/bench --link`), or next to another commit (`tools/bench --against`).
# Two network namespaces, a veth pair between them; rounds in turn, medians.
# shellcheck shell=bash disable=SC2154

a=xwarp-bench-a b=xwarp-bench-b net=xwarp-bench-net
rounds=5

clean_up_link() {
    remove_host "$a"
    remove_host "$b"
    remove_host "$net"
}

# The number behind a key of a JSON text.
number() { # KEY
    sed -n "s/.*\"$1\":[[:space:]]*\([0-9.e+-]*\).*/\1/p" | head -n 1
}

# Starts a command on host B and waits until it says that it is ready.
serve() { # READY COMMAND...
    local ready=$1
    shift
    forget_server
    ip netns exec "$b" "$@" >"$work/server" 2>&1 &
    server=$!
    await_server "$ready" "$1"
}

# What the server before has said is not what this one says.
forget_server() {
    : >"$work/server"
}

await_server() { # READY NAME
    until grep -q "$1" "$work/server"; do
        kill -0 "$server" 2>/dev/null || { cat "$work/server" >&2; fail "$2 has not started"; }
        sleep 0.05
    done
}

served() {
    wait "$server" || { cat "$work/server" >&2; fail "the server has failed"; }
}

mac_of() { # HOST
    ip netns exec "$1" cat /sys/class/net/eth1/address
}

# timed FILE COMMAND...: runs a command and writes its processor seconds, its own and the kernel's for it, into a file.
timed() {
    local file=$1 status=0
    shift
    { time "$@" 2>&3; } 3>&2 2>"$file" || status=$?
    return "$status"
}
TIMEFORMAT='%U %S'

# Starts a timed command on host B and waits until it says that it is ready.
serve_timed() { # READY COMMAND...
    local ready=$1
    shift
    forget_server
    timed "$work/time.server" ip netns exec "$b" "$@" >"$work/server" 2>&1 &
    server=$!
    await_server "$ready" "$1"
}

# Processor seconds of the kernel's threads that deliver packets when nobody else does.
softirq_seconds() {
    local pid
    for pid in $(pgrep '^ksoftirqd/'); do
        cut -d' ' -f15 "/proc/$pid/stat"
    done | awk -v hz="$(getconf CLK_TCK)" '{ ticks += $1 } END { print ticks / hz }'
}

# charge UNITS: processor seconds of both ends, and of the kernel's threads since `softirq`, per unit.
charge() {
    cat "$work/time.server" "$work/time.client" |
        awk -v units="$1" -v softirq="$(softirq_seconds)" -v before="$softirq" '
            { seconds += $1 + $2 }
            END { print (seconds + softirq - before) / units }'
}

raw() { # COMMAND HOST BYTES: the arguments of a raw side
    local other=$a local=10.77.0.2 remote=10.77.0.1
    [ "$2" = "$b" ] || { other=$b local=10.77.0.1 remote=10.77.0.2; }
    echo "$link $1 --dev eth1 --local $local --remote $remote --mac $(mac_of "$other") --bytes $3 --mode $mode"
}

# raw_frames BYTES WINDOW: prints frames per second, frames that arrived and those that were dropped.
raw_frames() {
    # shellcheck disable=SC2046
    serve_timed ready $(raw raw-sink "$b" "$1") --window "$2"
    # shellcheck disable=SC2046
    timed "$work/time.client" ip netns exec "$a" $(raw raw-source "$a" "$1") --window "$2" --milliseconds 1000 >/dev/null
    served
    tail -n 1 "$work/server"
}

# raw_best BYTES: the best of several windows, as what carries most depends on the frame's size.
raw_best() {
    local window
    for window in 16 64 256; do
        raw_frames "$1" "$window"
    done | sort -g | tail -n 1
}

# Each measure prints its figure, and processor seconds of both ends per unit where that is asked for: Gb/s of whole frames, of TCP
# payload or of messages, and seconds per gigabyte; millions of frames, writes or messages per second, and seconds per million;
# microseconds of a round trip.
bandwidth_raw() {
    local bytes=$((mtu + 14))
    raw_best "$bytes" | awk -v bytes="$bytes" '{ print $1 * bytes * 8 / 1e9, "-", $3 }'
}

# stream_tcp BYTES: writes of so many bytes by iperf3 for two seconds; prints the bytes that were received, and per second.
stream_tcp() {
    softirq=$(softirq_seconds)
    serve_timed 'Server listening' iperf3 --server --one-off --forceflush
    timed "$work/time.client" ip netns exec "$a" iperf3 --client 10.77.0.2 --time 2 --congestion cubic --length "$1" --json >"$work/out"
    served
    sed -n '/"sum_received"/,$p' "$work/out" >"$work/received"
    received=$(number bytes <"$work/received") per_second=$(number bits_per_second <"$work/received")
}

bandwidth_tcp() {
    stream_tcp 128K
    awk -v rate="$per_second" -v cost="$(charge "$(units "$received" 1e9)")" 'BEGIN { print rate / 1e9, cost }'
}

units() { # COUNT UNIT
    awk -v count="$1" -v unit="$2" 'BEGIN { print count / unit }'
}

perf() { # TEST ARGUMENT...
    softirq=$(softirq_seconds)
    serve_timed '^waiting' "$xwarp" perf "$@" --mode "$mode" --dev eth1
    timed "$work/time.client" ip netns exec "$a" "$xwarp" perf "$@" --mode "$mode" --json 10.77.0.2 >"$work/out"
    served
}

bandwidth_xwarp() {
    perf write-bw --size 64K --duration 2s
    local messages
    messages=$(number messages <"$work/out")
    echo "$(number gigabits_per_second <"$work/out") $(charge "$(units "$((messages * 65536))" 1e9)")"
}

# Frames of a message's bytes and an Ethernet header; none is shorter than its number allows.
rate_raw() {
    local bytes=$((size + 14))
    [ "$bytes" -ge 62 ] || bytes=62
    raw_best "$bytes" | awk '{ print $1 / 1e6, "-", $3 }'
}

rate_tcp() {
    stream_tcp "$size"
    awk -v rate="$per_second" -v size="$size" -v cost="$(charge "$(units "$received" $((size * 1000000)))")" 'BEGIN { print rate / 8 / size / 1e6, cost }'
}

rate_of() { # TEST
    perf "$1" --size "$size" --duration 2s
    echo "$(number million_messages_per_second <"$work/out") $(charge "$(units "$(number messages <"$work/out")" 1e6)")"
}

rate_write() { rate_of write-bw; }
rate_send() { rate_of send-bw; }
rate_read() { rate_of read-bw; }

latency_raw() {
    # shellcheck disable=SC2046
    serve ready $(raw raw-pong "$b" 78)
    # shellcheck disable=SC2046
    ip netns exec "$a" $(raw raw-ping "$a" 78) | tail -n 1 | cut -d' ' -f1
    served
}

latency_tcp() {
    serve ready "$link" tcp-pong 10.77.0.2:7001 64
    ip netns exec "$a" "$link" tcp-ping 10.77.0.2:7001 64 | cut -d' ' -f1
    served
}

# perf tells half of a round trip.
latency_xwarp() {
    perf write-lat --size 64 --iterations 20000 --wait busy
    number p50 <"$work/out" | awk '{ print $1 * 2 / 1000 }'
}

# take_turns MEASURE CONTENDER...: rounds of all contenders in turn. Keeps what each has printed, a line a round.
take_turns() {
    local measure=$1 who
    shift
    rm -f "$work"/figures.*
    for _ in $(seq "$rounds"); do
        for who in "$@"; do
            "${measure}_$who" >>"$work/figures.$who"
        done
    done
    for who in "$@"; do
        [ "$(grep -c . "$work/figures.$who")" = "$rounds" ] || fail "$who has given no figure in some round"
    done
}

# column WHO N: the figures of a contender's column, least first.
column() {
    cut -d' ' -f"$2" "$work/figures.$1" | sort -g
}

# median WHO [N]
median() {
    column "$1" "${2:-1}" | sed -n "$(((rounds + 1) / 2))p"
}

# spread WHO [N]: median, least and most.
spread() {
    echo "$(median "$1" "${2:-1}") $(column "$1" "${2:-1}" | sed -n '1p;$p' | xargs)"
}

# row NAME WHO [N]: a line with medians and spreads of raw, tcp and one more, and the ratios of the medians. Column N instead of the first.
row() {
    local figures
    figures="$(if [ "${3:-1}" = 1 ]; then spread raw; else echo '- - -'; fi) $(spread tcp "${3:-1}") $(spread "$2" "${3:-1}")"
    printf '%-22s%6s %-8s' "$1" "$mtu" "$mode"
    echo "$figures" | awk '
        function cell(middle, least, most) { return middle == "-" ? "-" : sprintf("%.3g (%.3g-%.3g)", middle, least, most) }
        function ratio(of, to) { return to == "-" ? "-" : sprintf("%.2f", of / to) }
        { printf "%22s%22s%22s%8s%8s\n", cell($1, $2, $3), cell($4, $5, $6), cell($7, $8, $9), ratio($7, $1), ratio($7, $4) }'
}

# A ceiling is one: notes it where the least of a contender is more than the most of the raw frames. For a latency the other way around.
hold_ceiling() { # NAME WHO bandwidth|latency
    local raw xwarp
    if [ "$3" = bandwidth ]; then
        raw=$(column raw 1 | tail -n 1) xwarp=$(column "$2" 1 | head -n 1)
    else
        raw=$(column "$2" 1 | tail -n 1) xwarp=$(column raw 1 | head -n 1)
    fi
    awk -v raw="$raw" -v xwarp="$xwarp" 'BEGIN { exit xwarp > raw }' ||
        passed+=("$1 at MTU $mtu, $mode")
}

prepare() {
    need_root
    build_packages
    need_packages iperf3:/usr/bin/iperf3
    say "building"
    cargo build --release --locked --manifest-path "$top/Cargo.toml" --package xwarp-bench --package xwarp-tools
    link="${CARGO_TARGET_DIR:-$top/target}/release/link"
    xwarp="${CARGO_TARGET_DIR:-$top/target}/release/xwarp"
    trap 'clean_up_link; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM
}

without_offloads() { # HOST...
    local host
    for host in "$@"; do
        ip netns exec "$host" ethtool -K eth1 tx off >/dev/null
    done
}

# compare_streams: bandwidth, and the processor time that a gigabyte takes.
compare_streams() {
    take_turns bandwidth raw tcp xwarp
    row 'bandwidth [Gb/s]' xwarp
    row 'CPU time [s/GB]' xwarp 2
    hold_ceiling bandwidth xwarp bandwidth
    dropped "$((mtu + 14))"
}

# compare_rates: message rates of one size, and the processor time that a million takes.
compare_rates() {
    local verb
    take_turns rate raw tcp write send read
    for verb in write send read; do
        row "$verb $size B [M/s]" "$verb"
        row "CPU time [s/M]" "$verb" 2
    done
    dropped "$size"
}

compare_latency() {
    take_turns latency raw tcp xwarp
    row 'round trip 64 B [us]' xwarp
    hold_ceiling latency xwarp latency
}

# Raw frames that were dropped on the way, which a ceiling must not have paid for.
dropped() { # BYTES
    local most
    most=$(column raw 3 | tail -n 1)
    [ "$most" = 0 ] || echo "  of the raw frames of $1 bytes up to $most were dropped in a round"
}

link_table() { # [MTU...]
    local passed=() size mtus=("$@")
    [ $# -gt 0 ] || mtus=(1500 3500 9000 65535)
    prepare
    say "medians of $rounds rounds in turn (least-most), all spinning; raw AF_XDP with the best of three windows; kernel TCP without offloads, but with all of them at MTU 65535"
    printf '%-22s%6s %-8s%22s%22s%22s%8s%8s\n' '' MTU mode 'raw AF_XDP' 'kernel TCP' 'RDMA' '/ raw' '/ TCP'
    for mtu in "${mtus[@]}"; do
        for mode in native generic; do
            clean_up_link
            make_hosts "$a" "$b" "$mtu"
            [ "$mtu" = 65535 ] || without_offloads "$a" "$b"
            compare_streams
            [ "$mtu" = 1500 ] || continue
            compare_latency
            for size in 8 64 512; do compare_rates; done
        done
    done
    [ ${#passed[@]} = 0 ] || fail "raw AF_XDP is no ceiling here: $(printf '%s; ' "${passed[@]}")measure again on a quiet machine"
}

# The programs of another commit, built beside those of this tree.
build_before() { # COMMIT
    before="${CARGO_TARGET_DIR:-$top/target}/against/release/xwarp"
    git -C "$top" worktree add --quiet --detach "$work/before" "$1"
    trap 'clean_up_link; git -C "$top" worktree remove --force "$work/before"; rm -rf "$work"' EXIT
    say "building $(git -C "$work/before" log -1 --format='%h %s')"
    CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$top/target}/against" \
        cargo build --release --locked --manifest-path "$work/before/Cargo.toml" --package xwarp-tools
}

# What a test of `xwarp perf` measures, by each of the two programs.
test_now() { "${test[@]}"; }
test_before() { local xwarp=$before; "${test[@]}"; }

stream_of() { # TEST
    perf "$1" --size 64K --duration 1s
    number gigabits_per_second <"$work/out"
}

rate_64() { # TEST
    perf "$1" --size 64 --duration 1s
    number million_messages_per_second <"$work/out"
}

# against NAME UNIT BETTER COMMAND...: a line with both; notes it where all of now's figures are worse than all of before's.
against() {
    local name=$1 better=$3 test=("${@:4}") figures
    take_turns test before now
    figures="$(spread before) $(spread now)"
    printf '%-26s%6s' "$name [$2]" "$mtu"
    echo "$figures" | awk '{ printf "%14.3g (%.3g-%.3g)%14.3g (%.3g-%.3g)%8.2f\n", $1, $2, $3, $4, $5, $6, $4 / $1 }'
    echo "$figures" | awk -v better="$better" '{ exit better == "more" ? $6 < $2 : $5 > $3 }' || worse+=("$name at MTU $mtu")
}

against_table() { # COMMIT
    local worse=() mode=native verb
    prepare
    build_before "$1"
    say "medians of $rounds rounds in turn (least-most), before and now"
    for mtu in 1500 9000; do
        clean_up_link
        make_hosts "$a" "$b" "$mtu"
        for verb in write read send; do against "$verb 64 KiB" Gb/s more stream_of "$verb-bw"; done
        [ "$mtu" = 1500 ] || continue
        for verb in write read send; do against "$verb 64 B" M/s more rate_64 "$verb-bw"; done
        against 'round trip 64 B' us less latency_xwarp
    done
    [ ${#worse[@]} = 0 ] || fail "worse than before in every round: $(printf '%s; ' "${worse[@]}")"
}

# The two hosts on a bridge in a namespace of its own, where segments of host A can be lost.
make_bridged_hosts() {
    local host port
    ip netns add "$net"
    ip -n "$net" link add bridge type bridge
    ip -n "$net" link set bridge up
    for host in 1 2; do
        port=port$host
        local name=$a
        [ "$host" = 1 ] || name=$b
        ip netns add "$name"
        ip link add "$port" netns "$net" type veth peer name eth1 netns "$name"
        ip -n "$net" link set "$port" master bridge up
        ip -n "$name" link set lo up
        ip -n "$name" link set eth1 up
        ip -n "$name" addr add "10.77.0.$host/24" dev eth1
        without_offloads "$name"
    done
}

# lose PART COMMAND...: runs a command while segments of host A are lost.
lose() {
    local part=$1 keep
    shift
    [ "$part" != 0 ] || { "$@"; return; }
    mkfifo "$work/keep"
    : >"$work/impair"
    ip netns exec "$net" "$link" impair --dev port1 --loss "$part" <"$work/keep" >"$work/impair" &
    keep=$!
    exec 9>"$work/keep"
    rm "$work/keep"
    until grep -q ready "$work/impair"; do
        kill -0 "$keep" 2>/dev/null || fail "no segments can be lost"
        sleep 0.05
    done
    "$@"
    exec 9>&-
    wait "$keep"
}

with_congestion() { # ALGORITHM
    perf write-bw --size 64K --duration 3s --congestion "$1"
    number gigabits_per_second <"$work/out"
}

bandwidth_cubic() { with_congestion cubic; }
bandwidth_bbr() { with_congestion bbr; }

loss_table() {
    local part who mode=native bbr_alone=
    prepare
    clean_up_link
    make_bridged_hosts
    say "medians of $rounds rounds, Gb/s at MTU 1500 by the part of the sender's segments that is lost; kernel TCP without offloads"
    printf '%-6s%14s%14s%14s%14s%14s\n' loss 'kernel CUBIC' 'xwarp CUBIC' '/ kernel' 'xwarp BBR' '/ loss-free'
    for part in 0 0.001 0.01 0.05; do
        rm -f "$work"/figures.*
        for _ in $(seq "$rounds"); do
            for who in tcp cubic bbr; do
                lose "$part" "bandwidth_$who" >>"$work/figures.$who"
            done
        done
        local medians=() of
        for who in tcp cubic bbr; do
            of=$(median "$who")
            medians+=("$of")
        done
        : "${bbr_alone:=${medians[2]}}"
        echo "$part" "${medians[@]}" "$bbr_alone" | awk '{ printf "%-6s%14.2f%14.2f%14.2f%14.2f%14.2f\n", $1 * 100 " %", $2, $3, $3 / $2, $4, $4 / $5 }'
    done
}

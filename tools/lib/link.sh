# What RDMA Write makes of a link, next to raw AF_XDP and to the kernel's TCP: `tools/bench --link`. Two network namespaces, a veth
# pair between them; rounds in turn, medians.
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
    ip netns exec "$b" "$@" >"$work/server" 2>&1 &
    server=$!
    until grep -q "$ready" "$work/server"; do
        kill -0 "$server" 2>/dev/null || { cat "$work/server" >&2; fail "$1 has not started"; }
        sleep 0.05
    done
}

served() {
    wait "$server" || { cat "$work/server" >&2; fail "the server has failed"; }
}

mac_of() { # HOST
    ip netns exec "$1" cat /sys/class/net/eth1/address
}

raw() { # COMMAND HOST BYTES: the arguments of a raw side
    local other=$a local=10.77.0.2 remote=10.77.0.1
    [ "$2" = "$b" ] || { other=$b local=10.77.0.1 remote=10.77.0.2; }
    echo "$link $1 --dev eth1 --local $local --remote $remote --mac $(mac_of "$other") --bytes $3 --mode $mode"
}

# Each prints one figure. Gb/s of whole frames, of TCP payload and of messages, and microseconds of a round trip.
bandwidth_raw() {
    local bytes=$((mtu + 14))
    # shellcheck disable=SC2046
    serve ready $(raw raw-sink "$b" "$bytes")
    # shellcheck disable=SC2046
    ip netns exec "$a" $(raw raw-source "$a" "$bytes") >/dev/null
    served
    tail -n 1 "$work/server" | awk -v bytes="$bytes" '{ print $1 * bytes * 8 / 1e9 }'
}

bandwidth_tcp() {
    serve 'Server listening' iperf3 --server --one-off --forceflush
    ip netns exec "$a" iperf3 --client 10.77.0.2 --time 2 --congestion cubic --json >"$work/out"
    served
    sed -n '/"sum_received"/,$p' "$work/out" | number bits_per_second | awk '{ print $1 / 1e9 }'
}

perf() { # TEST ARGUMENT...
    serve '^waiting' "$xwarp" perf "$@" --mode "$mode" --dev eth1
    ip netns exec "$a" "$xwarp" perf "$@" --mode "$mode" --json 10.77.0.2 >"$work/out"
    served
}

bandwidth_xwarp() {
    perf write-bw --size 64K --duration 2s
    number gigabits_per_second <"$work/out"
}

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

# median WHO: of the figures that a contender gave, one a round.
median() {
    local figures="$work/figures.$1"
    [ "$(grep -c . "$figures")" = "$rounds" ] || fail "$1 has given no figure in some round"
    sort -g "$figures" | sed -n "$(((rounds + 1) / 2))p"
}

# compare KIND: rounds of raw, tcp and xwarp in turn; prints a line with the medians and ratios.
compare() {
    local who
    rm -f "$work"/figures.*
    for _ in $(seq "$rounds"); do
        for who in raw tcp xwarp; do
            "$1_$who" >>"$work/figures.$who"
        done
    done
    local medians=() of
    for who in raw tcp xwarp; do
        of=$(median "$who")
        medians+=("$of")
    done
    printf '%-10s%6s %-8s' "$1" "$mtu" "$mode"
    echo "${medians[@]}" | awk '{ printf "%12.2f%12.2f%12.2f%12.2f%12.2f\n", $1, $2, $3, $3 / $1, $3 / $2 }'
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

link_table() {
    prepare
    say "medians of $rounds rounds; bandwidth in Gb/s, latency as the round trip of 64 bytes in us, all spinning; kernel TCP without offloads, but with all of them at MTU 65535"
    printf '%-10s%6s %-8s%12s%12s%12s%12s%12s\n' '' MTU mode 'raw AF_XDP' 'kernel TCP' 'RDMA Write' '/ raw' '/ TCP'
    for mtu in 1500 3500 9000 65535; do
        for mode in native generic; do
            clean_up_link
            make_hosts "$a" "$b" "$mtu"
            [ "$mtu" = 65535 ] || without_offloads "$a" "$b"
            compare bandwidth
            [ "$mtu" != 1500 ] || compare latency
        done
    done
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

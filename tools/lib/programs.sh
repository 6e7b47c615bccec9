# What unmodified programs gain by RDMA (`tools/bench --programs`): the same programs over the kernel's TCP and over xwarp, and perftest over
# the drop-in library next to `xwarp perf`. Two network namespaces, a veth pair of MTU 1500 without offloads; rounds in turn, medians.
# Each measure prints a figure, and processor seconds of both ends per unit.
# shellcheck shell=bash disable=SC2154

# Round trips of a measure of latency, and bytes of one of bandwidth, where the program is not told how long to go on.
trips=5000
bytes=$((512 << 20))

# The arguments that run a program with the library.
over_xwarp() { echo "env XWARP_LOG=info $xwarp run --dev eth1 --"; }

# Starts a timed server on host B, and waits until it listens at a port of the kernel's TCP.
serve_at() { # PORT COMMAND...
    local port=$1
    shift
    forget_server
    timed "$work/time.server" ip netns exec "$b" "$@" >"$work/server" 2>&1 &
    server=$!
    until ip netns exec "$b" ss -ltnH "sport = :$port" | grep -q .; do
        kill -0 "$server" 2>/dev/null || { cat "$work/server" >&2; fail "$1 has not started"; }
        sleep 0.05
    done
}

# Runs a timed client on host A.
ask() { # COMMAND...
    timed "$work/time.client" ip netns exec "$a" "$@" >"$work/out" || { cat "$work/out" "$work/server" >&2; fail "the client has failed: $*"; }
}

# What the last line of a report that begins with a number has in a column.
column_of_last() { # N
    grep -E '^ *[0-9]' "$work/out" | tail -n 1 | awk -v n="$1" '{ print $n }'
}

# gain FIGURE UNITS: the figure, and processor seconds per unit.
gain() {
    echo "$1 $(charge "$2")"
}

perftest() { # PROGRAM ARGUMENT...
    softirq=$(softirq_seconds)
    # shellcheck disable=SC2046
    serve_timed 'listening on' $(over_xwarp) "$@" -R -F
    # shellcheck disable=SC2046
    ask $(over_xwarp) "$@" -R -F 10.77.0.2
    served
}

# Of as many writes at a time as `xwarp perf` has.
bandwidth_perftest() {
    perftest ib_write_bw -s 65536 -t 64 -D 2 --report_gbits
    gain "$(column_of_last 4)" "$(units "$(($(column_of_last 2) * 65536))" 1e9)"
}

bandwidth_perf() { bandwidth_xwarp; }

# Half of a round trip, without inline data, which `xwarp perf` does not use.
latency_of_perftest() { # PROGRAM ARGUMENT...
    perftest "$@" -s 64 -n "$trips"
    gain "$(column_of_last 5)" "$(units "$trips" 1e6)"
}

latency_of_perf() { # TEST
    perf "$1" --size 64 --iterations "$trips" --wait busy
    gain "$(number p50 <"$work/out" | awk '{ print $1 / 1000 }')" "$(units "$trips" 1e6)"
}

latency_write_perf() { latency_of_perf write-lat; }
latency_write_perftest() { latency_of_perftest ib_write_lat -I 0; }
latency_send_perf() { latency_of_perf send-lat; }
latency_send_perftest() { latency_of_perftest ib_send_lat -I 0; }
latency_read_perf() { latency_of_perf read-lat; }
latency_read_perftest() { latency_of_perftest ib_read_lat; }

# A test of qperf for two seconds: its latency in nanoseconds, or bytes per second, are in `figure` then.
qperf_of() { # TEST WRAPPER...
    local test=$1
    shift
    softirq=$(softirq_seconds)
    serve_at 19765 "$@" qperf
    ask "$@" qperf -uu -t 2 -cm 1 10.77.0.2 "$test"
    ip netns exec "$a" qperf 10.77.0.2 quit >/dev/null
    served
    figure=$(sed -nE 's/^ *(latency|bw) *= *([0-9]+) .*/\2/p' "$work/out")
}

# It tells the mean of half round trips, so that their number is known.
latency_of_qperf() { # TEST WRAPPER...
    local figure
    qperf_of "$@"
    gain "$(units "$figure" 1e3)" "$(awk -v half="$figure" 'BEGIN { print 2e9 / (2 * half) / 1e6 }')"
}

bandwidth_of_qperf() { # TEST WRAPPER...
    local figure
    qperf_of "$@"
    gain "$(units "$figure" 125e6)" "$(units "$((2 * figure))" 1e9)"
}

# shellcheck disable=SC2046
latency_qperf_rdma() { latency_of_qperf rc_lat $(over_xwarp); }
latency_qperf_tcp() { latency_of_qperf tcp_lat; }
# shellcheck disable=SC2046
bandwidth_qperf_rdma() { bandwidth_of_qperf rc_rdma_write_bw $(over_xwarp); }
bandwidth_qperf_tcp() { bandwidth_of_qperf tcp_bw; }

pingpong() { # BYTES TRIPS PROVIDER WRAPPER...
    local size=$1 count=$2 provider=$3
    shift 3
    softirq=$(softirq_seconds)
    serve_at 47592 "$@" fi_pingpong -p "$provider" -e msg -S "$size" -I "$count"
    ask "$@" fi_pingpong -p "$provider" -e msg -S "$size" -I "$count" 10.77.0.2
    served
}

latency_of_pingpong() { # PROVIDER WRAPPER...
    pingpong 64 "$trips" "$@"
    gain "$(column_of_last 7)" "$(units "$trips" 1e6)"
}

# Megabytes become gigabits; both ways count.
bandwidth_of_pingpong() { # PROVIDER WRAPPER...
    local size=65536 count=4000
    pingpong "$size" "$count" "$@"
    gain "$(units "$(column_of_last 6)" 125)" "$(units "$((2 * size * count))" 1e9)"
}

# shellcheck disable=SC2046
latency_pingpong_rdma() { latency_of_pingpong verbs $(over_xwarp); }
latency_pingpong_tcp() { latency_of_pingpong tcp; }
# shellcheck disable=SC2046
bandwidth_pingpong_rdma() { bandwidth_of_pingpong verbs $(over_xwarp); }
bandwidth_pingpong_tcp() { bandwidth_of_pingpong tcp; }

# Gigabits per second that fio has written in blocks of 64 KiB, 16 at a time.
written_by_fio() {
    sed -n '/"write" :/,$p' "$work/out" | sed -n 's/.*"bw_bytes" : \([0-9]*\).*/\1/p' | awk 'NR == 1 { print $1 * 8 / 1e9 }'
}

blocks=(--bs=64k --iodepth=16 "--size=$bytes")

bandwidth_fio_rdma() {
    softirq=$(softirq_seconds)
    # shellcheck disable=SC2046
    serve_timed 'listening on' $(over_xwarp) fio --name=r --ioengine=rdma --port=8899 --rw=read "${blocks[@]}"
    # shellcheck disable=SC2046
    ask $(over_xwarp) fio --name=s --ioengine=rdma --hostname=10.77.0.2 --port=8899 --verb=write --rw=write "${blocks[@]}" --output-format=json
    served
    gain "$(written_by_fio)" "$(units "$bytes" 1e9)"
}

# A block device in memory.
bandwidth_fio_tcp() {
    softirq=$(softirq_seconds)
    serve_at 10809 nbdkit --foreground --pidfile="$work/nbdkit.pid" --ipaddr=10.77.0.2 memory "$bytes"
    ask fio --name=s --ioengine=nbd --uri=nbd://10.77.0.2/ --rw=write "${blocks[@]}" --output-format=json
    kill "$(cat "$work/nbdkit.pid")"
    served
    gain "$(written_by_fio)" "$(units "$bytes" 1e9)"
}

# What mpirun starts instead of ssh: it enters host B.
write_agent() {
    printf '#!/bin/sh\nshift\nexec ip netns exec %s sh -c "$*"\n' "$b" >"$work/agent"
    chmod 700 "$work/agent"
    mpicc.openmpi -O2 -o "$work/ranks" "$top/tests/bench/ranks.c"
}

# A test of two ranks, which say what processor time they took for it.
ranks() { # TEST UNIT ARGUMENT...: with arguments of mpirun and what runs the program
    local test=$1 unit=$2
    shift 2
    # Read by `charge`.
    # shellcheck disable=SC2034
    softirq=$(softirq_seconds)
    ip netns exec "$a" mpirun.openmpi --allow-run-as-root -np 2 --host 10.77.0.1,10.77.0.2 --mca plm_rsh_agent "$work/agent" \
        "$@" "$work/ranks" "$test" >"$work/out" 2>"$work/server" || { cat "$work/out" "$work/server" >&2; fail "mpirun has failed"; }
    local figure count seconds
    read -r figure count seconds < <(grep -E '^[0-9]' "$work/out")
    echo "$seconds 0" >"$work/time.client"
    echo "0 0" >"$work/time.server"
    gain "$figure" "$(units "$count" "$unit")"
}

ranks_by_tcp() { ranks "$@" --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include eth1; }
ranks_by_rdma() {
    ranks "$@" --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm' --mca btl '^openib' "$xwarp" run --dev eth1 --
}

latency_mpi_tcp() { ranks_by_tcp latency 1e6; }
latency_mpi_rdma() { ranks_by_rdma latency 1e6; }
bandwidth_mpi_tcp() { ranks_by_tcp bandwidth 1e9; }
bandwidth_mpi_rdma() { ranks_by_rdma bandwidth 1e9; }
latency_allreduce_tcp() { ranks_by_tcp allreduce 1e6; }
latency_allreduce_rdma() { ranks_by_rdma allreduce 1e6; }

# compared NAME FIRST SECOND more|less ALLOWED: figures of two contenders whose rounds are over, and their ratio. Says `verdict` where the
# second is worse than allowed: by a part where more is better, by so much where less is.
compared() {
    local figures cpu
    figures="$(spread "$2") $(spread "$3")" cpu="$(spread "$2" 2) $(spread "$3" 2)"
    printf '%-36s' "$1"
    echo "$figures $cpu" | awk -v better="$4" -v allowed="$5" -v verdict="$verdict" '
        function cell(middle, least, most) { return sprintf("%.3g (%.3g-%.3g)", middle, least, most) }
        { wins = better == "more" ? $4 >= $1 * (1 - allowed) : $4 <= $1 + allowed
          printf "%24s%24s%8.2f%10.3g%10.3g  %s\n", cell($1, $2, $3), cell($4, $5, $6), $4 / $1, $7, $10, wins ? "" : verdict }'
}

# against_tcp MEASURE NAME: a line with both transports.
against_tcp() {
    local kind=${1%%_*} verdict='TCP wins'
    take_turns "$1" tcp rdma
    case "$kind" in
        latency) compared "$2 [us]" tcp rdma less 0 ;;
        *) compared "$2 [Gb/s]" tcp rdma more 0 ;;
    esac
}

# latency_against_perf MEASURE NAME: a line with `xwarp perf` and perftest.
latency_against_perf() {
    take_turns "$1" perf perftest
    compared "$2" perf perftest less 0.15
}

# Each group of rows by its name.
rows_perftest() {
    local verdict='misses the goal'
    heading 'xwarp perf' perftest
    take_turns bandwidth perf perftest
    compared 'write 64 KiB [Gb/s]' perf perftest more 0.03
    latency_against_perf latency_send 'Send 64 B, half a round trip [us]'
    latency_against_perf latency_read 'Read 64 B, a round trip [us]'
    latency_against_perf latency_write 'Write 64 B, half a round trip [us]'
    heading 'kernel TCP' RDMA
}

rows_qperf() {
    against_tcp latency_qperf 'qperf tcp_lat, rc_lat'
    against_tcp bandwidth_qperf 'qperf tcp_bw, rc_rdma_write_bw'
}

rows_pingpong() {
    against_tcp latency_pingpong 'fi_pingpong 64 B'
    against_tcp bandwidth_pingpong 'fi_pingpong 64 KiB'
}

rows_mpi() {
    against_tcp latency_mpi 'Open MPI 8 B'
    against_tcp bandwidth_mpi 'Open MPI 64 KiB'
}

rows_allreduce() { against_tcp latency_allreduce 'Open MPI Allreduce 8 B'; }

rows_fio() { against_tcp bandwidth_fio 'fio write: nbd, rdma'; }

heading() { # FIRST SECOND
    printf '%-36s%24s%24s%8s%10s%10s\n' '' "$1" "$2" ratio CPU CPU
}

groups=(perftest qperf pingpong mpi allreduce fio)

programs_table() { # [GROUP...]
    local group wanted=("$@")
    [ $# -gt 0 ] || wanted=("${groups[@]}")
    for group in "${wanted[@]}"; do
        declare -F "rows_$group" >/dev/null || fail "no group of rows is named $group; there are ${groups[*]}"
    done
    # `mode` is read by `perf`.
    # shellcheck disable=SC2034
    local mtu=1500 mode=native
    prepare
    need_packages perftest:/usr/bin/ib_write_bw qperf:/usr/bin/qperf libfabric-bin:/usr/bin/fi_pingpong fio:/usr/bin/fio nbdkit:/usr/bin/nbdkit \
        openmpi-bin:/usr/bin/mpirun.openmpi libopenmpi-dev:/usr/bin/mpicc.openmpi
    "$top/tools/dropin" >/dev/null
    write_agent
    clean_up_link
    make_hosts "$a" "$b" "$mtu"
    without_offloads "$a" "$b"
    say "medians of $rounds rounds in turn (least-most), MTU $mtu without offloads; CPU: seconds of both ends per gigabyte, or per million round trips or operations"
    [ "${wanted[0]}" = perftest ] || heading 'kernel TCP' RDMA
    for group in "${wanted[@]}"; do
        "rows_$group"
    done
}

# Instructions per frame of xwarp's driver on network cards with real drivers, next to a minimal
# loop, with copies and without (`tools/bench --cards`). The cards are those of guests under qemu
# (tests/guests). Times in an emulation have no meaning, so instructions are counted.
# shellcheck shell=bash disable=SC2034,SC2154

lab=$top/tests/guests/images/nic/lab
# The source's link may be down for its first two seconds: igb resets for its program.
source_milliseconds=5000

# How long a loop sleeps after a turn without frames, in microseconds.
pause=500
link=$built/link

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

# per_frame FUNCTION FRAMES: instructions per frame of a function in callgrind's profile, callees included.
per_frame() {
    local total
    total=$(callgrind_annotate --inclusive=yes --threshold=100 --auto=no "$work/profile" |
        sed -n "s/^ *\([0-9,]*\) .*:$1 \[.*/\1/p" | head -n 1 | tr -d ,)
    [ -n "$total" ] || fail "callgrind does not name $1"
    echo "$(((total + $2 / 2) / $2))"
}

in_guest() { # END COMMAND
    "$lab" exec --timeout 240 "$work/guest" "$1" "$2"
}

await_carrier() { # END DEV
    # shellcheck disable=SC2016
    in_guest "$1" 'for _ in $(seq 100); do [ "$(cat /sys/class/net/'"$2"'/carrier)" != 1 ] || exit 0; sleep 0.1; done; exit 1' ||
        fail "$2 of the guest has no link"
}

# link_in COMMAND END COPIES: a program of `link` at an end of the guest's cable.
link_in() {
    local near=(eth0 10.9.0.1) far=(10.9.0.2 "$mac_b")
    [ "$2" = a ] || near=(eth1 10.9.0.2) far=(10.9.0.1 "$mac_a")
    echo "$link $1 --dev ${near[0]} --local ${near[1]} --remote ${far[0]} --mac ${far[1]} --bytes 64 --copies $3"
}

# counted_in_guest FUNCTION COPIES COMMAND: instructions per frame of a function at end b, while a
# command receives frames or sends them back.
counted_in_guest() {
    local valgrind="valgrind --quiet --tool=callgrind --callgrind-out-file=/tmp/profile"
    forget_server
    in_guest b "$valgrind $3" >"$work/server" 2>&1 &
    server=$!
    await_server ready "$3"
    await_carrier b eth1
    in_guest a "$(link_in raw-source a "$2") --window 0 --milliseconds $source_milliseconds" >/dev/null
    served
    in_guest b 'cat /tmp/profile' >"$work/profile"
    per_frame "$1" "$(tail -n 1 "$work/server" | cut -d' ' -f2)"
}

# card_rows CARD: boots a guest with such cards, and prints a line for each kind of work and of
# copies.
card_rows() {
    local copies work_of_driver minimal driver mac_a mac_b
    "$lab" up "$image" "$1" "$work/guest"
    in_guest a 'ethtool -L eth0 combined 1 || true' >/dev/null 2>&1
    in_guest b 'ethtool -L eth1 combined 1 || true' >/dev/null 2>&1
    mac_a=$(in_guest a 'cat /sys/class/net/eth0/address') mac_b=$(in_guest b 'cat /sys/class/net/eth1/address')
    for work_of_driver in receive forward; do
        for copies in copy zero-copy; do
            minimal=$(counted_in_guest turn "$copies" "$work/minimal eth1 $copies $work_of_driver $pause")
            driver=$(counted_in_guest 'link::driver::xwarp_turn' "$copies" "$(link_in driver b "$copies") $work_of_driver --pause $pause")
            printf '%-10s%-12s%-12s%16s%16s\n' "$1" "$copies" "$work_of_driver" "$minimal" "$driver"
        done
    done
    "$lab" down "$work/guest"
}

cards_table() {
    local image card
    image=$("$top/tests/guests/images/nic/image") || exit
    prepare
    trap '"$lab" down "$work/guest"; rm -rf "$work"' EXIT
    build_minimal
    # One guest at a time: it uses all processors. The lock ends with the process.
    exec 8>/run/xwarp-nic-tests.lock
    flock 8
    say "instructions per frame of 64 bytes, one queue, MTU 1500, native XDP"
    printf '%-10s%-12s%-12s%16s%16s\n' card '' '' 'minimal loop' xwarp
    for card in igb virtio; do card_rows "$card"; done
}

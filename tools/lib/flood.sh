# Number of honest clients that a flooded server serves: `tools/bench --flood`. Two network
# namespaces are joined by a veth pair. Host A is both the attackers and the honest clients.
# shellcheck shell=bash disable=SC2154

. "$top/tools/lib/link.sh"

clients=12

# flood SYNS ACKS COMMAND...: runs a command while host B is flooded.
flood() {
    local syns=$1 acks=$2 sender
    shift 2
    mkfifo "$work/keep"
    : >"$work/flood"
    ip netns exec "$a" "$link" flood --dev eth1 --target 10.77.0.2:7174 --mac "$(mac_of "$b")" \
        --syns "$syns" --acks "$acks" <"$work/keep" >"$work/flood" &
    sender=$!
    exec 9>"$work/keep"
    rm "$work/keep"
    until grep -q ready "$work/flood"; do
        kill -0 "$sender" 2>/dev/null || fail "nothing can be sent"
        sleep 0.05
    done
    "$@"
    exec 9>&-
    wait "$sender"
}

# Sends some pings of each client, one client after the other. Prints the number of clients served,
# and the longest time in seconds of one.
serve_clients() {
    local client served=0 began took longest=0
    sleep 0.5 # 20,000 SYNs a second have filled the backlog by then; 60 never do
    for client in $(seq "$clients"); do
        began=$EPOCHREALTIME
        ip netns exec "$a" timeout 15 "$xwarp" ping --count 3 --quiet 10.77.0.2 >"$work/client.$client" 2>&1 9>&- || continue
        served=$((served + 1))
        took=$(awk -v began="$began" -v ended="$EPOCHREALTIME" 'BEGIN { print ended - began }')
        longest=$(awk -v a="$longest" -v b="$took" 'BEGIN { print (a > b ? a : b) }')
    done
    echo "$served $longest" >"$work/served"
}

flood_table() {
    local syns acks served longest sent_syns sent_acks bad=0
    prepare
    say "honest clients served of $clients while a server is sent so many SYNs and ACKs a second; the longest that one took"
    printf '%10s%10s%12s%12s%10s%14s\n' 'SYNs/s' 'ACKs/s' 'SYNs sent' 'ACKs sent' served 'longest [s]'
    for syns in 60 20000; do
        for acks in 0 500 1500 3000 6000 12000 20000; do
            clean_up_link
            make_hosts "$a" "$b" 1500
            serve '^waiting' "$xwarp" ping --persistent --quiet --dev eth1
            flood "$syns" "$acks" serve_clients
            kill "$server"
            wait "$server" || true
            read -r served longest <"$work/served"
            read -r sent_syns sent_acks < <(tail -n 1 "$work/flood")
            printf '%10d%10d%12d%12d%10d%14.2f\n' "$syns" "$acks" "$sent_syns" "$sent_acks" "$served" "$longest"
            [ "$served" = "$clients" ] || bad=1
        done
    done
    [ "$bad" = 0 ] || fail "some were not served"
}

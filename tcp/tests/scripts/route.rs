//! Routes with an MTU or an MSS of their own (`ip route ... mtu 900 advmss 600`). The kernel's TCP
//! gave the numbers.

use crate::{ESTABLISHED, run, run_after};

/// The MSS that is offered bounds the peer's segments. The route and the peer's MSS bound ours.
#[test]
fn active_open_offers_what_the_route_has_room_for_and_sends_no_more() {
    for (metrics, mss, sent) in [
        ("mtu=900", 860, 860),
        ("advmss=600", 600, 1460),
        ("mtu=900 advmss=600", 600, 860),
        ("mtu=900 advmss=1000", 1000, 860),
        ("mtu=9000", 1460, 1460),
        ("advmss=9000", 1460, 1460),
        ("mtu=200", 256, 160),
        ("mtu=60", 256, 48),
        ("mtu=0 advmss=0", 48, 48),
    ] {
        run(&format!(
            "
config timestamps=off
connect {metrics}
> S 0:0(0) win 65535 <mss {mss},nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 win 65535 <mss 1460>
> . 1:1(0) ack 1
write {sent}
> P. 1:{end}({sent}) ack 1
refuse 14600
",
            end = sent + 1
        ));
    }
}

#[test]
fn answer_to_a_syn_awaits_the_route_and_offers_what_that_has_room_for() {
    for (metrics, mss, sent) in [
        ("", 1460, 1460),
        ("mtu=900", 860, 860),
        ("advmss=600", 600, 1460),
    ] {
        run(&format!(
            "
await
listen
< S 0:0(0) win 65535 <mss 1460>
event RouteWanted
nothing
+2ms < S 0:0(0) win 65535 <mss 1460>
nothing
route {metrics}
> S. 0:0(0) ack 1 win 65535 <mss {mss}>
< . 1:1(0) ack 1 win 65535
event Incoming
write {sent}
> P. 1:{end}({sent}) ack 1
",
            end = sent + 1
        ));
    }
}

/// The peer aborts before the route is known.
#[test]
fn route_to_a_peer_that_has_gone_is_of_no_matter() {
    run("
await
listen
< S 0:0(0) win 65535 <mss 1460>
event RouteWanted
< R 1:1(0) win 0
route mtu=900
event none
");
}

/// Data in flight is retransmitted in pieces, as after a router's message.
#[test]
fn route_that_becomes_narrower_cuts_what_is_in_flight_and_a_wider_one_changes_nothing() {
    run_after(
        ESTABLISHED,
        "
write 1460
> P. 1:1461(1460) ack 1
route mtu=900
> P. 861:1461(600) ack 1
> P. 1:861(860) ack 1
< . 1:1(0) ack 1461 win 65535
route mtu=1400
write 860
> P. 1461:2321(860) ack 1
",
    );
}

//! Selective acknowledgments, both ways.

use xwarp_test_kit::cases;

use crate::{ESTABLISHED, PLAIN, TIMESTAMPS, run_after};

/// Five segments of 1000 bytes in flight.
const FIVE: &str = "
write 1000
> P. 1:1001(1000) ack 1
write 1000
> P. 1001:2001(1000) ack 1
write 1000
> P. 2001:3001(1000) ack 1
write 1000
> P. 3001:4001(1000) ack 1
write 1000
> P. 4001:5001(1000) ack 1
";

fn with_five(script: &str) {
    run_after(ESTABLISHED, &format!("{FIVE}{script}"));
}

#[test]
fn hole_is_told_at_once_and_filled_silently() {
    run_after(
        ESTABLISHED,
        "
< P. 101:201(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:201>
unread 0
< P. 1:101(100) ack 1
> . 1:1(0) ack 201
read 200
",
    );
}

#[test]
fn newest_block_comes_first() {
    run_after(
        ESTABLISHED,
        "
< P. 101:201(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:201>
< P. 301:401(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 301:401 101:201>
< P. 501:601(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 501:601 301:401 101:201>
< P. 701:801(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 701:801 501:601 301:401>
< P. 201:301(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:401 701:801 501:601>
< P. 1:101(100) ack 1
> . 1:1(0) ack 401 <nop,nop,sack 701:801 501:601>
read 400
",
    );
}

#[test]
fn blocks_have_room_beside_a_timestamp() {
    run_after(
        TIMESTAMPS,
        "
< P. 101:201(100) ack 1 win 65535 <nop,nop,TS val 111 ecr 0>
> . 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110,nop,nop,sack 101:201>
",
    );
}

#[test]
fn duplicate_is_named() {
    run_after(
        ESTABLISHED,
        "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101
< P. 1:101(100) ack 1
> . 1:1(0) ack 101 <nop,nop,sack 1:101>
read 100
",
    );
}

#[test]
fn duplicate_out_of_order_is_named_with_its_block() {
    run_after(
        ESTABLISHED,
        "
< P. 101:301(200) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:301>
< P. 101:201(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:201 101:301>
",
    );
}

#[test]
fn what_is_partly_known_is_taken_and_named() {
    run_after(
        ESTABLISHED,
        "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101
< P. 51:201(150) ack 1
> . 1:1(0) ack 201 <nop,nop,sack 51:101>
read 200
",
    );
}

#[test]
fn peer_without_sack_gets_plain_duplicate_acks() {
    run_after(
        PLAIN,
        "
< P. 101:201(100) ack 1
> . 1:1(0) ack 1
< P. 201:301(100) ack 1
> . 1:1(0) ack 1
< P. 1:101(100) ack 1
> . 1:1(0) ack 301
read 300
",
    );
}

#[test]
fn fin_out_of_order_waits() {
    run_after(
        ESTABLISHED,
        "
< F. 101:201(100) ack 1
> . 1:1(0) ack 1 <nop,nop,sack 101:201>
event none
< P. 1:101(100) ack 1
> . 1:1(0) ack 202
event Readable
event PeerClosed
read 200
",
    );
}

#[test]
fn three_segments_that_overtook_a_first_one_have_it_repeated() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:2001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:3001>
nothing
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:4001>
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:5001>
+10ms < . 1:1(0) ack 5001
",
    );
}

#[test]
fn one_segment_that_overtook_is_enough_after_a_quarter_of_a_round_trip() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:2001>
+2500us > P. 1:1001(1000) ack 1
+7500us < . 1:1(0) ack 5001
",
    );
}

#[test]
fn two_holes_are_repaired_in_one_round_trip() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:2001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 3001:4001 1001:2001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 3001:5001 1001:2001>
> P. 1:1001(1000) ack 1
> P. 2001:3001(1000) ack 1
+10ms < . 1:1(0) ack 5001
",
    );
}

#[test]
fn lost_retransmission_is_found_by_what_was_sent_after_it() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:4001>
> P. 1:1001(1000) ack 1
+1ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:5001>
write 1000
> P. 5001:6001(1000) ack 1
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:6001>
> P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 6001
",
    );
}

#[test]
fn duplicate_of_the_retransmission_undoes_the_repair() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:4001>
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 5001
< . 1:1(0) ack 5001 win 65535 <nop,nop,sack 1:1001>
write 1000
> P. 5001:6001(1000) ack 1
",
    );
}

#[test]
fn blocks_of_bytes_never_sent_are_ignored() {
    with_five(
        "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 90001:91001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:9001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:-2147482649>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack -2147482649:5001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 5001:1>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 4001:9001>
< . 1:1(0) ack 1 win 65535 <nop,nop,sack 3001:2001>
nothing
< . 1:1(0) ack 5001
",
    );
}

#[test]
fn window_halves_while_a_loss_is_repaired() {
    // Ten segments; after the repair five may be in flight.
    run_after(
        ESTABLISHED,
        &format!(
            "{FIVE}
write 1000
> P. 5001:6001(1000) ack 1
write 1000
> P. 6001:7001(1000) ack 1
write 1000
> P. 7001:8001(1000) ack 1
write 1000
> P. 8001:9001(1000) ack 1
write 1000
> P. 9001:10001(1000) ack 1
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:4001>
> P. 1:1001(1000) ack 1
+1ms < . 1:1(0) ack 10001
write 1000
> P. 10001:11001(1000) ack 1
write 1000
> P. 11001:12001(1000) ack 1
write 1000
> P. 12001:13001(1000) ack 1
write 1000
> P. 13001:14001(1000) ack 1
write 1000
> P. 14001:15001(1000) ack 1
"
        ),
    );
}

/// A block further back than any window, or half the sequence space away, is no duplicate of a
/// retransmission.
#[test]
fn duplicate_of_what_was_never_sent_undoes_nothing() {
    for block in cases([
        "-70000:-69000",
        "-2147482647:-2147481647",
        "-2147478647:1001",
        "2147479648:2147480648",
    ]) {
        with_five(&format!(
            "
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:4001>
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 5001
< . 1:1(0) ack 5001 win 65535 <nop,nop,sack {block}>
write 1460
> P. 5001:6461(1460) ack 1
write 1460
> P. 6461:7921(1460) ack 1
refuse 1460     # the window was halved
"
        ));
    }
}

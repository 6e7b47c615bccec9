//! Explicit congestion notification: negotiated (RFC 3168 §6.1.1), marked, and echoed as DCTCP does
//! it (RFC 8257 §3.2).

use crate::{run, run_after};

/// A connection that the peer has opened, on which both sides support ECN.
const AGREED: &str = "
config congestion=dctcp
listen
< SEW 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> SE. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
+10ms < . 1:1(0) ack 1 win 65535
event Incoming
";

/// A connection that the host has opened, on which both sides support ECN.
const OPENED: &str = "
config congestion=dctcp timestamps=off
connect
> SEW 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
+10ms < SE. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> . 1:1(0) ack 1
event Connected
";

#[test]
fn data_may_be_marked_and_the_handshake_may_not() {
    run_after(AGREED, "write 1000\n> P. 1:1001(1000) ack 1 ecn ect0\n");
    run_after(OPENED, "write 1000\n> P. 1:1001(1000) ack 1 ecn ect0\n");
}

#[test]
fn ecn_is_not_used_with_a_peer_that_does_not_know_it() {
    run("
config congestion=dctcp timestamps=off
connect
> SEW 0:0(0) <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 <mss 1460>
> . 1:1(0) ack 1
event Connected
write 1000
> P. 1:1001(1000) ack 1
< P. 1:101(100) ack 1001 ecn ce
> . 1001:1001(0) ack 101
read 100
");
}

#[test]
fn peer_that_only_reflects_the_flags_does_not_know_ecn() {
    run("
config congestion=dctcp timestamps=off
connect
> SEW 0:0(0) <mss 1460,nop,nop,sackOK,nop,wscale 3>
< SEW. 0:0(0) ack 1 <mss 1460>
> . 1:1(0) ack 1
event Connected
write 1000
> P. 1:1001(1000) ack 1
");
}

#[test]
fn listener_that_was_not_asked_does_not_offer() {
    run("
config congestion=dctcp
listen
< S 0:0(0) <mss 1460>
> S. 0:0(0) ack 1 <mss 1460>
");
}

#[test]
fn without_an_algorithm_that_wants_marks_ecn_is_declined() {
    run("
listen
< SEW 0:0(0) <mss 1460>
> S. 0:0(0) ack 1 <mss 1460>
< . 1:1(0) ack 1
event Incoming
write 1000
> P. 1:1001(1000) ack 1
");
}

#[test]
fn marks_are_echoed_exactly_and_a_change_is_told_of_what_came_before() {
    run_after(
        AGREED,
        "
< P. 1:101(100) ack 1 ecn ect0
> . 1:1(0) ack 101
< P. 101:201(100) ack 1 ecn ce
> E. 1:1(0) ack 201
< P. 201:301(100) ack 1 ecn ce
> E. 1:1(0) ack 301
< P. 301:401(100) ack 1 ecn ect0
> . 1:1(0) ack 401
read 400
",
    );
}

#[test]
fn mark_within_a_batch_splits_its_acknowledgment() {
    run_after(
        AGREED,
        "
<< P. 1:101(100) ack 1 ecn ect0
<< P. 101:201(100) ack 1 ecn ce
< P. 201:301(100) ack 1 ecn ce
> . 1:1(0) ack 101
> E. 1:1(0) ack 301
<< P. 301:401(100) ack 1 ecn ce
< P. 401:501(100) ack 1 ecn ect0
> E. 1:1(0) ack 401
> . 1:1(0) ack 501
read 500
",
    );
}

#[test]
fn data_sent_meanwhile_carries_the_echo() {
    run_after(
        AGREED,
        "
< P. 1:101(100) ack 1 ecn ce
> E. 1:1(0) ack 101
write 1000
> PE. 1:1001(1000) ack 101 ecn ect0
< P. 101:201(100) ack 1001 ecn ect0
> . 1001:1001(0) ack 201
write 1000
> P. 1001:2001(1000) ack 201 ecn ect0
read 200
",
    );
}

#[test]
fn pure_acknowledgment_that_is_marked_says_nothing() {
    run_after(
        AGREED,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
< . 1:1(0) ack 1001 ecn ce
write 1000
> P. 1001:2001(1000) ack 1 ecn ect0
",
    );
}

#[test]
fn echo_is_answered_with_cwr_once_per_window() {
    run_after(
        AGREED,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
write 1000
> P. 1001:2001(1000) ack 1 ecn ect0
< E. 1:1(0) ack 1001
write 1000
> PW. 2001:3001(1000) ack 1 ecn ect0
< E. 1:1(0) ack 2001 # sent before the answer
write 1000
> P. 3001:4001(1000) ack 1 ecn ect0
< E. 1:1(0) ack 3001
write 1000
> PW. 4001:5001(1000) ack 1 ecn ect0
",
    );
}

#[test]
fn segment_sent_again_may_not_be_marked() {
    run_after(
        AGREED,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
+25ms > P. 1:1001(1000) ack 1
",
    );
}

#[test]
fn segment_that_waited_for_the_window_may_be_marked_when_it_leaves() {
    run("
config congestion=dctcp
listen
< SEW 0:0(0) win 1000 <mss 1460>
> SE. 0:0(0) ack 1 <mss 1460>
< . 1:1(0) ack 1 win 1000
event Incoming
write 1500
> P. 1:1001(1000) ack 1 ecn ect0
< . 1:1(0) ack 1001 win 1000
> P. 1001:1501(500) ack 1 ecn ect0
");
}

#[test]
fn ack_that_waits_is_sent_before_the_echo_changes() {
    run_after(
        &AGREED.replace("congestion=dctcp", "congestion=dctcp ack_delay=1ms"),
        "
< P. 1:101(100) ack 1 ecn ect0
> . 1:1(0) ack 101
event Readable
read 100
write 50
> P. 1:51(50) ack 101 ecn ect0
< P. 101:201(100) ack 51 ecn ect0
nothing
< P. 201:301(100) ack 51 ecn ce
> . 51:51(0) ack 201
> E. 51:51(0) ack 301
event Readable
read 200
",
    );
}

//! Timestamps and protection against wrapped sequence numbers (RFC 7323).

use xwarp_test_kit::cases;

use crate::{TIMESTAMPS, run, run_after};

#[test]
fn latest_timestamp_in_order_is_echoed() {
    run_after(
        TIMESTAMPS,
        "
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 120 ecr 0>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 120>
< P. 201:301(100) ack 1 win 65535 <nop,nop,TS val 130 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 120,nop,nop,sack 201:301>
read 100
",
    );
}

#[test]
fn old_timestamp_is_refused_with_an_ack() {
    run_after(
        TIMESTAMPS,
        "
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 109 ecr 10>
> . 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110>
unread 0
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 110 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 110>
read 100
",
    );
}

#[test]
fn segment_without_a_timestamp_is_dropped_silently() {
    run_after(
        TIMESTAMPS,
        "
< P. 1:101(100) ack 1
nothing
unread 0
",
    );
}

#[test]
fn reset_needs_no_timestamp() {
    run_after(
        TIMESTAMPS,
        "
< R 1:1(0)
event Reset
",
    );
}

#[test]
fn after_twenty_four_days_of_silence_any_timestamp_is_believed() {
    run_after(
        TIMESTAMPS,
        "
+2073601s < P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 5 ecr 0>
> . 1:1(0) ack 101 <nop,nop,TS val 2073601010 ecr 5>
read 100
",
    );
}

/// 2^31 less 1000 behind the expected number: the distance at which two comparisons modulo 2^32
/// contradict each other.
#[test]
fn segment_half_the_space_behind_leaves_the_latest_timestamp_alone() {
    for stranger in cases([
        "F. -2147482647:-2147482647(0) ack 12345",
        "F. -2147482647:-2147482647(0) ack 1",
        "P. -2147482647:-2147482646(1) ack 12345",
        "P. -2147482647:-2147482646(1) ack 1",
        "F. -2147483647:-2147483647(0) ack 1",
        "P. -2147483547:-2147483447(100) ack 1",
    ]) {
        run_after(
            TIMESTAMPS,
            &format!(
                "
< {stranger} win 65535 <nop,nop,TS val 1073741934 ecr 10>
> . 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110>
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 110 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 110>
event Readable
event none
read 100
"
            ),
        );
    }
}

#[test]
fn segment_with_an_impossible_ack_leaves_the_latest_timestamp_alone() {
    for ack in cases([2, -70_000, -2_147_483_647]) {
        run_after(
            TIMESTAMPS,
            &format!(
                "
< P. 1:101(100) ack {ack} win 65535 <nop,nop,TS val 1073741934 ecr 10>
> . 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110>
unread 0
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 110 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 110>
read 100
"
            ),
        );
    }
}

#[test]
fn segment_without_ack_leaves_the_latest_timestamp_alone() {
    run_after(
        TIMESTAMPS,
        "
< P 1:101(100) win 65535 <nop,nop,TS val 1073741934 ecr 0>
nothing
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 110 ecr 0>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 110>
read 100
",
    );
}

#[test]
fn half_open_connection_keeps_its_timestamp_when_the_ack_is_wrong() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460,sackOK,TS val 100 ecr 0,nop,wscale 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 0 ecr 100,nop,wscale 3>
< . 1:1(0) ack 7 win 65535 <nop,nop,TS val 1073741924 ecr 0>
> R 7:7(0) win 0
< . 1:1(0) ack 1 win 65535 <nop,nop,TS val 100 ecr 0>
event Incoming
");
}

/// An echo is false if its timestamp was never sent, or was sent minutes before the latest one that
/// was echoed.
#[test]
fn segment_that_echoes_what_was_not_sent_is_dropped() {
    for echo in cases([11, 1000, 4_032_823_285_u32, 2_147_483_647, 2_147_483_648]) {
        run_after(
            TIMESTAMPS,
            &format!(
                "
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 111 ecr {echo}>
> . 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110>
unread 0
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 110 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 110>
read 100
"
            ),
        );
    }
}

#[test]
fn older_echo_is_taken_after_any_silence() {
    run_after(
        TIMESTAMPS,
        "
+3600s < P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 3600110 ecr 0>
> . 1:1(0) ack 101 <nop,nop,TS val 3600010 ecr 3600110>
+3600s < P. 101:201(100) ack 1 win 65535 <nop,nop,TS val 7200110 ecr 0>
> . 1:1(0) ack 201 <nop,nop,TS val 7200010 ecr 7200110>
< P. 201:301(100) ack 1 win 65535 <nop,nop,TS val 7200110 ecr 3600010>
> . 1:1(0) ack 301 <nop,nop,TS val 7200010 ecr 7200110>
< P. 301:401(100) ack 1 win 65535 <nop,nop,TS val 7200110 ecr 7200010>
> . 1:1(0) ack 401 <nop,nop,TS val 7200010 ecr 7200110>
read 400
",
    );
}

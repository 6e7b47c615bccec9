//! Timestamps and protection against wrapped sequence numbers (RFC 7323).

use crate::{TIMESTAMPS, run_after};

#[test]
fn the_latest_timestamp_in_order_is_echoed() {
    run_after(
        TIMESTAMPS,
        "
< P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 120 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 120>
< P. 201:301(100) ack 1 win 65535 <nop,nop,TS val 130 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 10 ecr 120,nop,nop,sack 201:301>
read 100
",
    );
}

#[test]
fn an_old_timestamp_is_refused_with_an_ack() {
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
fn a_segment_without_a_timestamp_is_dropped_silently() {
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
fn a_reset_needs_no_timestamp() {
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
+2073601s < P. 1:101(100) ack 1 win 65535 <nop,nop,TS val 5 ecr 10>
> . 1:1(0) ack 101 <nop,nop,TS val 2073601010 ecr 5>
read 100
",
    );
}

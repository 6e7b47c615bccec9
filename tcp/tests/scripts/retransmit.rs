//! Losses that no ACK reports: timeouts and tail probes.

use crate::{ESTABLISHED, PLAIN, TIMESTAMPS, run, run_after};

#[test]
fn lost_tail_is_probed_after_two_round_trips_and_the_floor() {
    run_after(
        ESTABLISHED,
        "
write 1000
> P. 1:1001(1000) ack 1
write 1000
> P. 1001:2001(1000) ack 1
+25ms > P. 1001:2001(1000) ack 1   # the last one, 2 SRTT and the floor after it was sent
+10ms < . 1:1(0) ack 1 win 65535 <nop,nop,sack 1001:2001>
> P. 1:1001(1000) ack 1            # RACK: it was sent before the probe, and a round trip ago
< . 1:1(0) ack 2001
",
    );
}

#[test]
fn probe_that_repairs_is_followed_by_new_data() {
    run_after(
        ESTABLISHED,
        "
write 1000
> P. 1:1001(1000) ack 1
+25ms > P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 1001
write 1000
> P. 1001:2001(1000) ack 1
< . 1:1(0) ack 2001
",
    );
}

#[test]
fn probe_comes_no_later_than_the_timeout_and_in_its_place() {
    // After some samples of a steady round trip of 10 ms, the timeout is a floor of 50 ms above it,
    // later than 2 SRTT and the floor.
    run(&format!(
        "config min_rto=50ms
{ESTABLISHED}
write 1000
> P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 1001
write 1000
> P. 1001:2001(1000) ack 1
+60ms > P. 1001:2001(1000) ack 1   # the probe
+60ms > P. 1001:2001(1000) ack 1   # the timeout
+100ms > P. 1001:2001(1000) ack 1  # and the next, twice the floor later
< . 1:1(0) ack 2001
"
    ));
}

#[test]
fn timeout_without_sack_repeats_the_first_segment_and_backs_off() {
    // RTO = SRTT + 4 RTTVAR = 30 ms.
    run_after(
        PLAIN,
        "
write 500
> P. 1:501(500) ack 1
+30ms > P. 1:501(500) ack 1
+60ms > P. 1:501(500) ack 1
+120ms > P. 1:501(500) ack 1
< . 1:1(0) ack 501
",
    );
}

#[test]
fn timer_starts_anew_with_each_acknowledgment() {
    // The sample of 20 ms: RTTVAR = 3/4 * 5 + 1/4 * 10 = 6.25, SRTT = 11.25, RTO = 36.25 ms.
    run_after(
        PLAIN,
        "
write 500
> P. 1:501(500) ack 1
write 500
> P. 501:1001(500) ack 1
+20ms < . 1:1(0) ack 501
+36250us > P. 501:1001(500) ack 1
< . 1:1(0) ack 1001
",
    );
}

#[test]
fn after_a_timeout_the_window_is_one_segment() {
    run_after(
        PLAIN,
        "
write 1460
> P. 1:1461(1460) ack 1
write 1460
> P. 1461:2921(1460) ack 1
write 1460
> P. 2921:4381(1460) ack 1
+30ms > P. 1:1461(1460) ack 1
+10ms < . 1:1(0) ack 1461
> P. 1461:2921(1460) ack 1
> P. 2921:4381(1460) ack 1
< . 1:1(0) ack 4381
",
    );
}

#[test]
fn echo_of_the_original_undoes_a_timeout() {
    // The ACK echoes the timestamp of the first transmission: there are no further retransmissions
    // (RFC 3522).
    run_after(
        TIMESTAMPS,
        "
write 1448
> P. 1:1449(1448) ack 1 <nop,nop,TS val 10 ecr 110>
write 1448
> P. 1449:2897(1448) ack 1 <nop,nop,TS val 10 ecr 110>
+25ms > P. 1449:2897(1448) ack 1 <nop,nop,TS val 35 ecr 110>
+30ms > P. 1:1449(1448) ack 1 <nop,nop,TS val 65 ecr 110>
< . 1:1(0) ack 1449 win 65535 <nop,nop,TS val 150 ecr 10>
< . 1:1(0) ack 2897 win 65535 <nop,nop,TS val 150 ecr 10>
write 1448
> P. 2897:4345(1448) ack 1 <nop,nop,TS val 65 ecr 150>
",
    );
}

#[test]
fn retransmission_carries_the_acknowledgment_and_window_of_its_time() {
    run_after(
        PLAIN,
        "
write 500
> P. 1:501(500) ack 1 win 65535
< P. 1:1001(1000) ack 1
> . 501:501(0) ack 1001
+30ms > P. 1:501(500) ack 1001 win 65535
read 1000
",
    );
}

#[test]
fn segment_that_the_kernel_has_not_sent_is_not_repeated() {
    run_after(
        PLAIN,
        "
busy on
write 500
> P. 1:501(500) ack 1
+200ms nothing
busy off
+1ms > P. 1:501(500) ack 1
< . 1:1(0) ack 501
",
    );
}

#[test]
fn unacknowledged_bytes_time_out() {
    run_after(
        &format!("config user_timeout=50ms\n{PLAIN}"),
        "
write 500
> P. 1:501(500) ack 1
+30ms > P. 1:501(500) ack 1
+7500us > P. 1:501(500) ack 1    # the last try, a quarter of the user timeout before the end
+12500us > R. 501:501(0) ack 1 win 0
event TimedOut
",
    );
}

#[test]
fn three_duplicate_acks_repeat_one_segment_at_once() {
    run_after(
        PLAIN,
        "
write 1000
> P. 1:1001(1000) ack 1
write 1000
> P. 1001:2001(1000) ack 1
write 1000
> P. 2001:3001(1000) ack 1
write 1000
> P. 3001:4001(1000) ack 1
+10ms < . 1:1(0) ack 1
< . 1:1(0) ack 1
nothing
< . 1:1(0) ack 1
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 4001
",
    );
}

#[test]
fn partial_acknowledgment_repeats_the_next_hole() {
    run_after(
        PLAIN,
        "
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
+10ms < . 1:1(0) ack 1
< . 1:1(0) ack 1
< . 1:1(0) ack 1
> P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 2001
> P. 2001:3001(1000) ack 1
< . 1:1(0) ack 5001
",
    );
}

#[test]
fn lost_fin_is_sent_again() {
    run_after(
        PLAIN,
        "
close
> F. 1:1(0) ack 1
+30ms > F. 1:1(0) ack 1
< . 1:1(0) ack 2
",
    );
}

//! Connections end, in every order.

use xwarp_test_kit::cases;

use crate::{ESTABLISHED, TIMESTAMPS, run_after};

#[test]
fn we_close_first() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< . 1:1(0) ack 2
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
event PeerClosed
event Graceful
",
    );
}

#[test]
fn they_close_first() {
    run_after(
        ESTABLISHED,
        "
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
event PeerClosed
close
> F. 1:1(0) ack 2
< . 2:2(0) ack 2
event Graceful
< . 2:2(0) ack 2
> R 2:2(0) win 0
",
    );
}

#[test]
fn both_close_at_once() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 1
> . 2:2(0) ack 2
event PeerClosed
event none
< . 2:2(0) ack 2
event Graceful
",
    );
}

#[test]
fn their_fin_may_acknowledge_ours() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
event PeerClosed
event Graceful
",
    );
}

#[test]
fn fin_follows_what_was_written() {
    run_after(
        ESTABLISHED,
        "
write 1000
> P. 1:1001(1000) ack 1
close
> F. 1001:1001(0) ack 1
refuse 1
< . 1:1(0) ack 1002
",
    );
}

#[test]
fn bytes_come_after_our_fin() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< . 1:1(0) ack 2
< P. 1:101(100) ack 2
> . 2:2(0) ack 101
read 100
< F. 101:101(0) ack 2
> . 2:2(0) ack 102
",
    );
}

#[test]
fn bytes_go_after_their_fin() {
    run_after(
        ESTABLISHED,
        "
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
write 1000
> P. 1:1001(1000) ack 2
< . 2:2(0) ack 1001
close
> F. 1001:1001(0) ack 2
< . 2:2(0) ack 1002
",
    );
}

#[test]
fn repeated_fin_is_acknowledged_again_in_time_wait() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
+9s < F. 1:1(0) ack 2
> . 2:2(0) ack 2
+9s < F. 1:1(0) ack 2
> . 2:2(0) ack 2
+11s < F. 1:1(0) ack 2
> R 2:2(0) win 0
",
    );
}

/// Only the FIN that was received begins the time anew: any other can be a stranger's.
#[test]
fn another_fin_does_not_prolong_time_wait() {
    for fin in cases([
        "F. 2:2(0) ack 2",
        "F. 1000:1000(0) ack 2",
        "F. 0:0(0) ack 2",
        "F. 1:1(0) ack 70000",
        "F. -2147483647:-2147483647(0) ack 2",
    ]) {
        run_after(
            ESTABLISHED,
            &format!(
                "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
+9s < {fin}
> . 2:2(0) ack 2
+2s < F. 1:1(0) ack 2
> R 2:2(0) win 0
"
            ),
        );
    }
}

#[test]
fn reset_does_not_end_time_wait() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
< R 2:2(0)
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
",
    );
}

#[test]
fn newer_syn_ends_time_wait() {
    run_after(
        ESTABLISHED,
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
< S 1:1(0) win 65535 <mss 1460>
> . 2:2(0) ack 2
+1ms < S 9000:9000(0) win 65535 <mss 1460>
> S. 2750:2750(0) ack 9001 win 65535 <mss 1460>
",
    );
}

#[test]
fn repeated_fin_before_our_close_is_acknowledged_again() {
    run_after(
        ESTABLISHED,
        "
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
event PeerClosed
event none
",
    );
}

#[test]
fn fin_waits_for_room_in_the_window() {
    run_after(
        ESTABLISHED,
        "
write 1000
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 1001 win 0
close
nothing
< . 1:1(0) ack 1001 win 1000
> F. 1001:1001(0) ack 1
< . 1:1(0) ack 1002
",
    );
}

#[test]
fn peer_that_does_not_close_is_given_up() {
    run_after(
        &format!("config user_timeout=1s\n{ESTABLISHED}"),
        "
close
> F. 1:1(0) ack 1
< . 1:1(0) ack 2
+1s > R. 2:2(0) ack 1 win 0
event TimedOut
",
    );
}

#[test]
fn bytes_after_their_fin_are_not_taken() {
    run_after(
        ESTABLISHED,
        "
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
< P. 2:102(100) ack 1
> . 1:1(0) ack 2
unread 0
",
    );
}

#[test]
fn syn_with_a_newer_timestamp_ends_time_wait_whatever_its_number() {
    // RFC 6191: the number is below that of the old connection, the timestamp is not.
    run_after(
        TIMESTAMPS,
        "
close
> F. 1:1(0) ack 1 <nop,nop,TS val 10 ecr 110>
< F. 1:1(0) ack 2 win 65535 <nop,nop,TS val 120 ecr 10>
> . 2:2(0) ack 2 <nop,nop,TS val 10 ecr 120>
< S -900:-900(0) win 65535 <mss 1460,sackOK,TS val 119 ecr 0>
> . 2:2(0) ack 2 <nop,nop,TS val 10 ecr 120>
+1ms < S -900:-900(0) win 65535 <mss 1460,sackOK,TS val 121 ecr 0>
> S. 2750:2750(0) ack -899 win 65535 <mss 1460,sackOK,TS val 11 ecr 121>
",
    );
}

#[test]
fn both_may_close_at_once_with_bytes_in_flight() {
    run_after(
        ESTABLISHED,
        "
write 100
> P. 1:101(100) ack 1
close
> F. 101:101(0) ack 1
< F. 1:51(50) ack 1
> . 102:102(0) ack 52
read 50
< . 52:52(0) ack 102
event Readable
event PeerClosed
event Graceful
+1s < F. 1:51(50) ack 102        # our ACK was lost
> . 102:102(0) ack 52 <nop,nop,sack 1:51>
",
    );
}

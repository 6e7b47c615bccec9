//! Ends of connections, in every order.

use xwarp_test_kit::cases;

use crate::{ESTABLISHED, Row, TIMESTAMPS, run_after, run_table};

const CLOSES: &[Row] = &[
    (
        "we close first",
        "
close
> F. 1:1(0) ack 1
< . 1:1(0) ack 2
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
event PeerClosed
event Graceful
",
    ),
    (
        "they close first",
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
    ),
    (
        "both close at once",
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
    ),
    (
        "their fin may acknowledge ours",
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
event PeerClosed
event Graceful
",
    ),
    (
        "fin follows what was written",
        "
write 1000
> P. 1:1001(1000) ack 1
close
> F. 1001:1001(0) ack 1
refuse 1
< . 1:1(0) ack 1002
",
    ),
    (
        "bytes come after our fin",
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
    ),
    (
        "bytes go after their fin",
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
    ),
    (
        "repeated fin before our close is acknowledged again",
        "
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
< F. 1:1(0) ack 1
> . 1:1(0) ack 2
event PeerClosed
event none
",
    ),
    (
        "fin waits for room in the window",
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
    ),
    (
        "both may close at once with bytes in flight",
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
    ),
];

#[test]
fn connection_closes_in_every_order() {
    run_table(ESTABLISHED, CLOSES);
}

const TIME_WAIT: &[Row] = &[
    (
        "repeated fin is acknowledged again in time wait",
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
    ),
    (
        "reset does not end time wait",
        "
close
> F. 1:1(0) ack 1
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
< R 2:2(0)
< F. 1:1(0) ack 2
> . 2:2(0) ack 2
",
    ),
    (
        "newer syn ends time wait",
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
    ),
];

#[test]
fn time_wait_is_repeated_or_ended() {
    run_table(ESTABLISHED, TIME_WAIT);
}

/// Only the FIN that was received restarts TIME-WAIT: any other can be an attacker's.
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

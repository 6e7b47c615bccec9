//! Handshakes.

use crate::{ESTABLISHED, PLAIN, Row, run, run_after, run_table};

const ACTIVE_OPEN: &[Row] = &[
    (
        "active open offers all options and agrees to those of the answer",
        "
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+10ms < S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,nop,wscale 0>
> . 1:1(0) ack 1 win 32768 <nop,nop,TS val 10 ecr 7>
event Connected
write 1448
> P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 10 ecr 7>
",
    ),
    (
        "timestamps are not offered if they are off",
        "
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,nop,wscale 0>
> . 1:1(0) ack 1 win 32768
event Connected
",
    ),
    (
        "window is scaled only if both sides scale",
        "
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
< S. 0:0(0) ack 1 win 1000 <mss 1460>
> . 1:1(0) ack 1 win 65535
event Connected
write 1000
> P. 1:1001(1000) ack 1
refuse 1
",
    ),
    (
        "lost syn is sent again after one second and then two",
        "
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1000 ecr 0,nop,wscale 3>
+2s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 3000 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 4000 ecr 0,nop,wscale 3>  # the last try
+1s event TimedOut
",
    ),
    (
        "both sides may open at once",
        "
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> . 1:1(0) ack 1
< . 1:1(0) ack 1
event Connected
",
    ),
    (
        "peer that has opened too may refuse",
        "
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S 700:700(0) win 65535 <mss 1460>
> S. 0:0(0) ack 701 win 65535 <mss 1460>
< R. 701:701(0) ack 1
event Refused
",
    ),
    (
        "answer to another syn is reset",
        "
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 9 win 65535 <mss 1460>
> R 9:9(0) win 0
event none
< S. 0:0(0) ack 1 win 65535 <mss 1460>
> . 1:1(0) ack 1
event Connected
",
    ),
    (
        "refusal ends the attempt and a stray reset does not",
        "
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
< R 0:0(0)
event none
< R. 0:0(0) ack 7
event none
< R. 0:0(0) ack 1
event Refused
",
    ),
];

#[test]
fn active_open() {
    run_table("", ACTIVE_OPEN);
}

#[test]
fn peer_without_options_gets_none() {
    run_after(
        PLAIN,
        "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101 win 65535
read 100
event Readable
",
    );
}

/// A SYN of the peer, which the host has answered.
const SYN_ANSWERED: &str = "
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
";

const PASSIVE_OPEN: &[Row] = &[
    (
        "lost answer is sent again when the syn comes again",
        "
+500ms < S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:1(0) ack 1
event Incoming
",
    ),
    (
        "lost answer is sent again after one second",
        "
+1s > S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:1(0) ack 1
event Incoming
",
    ),
    (
        "ack of another answer is reset and the handshake goes on",
        "
< . 1:1(0) ack 9
> R 9:9(0) win 0
< . 1:1(0) ack 1
event Incoming
",
    ),
    (
        "bytes with the last ack are taken",
        "
< P. 1:11(10) ack 1
> . 1:1(0) ack 11
event Incoming
event Readable
read 10
",
    ),
    (
        "fin with the last ack closes the peers side",
        "
< F. 1:11(10) ack 1
> . 1:1(0) ack 12
event Incoming
event Readable
event PeerClosed
read 10
",
    ),
];

#[test]
fn passive_open() {
    run_table(SYN_ANSWERED, PASSIVE_OPEN);
}

/// An attacker who knows addresses and ports can send a SYN. The sender of a valid answer to ours
/// knows its number, and is the peer.
#[test]
fn strangers_syn_does_not_keep_the_answer_out() {
    for stranger in ["0:0(0)", "700:700(0)", "-2147483648:-2147483648(0)"] {
        let (number, _) = stranger.split_once(':').unwrap();
        let number = number.parse::<i64>().unwrap();
        let next = (number + 1).rem_euclid(1 << 32);
        run(&format!(
            "
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S {stranger} win 1 <mss 100>
> S. 0:0(0) ack {next} win 65535 <mss 1460>
< S. 9000:9000(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> . 1:1(0) ack 9001 win 32768
event Connected
write 1460
> P. 1:1461(1460) ack 9001
< P. 9001:9101(100) ack 1461
> . 1461:1461(0) ack 9101
"
        ));
    }
}

/// The sender of a SYN knows which number is expected next. Only a sender that knows our number,
/// too, can refuse.
#[test]
fn strangers_syn_and_reset_do_not_refuse_the_connection() {
    run("
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S 700:700(0) win 65535 <mss 1460>
> S. 0:0(0) ack 701 win 65535 <mss 1460>
< R 701:701(0)
> . 1:1(0) ack 701
event none
< R. 701:701(0) ack 9
> . 1:1(0) ack 701
event none
< S. 9000:9000(0) ack 1 win 65535 <mss 1460>
> . 1:1(0) ack 9001
event Connected
");
}

/// The client answers the challenge by a RST with the number that the attacker chose, and opens the
/// connection again (RFC 5961 §4.2).
#[test]
fn strangers_syn_does_not_keep_a_client_out() {
    for client in [9000, 500_000] {
        run(&format!(
            "
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< S {client}:{client}(0) win 65535 <mss 1460>
> . 1:1(0) ack 1
< R 1:1(0)
+1s < S {client}:{client}(0) win 65535 <mss 1460>
> S. 250000:250000(0) ack {next} win 65535 <mss 1460>
< . {next}:{next}(0) ack 250001
event Incoming
",
            next = client + 1
        ));
    }
}

#[test]
fn bytes_with_a_syn_are_left_to_be_sent_again() {
    run("
listen
< S 0:10(10) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:11(10) ack 1
> . 1:1(0) ack 11
read 10
");
}

#[test]
fn mss_counts_without_the_options() {
    run("
listen
< S 0:0(0) win 65535 <mss 1000,sackOK,TS val 100 ecr 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 0 ecr 100>
< . 1:1(0) ack 1 win 65535 <nop,nop,TS val 110 ecr 0>
event Incoming
write 988
> P. 1:989(988) ack 1 <nop,nop,TS val 0 ecr 110>
write 989
> P. 989:1977(988) ack 1 <nop,nop,TS val 0 ecr 110>
> P. 1977:1978(1) ack 1 <nop,nop,TS val 0 ecr 110>
");
}

#[test]
fn round_trip_is_measured_by_the_handshake() {
    // SRTT 10 ms, RTTVAR 5 ms: the timeout is 30 ms; the tail is probed after 2 SRTT and the floor.
    run_after(
        ESTABLISHED,
        "
write 100
> P. 1:101(100) ack 1
+25ms > P. 1:101(100) ack 1
",
    );
}

#[test]
fn repeated_syn_is_no_measure_of_the_round_trip() {
    // The echo is of the first SYN; the timeout is then three seconds (RFC 6298 §5.7).
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1000 ecr 0,nop,wscale 3>
+2s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 3000 ecr 0,nop,wscale 3>
+10ms < S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 10,nop,wscale 0>
> . 1:1(0) ack 1 win 32768 <nop,nop,TS val 3010 ecr 7>
event Connected
write 1448
> P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 3010 ecr 7>
+3s > P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 6010 ecr 7>
");
}

/// An outage that loses the first SYN does not give the data after it a timeout of seconds.
#[test]
fn answer_to_the_latest_syn_is_a_measure_of_the_round_trip() {
    // Less than a tick counts as one: SRTT 1 ms, and the timeout is the floor of 5 ms above it.
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1000 ecr 0,nop,wscale 3>
+300us < S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 1000,nop,wscale 0>
> . 1:1(0) ack 1 win 32768 <nop,nop,TS val 1000 ecr 7>
event Connected
write 1448
> P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 1000 ecr 7>
+6ms > P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 1006 ecr 7>
");
}

//! Connections begin.

use crate::{ESTABLISHED, PLAIN, run, run_after};

#[test]
fn active_open_offers_all_options_and_agrees_to_those_of_the_answer() {
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+10ms < S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,nop,wscale 0>
> . 1:1(0) ack 1 win 32768 <nop,nop,TS val 10 ecr 7>
event Connected
write 1448
> P. 1:1449(1448) ack 1 win 32768 <nop,nop,TS val 10 ecr 7>
");
}

#[test]
fn timestamps_are_not_offered_if_they_are_off() {
    run("
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 win 65535 <mss 1460,sackOK,TS val 7 ecr 0,nop,wscale 0>
> . 1:1(0) ack 1 win 32768
event Connected
");
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

#[test]
fn window_is_scaled_only_if_both_sides_scale() {
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
< S. 0:0(0) ack 1 win 1000 <mss 1460>
> . 1:1(0) ack 1 win 65535
event Connected
write 1000
> P. 1:1001(1000) ack 1
refuse 1
");
}

#[test]
fn lost_syn_is_sent_again_after_one_second_and_then_two() {
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 1000 ecr 0,nop,wscale 3>
+2s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 3000 ecr 0,nop,wscale 3>
+1s > S 0:0(0) win 65535 <mss 1460,sackOK,TS val 4000 ecr 0,nop,wscale 3>  # the last try
+1s event TimedOut
");
}

#[test]
fn lost_answer_is_sent_again_when_the_syn_comes_again() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
+500ms < S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:1(0) ack 1
event Incoming
");
}

#[test]
fn lost_answer_is_sent_again_after_one_second() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
+1s > S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:1(0) ack 1
event Incoming
");
}

#[test]
fn both_sides_may_open_at_once() {
    run("
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> . 1:1(0) ack 1
< . 1:1(0) ack 1
event Connected
");
}

/// Anybody who knows addresses and ports can send a SYN. Who answers ours knows its number, and is the peer.
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

/// Who sends a SYN knows what is expected next. Only who knows our number, too, can refuse.
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

#[test]
fn peer_that_has_opened_too_may_refuse() {
    run("
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S 700:700(0) win 65535 <mss 1460>
> S. 0:0(0) ack 701 win 65535 <mss 1460>
< R. 701:701(0) ack 1
event Refused
");
}

/// The client answers the challenge by a RST with the number that the stranger chose, and begins anew (RFC 5961 §4.2).
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
fn answer_to_another_syn_is_reset() {
    run("
config timestamps=off
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
< S. 0:0(0) ack 9 win 65535 <mss 1460>
> R 9:9(0) win 0
event none
< S. 0:0(0) ack 1 win 65535 <mss 1460>
> . 1:1(0) ack 1
event Connected
");
}

#[test]
fn ack_of_another_answer_is_reset_and_the_handshake_goes_on() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< . 1:1(0) ack 9
> R 9:9(0) win 0
< . 1:1(0) ack 1
event Incoming
");
}

#[test]
fn refusal_ends_the_attempt_and_a_stray_reset_does_not() {
    run("
connect
> S 0:0(0) win 65535 <mss 1460,sackOK,TS val 0 ecr 0,nop,wscale 3>
< R 0:0(0)
event none
< R. 0:0(0) ack 7
event none
< R. 0:0(0) ack 1
event Refused
");
}

#[test]
fn bytes_with_the_last_ack_are_taken() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< P. 1:11(10) ack 1
> . 1:1(0) ack 11
event Incoming
event Readable
read 10
");
}

#[test]
fn fin_with_the_last_ack_closes_the_peers_side() {
    run("
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< F. 1:11(10) ack 1
> . 1:1(0) ack 12
event Incoming
event Readable
event PeerClosed
read 10
");
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

/// An outage that takes the first SYN costs the data after it no timeout of seconds.
#[test]
fn answer_to_the_latest_syn_is_a_measure_of_the_round_trip() {
    // Less than a tick counts as one: SRTT 1 ms, and the timeout lies the floor of 5 ms above it.
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

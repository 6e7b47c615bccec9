//! Explicit congestion notification with algorithms that treat a mark as a loss (RFC 3168, RFC 9438
//! §4.6).

use crate::{run, run_after};

/// A connection that the peer has opened, on which both sides support ECN.
const AGREED: &str = "
config ecn=on
listen
< SEW 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> SE. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
+10ms < . 1:1(0) ack 1 win 65535
event Incoming
";

/// Ten segments, which the initial window holds.
const TEN: &str = "
write 1460
> P. 1:1461(1460) ack 1 ecn ect0
write 1460
> P. 1461:2921(1460) ack 1 ecn ect0
write 1460
> P. 2921:4381(1460) ack 1 ecn ect0
write 1460
> P. 4381:5841(1460) ack 1 ecn ect0
write 1460
> P. 5841:7301(1460) ack 1 ecn ect0
write 1460
> P. 7301:8761(1460) ack 1 ecn ect0
write 1460
> P. 8761:10221(1460) ack 1 ecn ect0
write 1460
> P. 10221:11681(1460) ack 1 ecn ect0
write 1460
> P. 11681:13141(1460) ack 1 ecn ect0
write 1460
> P. 13141:14601(1460) ack 1 ecn ect0
refuse 1460
";

#[test]
fn ecn_is_negotiated_if_wanted_by_either_algorithm_from_either_side() {
    for algorithm in ["cubic", "newreno"] {
        run(&format!(
            "
config ecn=on timestamps=off congestion={algorithm}
connect
> SEW 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
+10ms < SE. 0:0(0) ack 1 win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 0>
> . 1:1(0) ack 1
event Connected
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
"
        ));
        let agreed = AGREED.replace("ecn=on", &format!("ecn=on congestion={algorithm}"));
        run_after(&agreed, "write 1000\n> P. 1:1001(1000) ack 1 ecn ect0\n");
    }
}

#[test]
fn algorithm_that_marks_mean_nothing_to_does_not_negotiate() {
    run("
config ecn=on timestamps=off congestion=bbr
connect
> S 0:0(0) win 65535 <mss 1460,nop,nop,sackOK,nop,wscale 3>
");
    run("
config ecn=on congestion=bbr
listen
< SEW 0:0(0) <mss 1460>
> S. 0:0(0) ack 1 <mss 1460>
");
}

#[test]
fn what_met_congestion_is_echoed_until_the_peer_has_reduced_its_window() {
    run_after(
        AGREED,
        "
< P. 1:101(100) ack 1 ecn ect0
> . 1:1(0) ack 101
< P. 101:201(100) ack 1 ecn ce
> E. 1:1(0) ack 201
< P. 201:301(100) ack 1 ecn ect0
> E. 1:1(0) ack 301
write 1000
> PE. 1:1001(1000) ack 301 ecn ect0
< PW. 301:401(100) ack 1001 ecn ect0
> . 1001:1001(0) ack 401
< P. 401:501(100) ack 1001 ecn ect0
> . 1001:1001(0) ack 501
read 500
",
    );
}

#[test]
fn congestion_met_by_what_tells_of_the_reduction_is_news() {
    run_after(
        AGREED,
        "
< P. 1:101(100) ack 1 ecn ce
> E. 1:1(0) ack 101
< PW. 101:201(100) ack 1 ecn ce
> E. 1:1(0) ack 201
< P. 201:301(100) ack 1 ecn ect0
> E. 1:1(0) ack 301
< PW. 301:401(100) ack 1
> . 1:1(0) ack 401
read 400
",
    );
}

#[test]
fn one_acknowledgment_of_a_batch_echoes_for_all_of_it() {
    run_after(
        AGREED,
        "
<< P. 1:101(100) ack 1 ecn ect0
<< P. 101:201(100) ack 1 ecn ce
< P. 201:301(100) ack 1 ecn ect0
> E. 1:1(0) ack 301
read 300
",
    );
}

#[test]
fn only_bytes_in_the_window_echo_or_confirm() {
    run_after(
        AGREED,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
< . 1:1(0) ack 1001 ecn ce         # a pure ACK
< P. 1:101(100) ack 1001 ecn ce
> E. 1001:1001(0) ack 101
< W. 101:101(0) ack 1001
< P. 101:201(100) ack 1001 ecn ect0
> E. 1001:1001(0) ack 201
read 200
",
    );
}

#[test]
fn echo_reduces_cubics_window_by_three_tenths_once_per_round_trip() {
    run_after(
        &format!("{AGREED}{TEN}"),
        "
+10ms < E. 1:1(0) ack 1461     # 0.7 * 14600 = 10220: seven segments, and nine are in flight
refuse 1460
< E. 1:1(0) ack 4381
refuse 1460
< E. 1:1(0) ack 5841           # six are in flight
write 1460
> PW. 14601:16061(1460) ack 1 ecn ect0
refuse 1460
< E. 1:1(0) ack 14601          # one is in flight, and CWR reports the reduction
write 1460
> P. 16061:17521(1460) ack 1 ecn ect0
",
    );
}

#[test]
fn echo_halves_new_renos_window_once_per_round_trip() {
    let agreed = AGREED.replace("ecn=on", "ecn=on congestion=newreno");
    run_after(
        &format!("{agreed}{TEN}"),
        "
+10ms < E. 1:1(0) ack 1461     # 7300: five segments
< E. 1:1(0) ack 7301           # five are in flight
refuse 1460
< E. 1:1(0) ack 8761
write 1460
> PW. 14601:16061(1460) ack 1 ecn ect0
refuse 1460
",
    );
}

#[test]
fn echo_of_what_was_sent_after_the_reduction_reduces_again() {
    run_after(
        &format!("{AGREED}{TEN}"),
        "
+10ms < E. 1:1(0) ack 1461
< E. 1:1(0) ack 14601
write 1460
> PW. 14601:16061(1460) ack 1 ecn ect0
write 1460
> P. 16061:17521(1460) ack 1 ecn ect0
< E. 1:1(0) ack 16061          # sent after CWR arrived
write 1460
> PW. 17521:18981(1460) ack 1 ecn ect0
< . 1:1(0) ack 18981
write 1460
> P. 18981:20441(1460) ack 1 ecn ect0
",
    );
}

#[test]
fn reduction_for_a_loss_answers_marks_of_its_window_too_and_the_repetition_may_not_be_marked() {
    run_after(
        &format!("{AGREED}{TEN}"),
        "
+10ms < . 1:1(0) ack 1 <nop,nop,sack 1461:14601>
> P. 1:1461(1460) ack 1
< E. 1:1(0) ack 14601          # it changes nothing: the window is 10220, seven segments
write 1460
> PW. 14601:16061(1460) ack 1 ecn ect0
write 1460
> P. 16061:17521(1460) ack 1 ecn ect0
write 1460
> P. 17521:18981(1460) ack 1 ecn ect0
write 1460
> P. 18981:20441(1460) ack 1 ecn ect0
write 1460
> P. 20441:21901(1460) ack 1 ecn ect0
write 1460
> P. 21901:23361(1460) ack 1 ecn ect0
write 1460
> P. 23361:24821(1460) ack 1 ecn ect0
refuse 1460
",
    );
}

#[test]
fn peer_is_told_of_reductions_for_losses() {
    run_after(
        AGREED,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
write 1000
> P. 1001:2001(1000) ack 1 ecn ect0
+10ms < . 1:1(0) ack 1 <nop,nop,sack 1001:2001>
+2500us > P. 1:1001(1000) ack 1     # RACK, a quarter of a round trip later
< . 1:1(0) ack 2001
write 1000
> PW. 2001:3001(1000) ack 1 ecn ect0
< . 1:1(0) ack 3001
write 1000
> P. 3001:4001(1000) ack 1 ecn ect0
",
    );
}

#[test]
fn peer_is_told_of_reductions_for_timeouts() {
    let plain = AGREED
        .replace(" <mss 1460,nop,nop,sackOK,nop,wscale 0>", " <mss 1460>")
        .replace(" <mss 1460,nop,nop,sackOK,nop,wscale 3>", " <mss 1460>");
    run_after(
        &plain,
        "
write 1000
> P. 1:1001(1000) ack 1 ecn ect0
+30ms > P. 1:1001(1000) ack 1
< . 1:1(0) ack 1001
write 1000
> PW. 1001:2001(1000) ack 1 ecn ect0
",
    );
}

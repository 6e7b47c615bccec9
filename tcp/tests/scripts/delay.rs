//! ACKs that wait for an answer to ride on (RFC 9293 §3.8.6.3), where answers come soon.

use crate::{PLAIN, run, run_after};

/// The first message, which was answered soon: its ACK did not wait.
const ANSWERED: &str = "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101
event Readable
read 100
+900us write 50
> P. 1:51(50) ack 101
+10ms < . 101:101(0) ack 51
";

fn run_delayed(script: &str) {
    run(&format!("config ack_delay=1ms\n{PLAIN}{ANSWERED}{script}"));
}

#[test]
fn one_segment_is_acknowledged_a_moment_later() {
    run_delayed(
        "
< P. 101:201(100) ack 51
event Readable
read 100
nothing
+1ms > . 51:51(0) ack 201
+1s nothing
",
    );
}

#[test]
fn without_an_answer_the_next_one_is_acknowledged_at_once() {
    run_delayed(
        "
< P. 101:201(100) ack 51
+1ms > . 51:51(0) ack 201
< P. 201:301(100) ack 51
> . 51:51(0) ack 301
event Readable
read 200
",
    );
}

#[test]
fn answer_that_comes_too_late_changes_nothing() {
    run_after(
        &format!("config ack_delay=1ms\n{PLAIN}"),
        "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101
+1ms write 50
> P. 1:51(50) ack 101
< P. 101:201(100) ack 51
> . 51:51(0) ack 201
event Readable
read 200
",
    );
}

#[test]
fn no_acknowledgment_waits_for_half_a_second() {
    run(&format!(
        "config ack_delay=1000s\n{PLAIN}{ANSWERED}
< P. 101:201(100) ack 51
+499ms > . 51:51(0) ack 201
event Readable
read 100
"
    ));
}

#[test]
fn second_segment_is_not_waited_with() {
    run_delayed(
        "
< P. 101:201(100) ack 51
+500us < P. 201:301(100) ack 51
> . 51:51(0) ack 301
+10ms nothing
event Readable
read 200
",
    );
}

#[test]
fn answer_acknowledges() {
    run_delayed(
        "
< P. 101:201(100) ack 51
event Readable
read 100
+500us write 50
> P. 51:101(50) ack 201
< . 201:201(0) ack 101
+10ms nothing
",
    );
}

#[test]
fn what_says_of_a_loss_does_not_wait() {
    run_delayed(
        "
< P. 201:301(100) ack 51
> . 51:51(0) ack 101
< P. 101:201(100) ack 51
> . 51:51(0) ack 301
< P. 201:301(100) ack 51
> . 51:51(0) ack 301
event Readable
read 200
",
    );
}

#[test]
fn fin_does_not_wait() {
    run_delayed(
        "
< P. 101:201(100) ack 51
< F. 201:201(0) ack 51
> . 51:51(0) ack 202
event Readable
event PeerClosed
read 100
",
    );
}

/// The application may have acted on the message, and the peer ignores the acknowledgment of a RST.
#[test]
fn abort_acknowledges_first() {
    run_delayed(
        "
< P. 101:201(100) ack 51
event Readable
read 100
nothing
abort
> . 51:51(0) ack 201
> R. 51:51(0) ack 201 win 0
event Aborted
",
    );
}

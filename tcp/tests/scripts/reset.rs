//! RSTs, SYNs and ACKs that an attacker may have sent (RFC 5961).

use xwarp_test_kit::cases;

use crate::{ESTABLISHED, TIMESTAMPS, run_after};

#[test]
fn reset_at_the_expected_number_ends() {
    run_after(
        ESTABLISHED,
        "
< R 1:1(0)
event Reset
",
    );
}

#[test]
fn reset_elsewhere_in_the_window_is_challenged() {
    run_after(
        ESTABLISHED,
        "
< R 2:2(0)
> . 1:1(0) ack 1
event none
< R 1:1(0)
event Reset
",
    );
}

#[test]
fn reset_beyond_the_window_is_ignored() {
    run_after(
        ESTABLISHED,
        "
< R 300001:300001(0)
nothing
event none
",
    );
}

#[test]
fn reset_below_the_window_is_ignored() {
    run_after(
        ESTABLISHED,
        "
< P. 1:101(100) ack 1
> . 1:1(0) ack 101
event Readable
< R 100:100(0)
nothing
event none
read 100
",
    );
}

#[test]
fn syn_is_challenged_wherever_it_lies() {
    run_after(
        ESTABLISHED,
        "
< S 0:0(0)
> . 1:1(0) ack 1
< S 1:1(0)
> . 1:1(0) ack 1
< S 500000:500000(0)
> . 1:1(0) ack 1
< S. 1:1(0) ack 1
> . 1:1(0) ack 1
event none
",
    );
}

#[test]
fn ack_of_what_was_never_sent_is_challenged_and_its_bytes_dropped() {
    run_after(
        ESTABLISHED,
        "
< P. 1:101(100) ack 2
> . 1:1(0) ack 1
unread 0
",
    );
}

#[test]
fn ack_from_too_far_back_is_challenged() {
    run_after(
        ESTABLISHED,
        "
< P. 1:101(100) ack -70000
> . 1:1(0) ack 1
unread 0
",
    );
}

#[test]
fn old_ack_brings_its_bytes_all_the_same() {
    run_after(
        ESTABLISHED,
        "
write 1000
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 1001
< P. 1:101(100) ack 501
> . 1001:1001(0) ack 101
read 100
",
    );
}

#[test]
fn challenges_are_limited_to_sixteen_a_second() {
    let challenge = "< R 2:2(0)\n> . 1:1(0) ack 1\n".repeat(16);
    run_after(
        ESTABLISHED,
        &format!(
            "
+1s {challenge}
< R 2:2(0)
nothing
+1s < R 2:2(0)
> . 1:1(0) ack 1
"
        ),
    );
}

#[test]
fn segment_without_ack_is_dropped() {
    run_after(
        ESTABLISHED,
        "
< P 1:101(100)
nothing
unread 0
",
    );
}

#[test]
fn bytes_beyond_the_window_are_dropped_and_the_window_told() {
    run_after(
        ESTABLISHED,
        "
< P. 300001:300101(100) ack 1
> . 1:1(0) ack 1
unread 0
",
    );
}

#[test]
fn abort_is_a_reset_with_an_ack() {
    run_after(
        ESTABLISHED,
        "
abort
> R. 1:1(0) ack 1 win 0
event Aborted
< P. 1:101(100) ack 1
> R 1:1(0) win 0
",
    );
}

#[test]
fn half_open_connection_is_reset_at_the_expected_number_only() {
    crate::run(
        "
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
< R 5:5(0)
> . 1:1(0) ack 1
< R 1:1(0)
< . 1:1(0) ack 1
> R 1:1(0) win 0
event none
",
    );
}

/// Sixteen of these segments are answered by an ACK, and further ones are not in that second (RFC
/// 5961 §7).
fn is_answered_sixteen_times(beginning: &str, segment: &str, [answer, later]: [&str; 2]) {
    let answered = format!("< {segment}\n> {answer}\n").repeat(16);
    let unanswered = format!("< {segment}\nnothing\n").repeat(16);
    run_after(
        beginning,
        &format!(
            "\n+1s nothing\n{answered}{unanswered}+1s < {segment}\n> {later}\nunread 0\nevent none\n"
        ),
    );
}

#[test]
fn what_was_never_sent_provokes_a_limited_number_of_acks() {
    for segment in cases([
        "P. -1000000000:-999999999(1) ack 1",
        "P. -2147482648:-2147482647(1) ack 1",
        "F. -1000000000:-1000000000(0) ack 1",
        "F. -300000:-300000(0) ack 1",
        "P. -300000:-299900(100) ack 1",
        "P. 300001:300101(100) ack 1",
        "S. -1000:-900(100) ack 1",
        "F. 1000000001:1000000001(0) ack 1",
        ". -70000:-70000(0) ack 1",
        "P. 1:101(100) ack -70000",
        "P. 1:101(100) ack 2",
    ]) {
        is_answered_sixteen_times(ESTABLISHED, segment, [". 1:1(0) ack 1"; 2]);
    }
}

#[test]
fn old_timestamps_provoke_a_limited_number_of_acks() {
    for segment in cases([
        "P. -1000000000:-999999999(1) ack 1",
        "F. -1000000000:-1000000000(0) ack 1",
        "F. 1:1(0) ack 1",
        "P. 1:101(100) ack 1",
        ". 1:1(0) ack 1",
    ]) {
        let old = format!("{segment} win 65535 <nop,nop,TS val 109 ecr 10>");
        is_answered_sixteen_times(
            TIMESTAMPS,
            &old,
            [1010, 2010]
                .map(|now| format!(". 1:1(0) ack 1 <nop,nop,TS val {now} ecr 110>"))
                .each_ref()
                .map(String::as_str),
        );
    }
}

#[test]
fn what_may_have_been_repeated_is_always_answered() {
    let repeated = "< P. 1:101(100) ack 1\n> . 1:1(0) ack 101 <nop,nop,sack 1:101>\n".repeat(40);
    run_after(
        ESTABLISHED,
        &format!("\n< P. 1:101(100) ack 1\n> . 1:1(0) ack 101\nread 100\n{repeated}"),
    );
    let repeated = "< F. 1:1(0) ack 1\n> . 1:1(0) ack 2\n".repeat(40);
    run_after(
        ESTABLISHED,
        &format!("\n< F. 1:1(0) ack 1\n> . 1:1(0) ack 2\n{repeated}"),
    );
}

/// A keep-alive or window probe of the peer is answered, whatever an attacker provokes. And two
/// hosts that probe each other come to an end.
#[test]
fn stranger_does_not_use_up_the_answers_to_probes() {
    let junk = "< . -70000:-70000(0) ack 1\n> . 1:1(0) ack 1\n".repeat(16);
    let probes = "< . 0:0(0) ack 1\n> . 1:1(0) ack 1\n".repeat(16);
    run_after(
        ESTABLISHED,
        &format!(
            "\n+1s {junk}< . -70000:-70000(0) ack 1\nnothing\n{probes}< . 0:0(0) ack 1\nnothing\n"
        ),
    );
}

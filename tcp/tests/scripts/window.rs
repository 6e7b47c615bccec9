//! Windows: the peer's, which limits the host, and the host's own.

use std::fmt::Write as _;

use xwarp_test_kit::cases;

use crate::{ESTABLISHED, PLAIN, Row, run, run_after, run_table};

const PEER_WINDOW: &[Row] = &[
    // The first probe comes after the retransmission timeout, 25 ms by then, and the next ones at
    // intervals that double.
    (
        "closed window is probed until it opens",
        "
write 1000
> P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 1001 win 0
refuse 1
+25ms > . 1000:1000(0) ack 1
+50ms > . 1000:1000(0) ack 1
< . 1:1(0) ack 1001 win 2000
event Writable
write 1000
> P. 1001:2001(1000) ack 1
< . 1:1(0) ack 2001
",
    ),
    (
        "nothing is probed while nothing is wanted",
        "
write 1000
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 1001 win 0
+100s nothing
",
    ),
    (
        "window that shrinks stops new bytes",
        "
write 1000
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 501 win 0
refuse 1
< . 1:1(0) ack 1001 win 65535
event Writable
write 1
> P. 1001:1002(1) ack 1
",
    ),
    (
        "without keepalive nothing is asked",
        "
+3600s nothing
write 10
> P. 1:11(10) ack 1
",
    ),
];

#[test]
fn window_of_the_peer_limits_the_host() {
    run_table(PLAIN, PEER_WINDOW);
}

#[test]
fn piece_larger_than_the_window_ever_was_is_split() {
    run("
listen
< S 0:0(0) win 600 <mss 1460>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
+10ms < . 1:1(0) ack 1 win 600
event Incoming
write 1000
> P. 1:601(600) ack 1
+10ms < . 1:1(0) ack 601 win 600
> P. 601:1001(400) ack 1
< . 1:1(0) ack 1001 win 600
");
}

/// A window that was larger before may grow again. A piece of 1000 bytes waits for that until the
/// override timeout of RFC 9293 §3.8.6.2.1, which is 0.1 s.
const SMALLER: &str = "
write 1000
> P. 1:1001(1000) ack 1
+10ms < . 1:1(0) ack 1001 win 400
refuse 1000
+25ms > . 1000:1000(0) ack 1
< . 1:1(0) ack 1001 win 400
+50ms > . 1000:1000(0) ack 1
< . 1:1(0) ack 1001 win 400
+100ms event Writable
";

#[test]
fn piece_is_split_at_a_window_that_stays_smaller() {
    run_after(
        &format!("{PLAIN}{SMALLER}"),
        "
write 1000
> P. 1001:1401(400) ack 1
+10ms < . 1:1(0) ack 1401 win 400
+21250us > P. 1401:1801(400) ack 1
+21250us > P. 1401:1801(400) ack 1    # lost, and the same bytes again
< . 1:1(0) ack 1801 win 65535
> P. 1801:2001(200) ack 1
< . 1:1(0) ack 2001 win 65535
write 1000
> P. 2001:3001(1000) ack 1
< . 1:1(0) ack 3001 win 999
refuse 1000
",
    );
}

/// The next piece is not cut at the window's former end.
#[test]
fn piece_is_whole_if_the_window_opens_before_it_is_written() {
    run_after(
        &format!("{PLAIN}{SMALLER}"),
        "
< . 1:1(0) ack 1001 win 1000
write 1000
> P. 1001:2001(1000) ack 1
< . 1:1(0) ack 2001 win 400
refuse 1000
",
    );
}

const LATEST_WINDOW: &[Row] = &[
    (
        "older segment does not change the window",
        "
< P. 101:201(100) ack 1 win 5000
> . 1:1(0) ack 1 <nop,nop,sack 101:201>
< P. 1:101(100) ack 1 win 100   # sent before, arrives after
> . 1:1(0) ack 201
write 1000
> P. 1:1001(1000) ack 201
read 200
",
    ),
    (
        "ack of long ago does not change the window",
        "
write 1000
> P. 1:1001(1000) ack 1
< . 1:1(0) ack 1001 win 5000
< P. 1:101(100) ack 501 win 100
> . 1001:1001(0) ack 101
write 1000
> P. 1001:2001(1000) ack 101
read 100
",
    ),
];

#[test]
fn window_is_that_of_the_latest_segment() {
    run_table(ESTABLISHED, LATEST_WINDOW);
}

#[test]
fn reading_reopens_a_closed_window() {
    run("
config buffer=4096
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 4096 <mss 1460>
< . 1:1(0) ack 1
event Incoming
< P. 1:1461(1460) ack 1
> . 1:1(0) ack 1461 win 2636
< P. 1461:2921(1460) ack 1
> . 1:1(0) ack 2921 win 1176
< P. 2921:4097(1176) ack 1
> . 1:1(0) ack 4097 win 0
read 1000
nothing
read 1000
> . 1:1(0) ack 4097 win 2000
");
}

/// A connection that the peer has opened to a host with a receive buffer of 1024 bytes.
const SMALL_BUFFER: &str = "
config buffer=1024
listen
< S 0:0(0) win 65535 <mss 1460>
> S. 0:0(0) ack 1 win 1024 <mss 1460>
< . 1:1(0) ack 1
";

const OWN_WINDOW: &[Row] = &[
    (
        "probe of our closed window is answered",
        "
< P. 1:1025(1024) ack 1
> . 1:1(0) ack 1025 win 0
< . 1024:1024(0) ack 1
> . 1:1(0) ack 1025 win 0
< P. 1025:1026(1) ack 1
> . 1:1(0) ack 1025 win 0
unread 1024
",
    ),
    (
        "burst beyond the window is cut",
        "
< P. 1:1461(1460) ack 1
> . 1:1(0) ack 1025 win 0
read 1024
> . 1:1(0) ack 1025 win 1024
",
    ),
    // RFC 9293 §3.10.7.4: the ACK of a segment whose bytes have no room is processed nevertheless.
    (
        "ack with bytes is heard at a closed window",
        "
event Incoming
< P. 1:1025(1024) ack 1
> . 1:1(0) ack 1025 win 0
write 500
> P. 1:501(500) ack 1025 win 0
< P. 1025:1026(1) ack 501
> . 501:501(0) ack 1025 win 0
+3000ms < . 1025:1025(0) ack 501
nothing
read 1024
> . 501:501(0) ack 1025 win 1024
",
    ),
    // A FIN behind bytes that have no room is not taken: other bytes may follow.
    (
        "fin beyond the window is not noted",
        "
event Incoming
< F. 1:1461(1460) ack 1
> . 1:1(0) ack 1025 win 0
event Readable
read 1024
> . 1:1(0) ack 1025 win 1024
< P. 1025:2049(1024) ack 1
> . 1:1(0) ack 2049 win 0
event Readable
event none
read 1024
> . 1:1(0) ack 2049 win 1024
< F. 2049:2049(0) ack 1
> . 1:1(0) ack 2050
event PeerClosed
",
    ),
    (
        "fin alone is taken at a closed window",
        "
event Incoming
< P. 1:1025(1024) ack 1
> . 1:1(0) ack 1025 win 0
event Readable
< F. 1025:1025(0) ack 1
> . 1:1(0) ack 1026 win 0
event PeerClosed
read 1024
",
    ),
];

#[test]
fn own_window_is_kept() {
    run_table(SMALL_BUFFER, OWN_WINDOW);
}

#[test]
fn silent_peer_is_asked_whether_it_lives() {
    run_after(
        &format!("config keepalive=10s user_timeout=15s\n{PLAIN}"),
        "
+10s > . 0:0(0) ack 1
< . 1:1(0) ack 1
+10s > . 0:0(0) ack 1
+5s > . 0:0(0) ack 1      # a third of the user timeout
+5s > . 0:0(0) ack 1
+4750ms > . 0:0(0) ack 1  # the last try
+250ms > R. 1:1(0) ack 1 win 0
event TimedOut
",
    );
}

#[test]
fn congestion_window_begins_with_ten_segments() {
    let mut ten = String::new();
    for n in 0..10 {
        let (begin, end) = (n * 1460 + 1, n * 1460 + 1461);
        writeln!(ten, "write 1460\n> P. {begin}:{end}(1460) ack 1").unwrap();
    }
    run_after(
        PLAIN,
        &format!(
            "{ten}
refuse 1460
+10ms < . 1:1(0) ack 2921
event Writable
write 1460
> P. 14601:16061(1460) ack 1
"
        ),
    );
}

#[test]
fn peer_that_answers_probes_is_not_given_up_and_a_silent_one_is() {
    run_after(
        &format!("config user_timeout=3s min_rto=500ms\n{PLAIN}"),
        "
< . 1:1(0) ack 1 win 0
refuse 100
+510ms > . 0:0(0) ack 1
< . 1:1(0) ack 1 win 0
+1s > . 0:0(0) ack 1     # twice as long would be more than a third of the user timeout
< . 1:1(0) ack 1 win 0
+1s > . 0:0(0) ack 1
< . 1:1(0) ack 1 win 0
+1s > . 0:0(0) ack 1     # the first that is not answered
+1s > . 0:0(0) ack 1
+1s > . 0:0(0) ack 1
+500ms > . 0:0(0) ack 1  # the last try
+500ms > R. 1:1(0) ack 1 win 0
event TimedOut
",
    );
}

/// RFC 9293 §3.8.6.2.1: with a scale of 3 the field cannot express the remaining window, and
/// announces more.
#[test]
fn announced_edge_stays() {
    run_after(
        ESTABLISHED,
        "
< P. 1:102(101) ack 1
> . 1:1(0) ack 102 win 32755
< P. 102:203(101) ack 1
> . 1:1(0) ack 203 win 32743
read 202
",
    );
}

#[test]
fn tiny_mss_is_not_believed() {
    run("
listen
< S 0:0(0) win 65535 <mss 1>
> S. 0:0(0) ack 1 win 65535 <mss 1460>
+10ms < . 1:1(0) ack 1 win 65535
event Incoming
write 48
> P. 1:49(48) ack 1
");
}

/// RFC 7323 §2.3: a window of 1 has room for 16,384 bytes then.
#[test]
fn scale_above_fourteen_means_fourteen() {
    let written = |range: std::ops::Range<u32>| {
        let line = |n| {
            format!(
                "write 1460\n> P. {}:{}(1460) ack 1\n",
                n * 1460 + 1,
                n * 1460 + 1461
            )
        };
        range.map(line).collect::<String>()
    };
    for scale in cases([15, 14, 255]) {
        let (ten, eleven) = (written(0..10), written(10..21));
        run(&format!(
            "
listen
< S 0:0(0) win 65535 <mss 1460,nop,wscale {scale}>
> S. 0:0(0) ack 1 win 65535 <mss 1460,nop,wscale 3>
+10ms < . 1:1(0) ack 1 win 1
event Incoming
{ten}refuse 1460
+10ms < . 1:1(0) ack 14601 win 1
event Writable
{eleven}
refuse 1460
"
        ));
    }
}

//! Paths that prove narrower than the link (RFC 1191, RFC 5927 §7).

use crate::{PLAIN, TIMESTAMPS, run_after};

#[test]
fn what_was_too_large_is_sent_again_in_pieces() {
    run_after(
        PLAIN,
        "
write 1460
> P. 1:1461(1460) ack 1
toobig 1 1500 576
nothing                          # until the segment is missed, anybody may have said so
+30ms > P. 1:1461(1460) ack 1    # the timeout
> P. 1073:1461(388) ack 1
> P. 537:1073(536) ack 1
> P. 1:537(536) ack 1
< . 1:1(0) ack 1461
write 536
> P. 1461:1997(536) ack 1
",
    );
}

#[test]
fn pieces_have_room_for_options() {
    run_after(
        TIMESTAMPS,
        "
write 1448
> P. 1:1449(1448) ack 1 <nop,nop,TS val 10 ecr 110>
toobig 1 1500 1000
+25ms > P. 1:1449(1448) ack 1 <nop,nop,TS val 35 ecr 110>
> P. 949:1449(500) ack 1 <nop,nop,TS val 35 ecr 110>
> P. 1:949(948) ack 1 <nop,nop,TS val 35 ecr 110>
< . 1:1(0) ack 1449 win 65535 <nop,nop,TS val 150 ecr 35>
",
    );
}

#[test]
fn what_is_about_nothing_in_flight_or_cannot_be_is_not_believed() {
    run_after(
        PLAIN,
        "
write 1460
> P. 1:1461(1460) ack 1
toobig 1461 1500 576             # not sent yet
toobig 0 1500 576                # acknowledged
toobig 1 1500 551                # narrower than any path
toobig 1 1400 1400               # it would have fitted
+30ms > P. 1:1461(1460) ack 1
+60ms > P. 1:1461(1460) ack 1
< . 1:1(0) ack 1461
write 1460
> P. 1461:2921(1460) ack 1
",
    );
}

#[test]
fn all_that_is_in_flight_and_too_large_is_cut_once() {
    run_after(
        PLAIN,
        "
write 1000
> P. 1:1001(1000) ack 1
write 500
> P. 1001:1501(500) ack 1
write 1000
> P. 1501:2501(1000) ack 1
toobig 1 1040 600
toobig 1501 1040 600
+30ms > P. 1:1001(1000) ack 1
> P. 561:1001(440) ack 1
> P. 1:561(560) ack 1
< . 1:1(0) ack 1501
> P. 2061:2501(440) ack 1
> P. 1501:2061(560) ack 1
< . 1:1(0) ack 2501
",
    );
}

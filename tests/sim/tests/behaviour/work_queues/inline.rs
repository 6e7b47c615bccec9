//! Inline data: bytes that a work request brings along, of no registered memory.

use xwarp::error::{CreateError, PostError};
use xwarp::work::{MAX_INLINE, Payload};
use xwarp::{Opcode, QpConfig, SendRequest, WrId};
use xwarp_sim_tests::{Done, Sim, pattern};
use xwarp_test_kit::netsim::Seed;

use super::sim;

/// Scatter/gather lists may have no elements; up to `max_inline` bytes may be inline.
fn config(max_inline: usize) -> QpConfig {
    QpConfig::default()
        .send_sge(0)
        .write_sge(0)
        .max_inline(max_inline)
}

/// None, what the work request holds itself, one more, and all that there may be.
const LENGTHS: [usize; 5] = [0, 1, 64, 65, MAX_INLINE];

#[test]
fn inline_bytes_may_be_changed_as_soon_as_they_are_posted() {
    for (len, mtu) in LENGTHS
        .into_iter()
        .flat_map(|len| [(len, 1500), (len, 400)])
    {
        let mut sim = Sim::with_mtu(Seed(68), mtu);
        let (mut a, mut b) = sim.connected_pair_with(&config(MAX_INLINE));
        let (text, target) = (pattern(len), b.target(2 * len));
        (1..=2).for_each(|id| b.post_recv(id, len));
        let mut bytes = text.clone();
        for request in [
            SendRequest::send(WrId(1), Payload::inline(&bytes)),
            SendRequest::write(WrId(2), Payload::inline(&bytes), target.remote(0)),
            SendRequest::write_immediate(
                WrId(3),
                Payload::inline(&bytes),
                target.remote(len),
                *b"8 bytes!",
            ),
        ] {
            a.post(request);
        }
        bytes.fill(0);
        sim.run_until_idle();
        let done = [
            Done::send(1, len),
            Done::write(2, len),
            Done::success(3, Opcode::WriteImmediate, len),
        ];
        assert_eq!(a.sends(), done);
        assert_eq!(b.buffer(1), text);
        assert_eq!(target.to_vec(), [text.clone(), text].concat());
    }
}

#[test]
fn inline_bytes_beyond_those_that_the_queue_pair_was_created_for_are_refused() {
    for max in [0, 1, 64, MAX_INLINE] {
        let mut sim = sim();
        let (mut a, mut b) = sim.connected_pair_with(&config(max));
        assert_eq!(a.qp.query().unwrap().max_inline, max);
        let (len, target) = (max + 1, b.target(max + 1));
        let many = || Payload::inline(&pattern(len));
        for request in [
            SendRequest::send(WrId(1), many()),
            SendRequest::write(WrId(1), many(), target.remote(0)),
            SendRequest::write_immediate(WrId(1), many(), target.remote(0), [0; 8]),
        ] {
            let refused = PostError::TooManyInlineBytes { len, max };
            assert_eq!(a.qp.post_send(request), Err(refused));
        }
        b.post_recv(1, max);
        a.post(SendRequest::send(WrId(2), Payload::inline(&pattern(max))));
        sim.run_until_idle();
        assert_eq!(
            a.sends(),
            [Done::send(2, max)],
            "nothing of what was refused"
        );
        assert_eq!(b.buffer(1), pattern(max));
    }
}

#[test]
fn inline_bytes_have_the_maximum_that_query_rnic_tells() {
    let sim = sim();
    let attributes = sim.a().rnic().query().unwrap();
    assert_eq!(attributes.max_inline, MAX_INLINE);
    let end = sim.a().end(&config(MAX_INLINE));
    let (send_cq, recv_cq) = end.cqs();
    let refused = (sim.a().pd()).create_qp(&config(MAX_INLINE + 1), send_cq, recv_cq);
    assert!(
        matches!(refused, Err(CreateError::Capability(_))),
        "{refused:?}"
    );
}

/// What was posted in Idle and never sent gives its memory back with its completion.
#[test]
fn inline_bytes_are_flushed_like_other_work() {
    let sim = sim();
    let mut a = sim.a().end(&config(MAX_INLINE));
    a.post(SendRequest::send(
        WrId(1),
        Payload::inline(&pattern(MAX_INLINE)),
    ));
    a.qp.abort().unwrap();
    assert_eq!(a.sends(), [Done::flushed(1, Opcode::Send)]);
}

//! Roles of MPA, whichever side has opened TCP (RFC 5044 §7.1): a stream is handed over to either.

use xwarp::attr::QpChange;
use xwarp::stream::{Framing, LlpStream};
use xwarp::{QpConfig, QpState};
use xwarp_iwarp::mpa::{InitiatorStep, ResponderStep, encode_request};
use xwarp_iwarp::{Initiator, Negotiated, Responder, StartupParams};
use xwarp_sim_tests::{Done, Side, Sim, SimEnd};

use super::handover::{read, streams, write};
use super::sim;

/// Markers towards the initiator only, so that the roles cannot be mixed up.
const INITIATOR: StartupParams = StartupParams {
    markers: true,
    ..StartupParams::DEFAULT
};
const RESPONDER: StartupParams = StartupParams::DEFAULT;

fn framing(negotiated: &Negotiated) -> Framing {
    Framing {
        crc: negotiated.crc,
        send_markers: negotiated.send_markers,
        receive_markers: negotiated.receive_markers,
    }
}

/// The MPA responder: its Reply is the last streaming message.
fn respond(end: &mut SimEnd, stream: &LlpStream, request: &[u8]) -> Vec<u8> {
    let responder = Responder::new(RESPONDER);
    let Ok(ResponderStep::Request { request, .. }) = responder.on_bytes(request) else {
        panic!("a Request")
    };
    assert_eq!(*request.private_data, *b"hello");
    let (reply, negotiated) = responder.accept(&request, b"welcome").unwrap();
    assert!(negotiated.send_markers && !negotiated.receive_markers);
    let change = QpChange::start_with(stream, framing(&negotiated), &reply);
    end.qp.modify(change).unwrap();
    reply.to_vec()
}

/// The MPA initiator, which sends the first FPDU.
fn initiate(end: &mut SimEnd, stream: &LlpStream, reply: &[u8]) {
    let step = Initiator::new(INITIATOR).on_bytes(reply);
    let Ok(InitiatorStep::Accepted { negotiated, .. }) = step else {
        panic!("a Reply that accepts, not {step:?}")
    };
    assert!(negotiated.receive_markers && !negotiated.send_markers);
    let change = QpChange::start(stream, framing(&negotiated));
    end.qp.modify(change).unwrap();
}

/// A connects, B listens; one of them is the MPA initiator.
fn start_up(sim: &mut Sim, initiator: Side) -> (SimEnd, SimEnd) {
    let (at_a, at_b) = streams(sim);
    let config = QpConfig::default();
    let (mut a, mut b) = (sim.a().end(&config), sim.b().end(&config));
    let ((near, mut near_stream), (far, mut far_stream)) = match initiator {
        Side::A => ((&mut a, at_a), (&mut b, at_b)),
        Side::B => ((&mut b, at_b), (&mut a, at_a)),
    };
    let request = encode_request(INITIATOR, b"hello").unwrap();
    write(sim, &mut near_stream, &request);
    let request = read(sim, &mut far_stream, request.len());
    let reply = respond(far, &far_stream, &request);
    let reply = read(sim, &mut near_stream, reply.len());
    initiate(near, &near_stream, &reply);
    (a, b)
}

#[test]
fn either_side_of_tcp_is_the_mpa_initiator() {
    for initiator in [Side::A, Side::B] {
        let mut sim = sim();
        let (mut a, mut b) = start_up(&mut sim, initiator);
        let (first, second) = match initiator {
            Side::A => (&mut a, &mut b),
            Side::B => (&mut b, &mut a),
        };
        first.post_recv(1, 10);
        second.post_recv(2, 10);
        second.post_send(3, b"fenced");
        sim.run_until_idle();
        assert_eq!(first.receives(), [], "the responder waits for an FPDU");
        first.post_send(4, b"first");
        sim.run_until_idle();
        assert_eq!(first.receives(), [Done::receive(1, 6)], "{initiator:?}");
        assert_eq!(second.receives(), [Done::receive(2, 5)], "{initiator:?}");
        assert_eq!((a.state(), b.state()), (QpState::Rts, QpState::Rts));
    }
}

/// RFC 5044 §7.1.2: after a reject the owner of the stream decides what becomes of the TCP
/// connection.
#[test]
fn reject_leaves_tcp_to_whoever_uses_the_stream() {
    let mut sim = sim();
    let (mut near, mut far) = streams(&mut sim);
    let request = encode_request(INITIATOR, b"hello").unwrap();
    write(&mut sim, &mut near, &request);
    let request = read(&mut sim, &mut far, request.len());
    let responder = Responder::new(RESPONDER);
    let Ok(ResponderStep::Request { request, .. }) = responder.on_bytes(&request) else {
        panic!("a Request")
    };
    let reply = responder.reject(&request, b"not today").unwrap();
    write(&mut sim, &mut far, &reply);
    let reply = read(&mut sim, &mut near, reply.len());
    let step = Initiator::new(INITIATOR).on_bytes(&reply);
    assert!(
        matches!(step, Ok(InitiatorStep::Rejected { .. })),
        "{step:?}"
    );
    write(&mut sim, &mut near, b"without MPA");
    assert_eq!(read(&mut sim, &mut far, 11), b"without MPA");
    write(&mut sim, &mut far, b"so be it");
    assert_eq!(read(&mut sim, &mut near, 8), b"so be it");
}

//! Fuzz targets: each takes any bytes, and must neither panic nor break what it asserts.
//!
//! | target | bytes are |
//! |---|---|
//! | [`startup`] | one flag byte, then a peer's start-up frame |
//! | [`framing`] | one flag byte, then a stream in Full Operation |
//! | [`segments`] | one flag byte, then ULPDUs, each behind its length (one byte) |
//! | [`connection`] | as for `framing`, and its ULPDUs go to a receiver |
//! | [`rendezvous`] | private data of a queue pair that is brought up by hand |
//! | [`control`] | a message of the switch's control socket |
//! | [`switch`] | steps of hostile clients of the switch: frames, messages, numbers that cannot be, ends |
//! | [`rnic`] | a program for the peer of a whole RNIC: TCP bytes, frames, time; what application and network do besides |
//!
//! `tests/corpus.rs` runs the committed corpus and mutates it. The program `replay` gives one input
//! to a target. A fuzzing engine needs no more than these functions. The profile `checked`
//! optimizes, and has overflow checks and debug assertions:
//! `XWARP_FUZZ_SECONDS=600 cargo test --profile checked --package xwarp-fuzz mutations`.
#![forbid(unsafe_code)]
#![expect(
    clippy::missing_panics_doc,
    reason = "to panic where a rule is broken is what a target is for"
)]

mod behaviour;
mod control;
mod hex;
mod memory;
mod mutate;
mod predicted;
mod rendezvous;
mod rnic;
mod switch;

pub use behaviour::Behaviour;
pub use control::control;
pub use hex::{from_hex, to_hex};
pub use mutate::Mutator;
pub use predicted::Predicted;
pub use rendezvous::rendezvous;
pub use rnic::rnic;
pub use switch::switch;

use memory::Memory;
use xwarp_iwarp::mpa::{
    Enhanced, InitiatorStep, MAX_STARTUP_FRAME, MAX_ULPDU, MpaError, ResponderStep, Revision, Step,
    encode_request,
};
use xwarp_iwarp::rdmap::MAX_TERMINATE;
use xwarp_iwarp::{
    Deframer, Framer, Inbound, Initiator, ReadRequest, Receiver, Responder, Stag, StartupParams,
    StreamConfig,
};

/// A target of the table above.
pub type Target = fn(&[u8]) -> Behaviour;

/// All targets by the name of their corpus folder. Of the pure state machines every input counts as
/// one behaviour.
pub const TARGETS: [(&str, Target); 8] = [
    ("startup", |input| unknown(startup, input)),
    ("framing", |input| unknown(framing, input)),
    ("segments", |input| unknown(segments, input)),
    ("connection", |input| unknown(connection, input)),
    ("rendezvous", |input| unknown(rendezvous, input)),
    ("control", control),
    ("switch", switch),
    ("rnic", rnic),
];

fn unknown<T>(target: fn(&[u8]) -> T, input: &[u8]) -> Behaviour {
    target(input);
    Behaviour::default()
}

/// Is bit `n` of the flag byte set?
pub(crate) const fn bit(flags: u8, n: u8) -> bool {
    flags >> n & 1 == 1
}

/// Start-up in both roles. A good Request is answered; the answer is a good Reply to an initiator
/// that asked the same.
pub fn startup(input: &[u8]) {
    let Some((&flags, stream)) = input.split_first() else {
        return;
    };
    let enhanced = Enhanced {
        peer_to_peer: bit(flags, 0),
        required: bit(flags, 1),
        ..Enhanced::with_depths(8, 8)
    };
    let params = StartupParams {
        crc: bit(flags, 2),
        markers: bit(flags, 3),
        max_revision: if bit(flags, 4) {
            Revision::One
        } else {
            Revision::Two
        },
        enhanced: bit(flags, 5).then_some(enhanced),
        allow_revision_0: bit(flags, 6),
    };
    match Initiator::new(params).on_bytes(stream) {
        Ok(InitiatorStep::NeedBytes(total)) => assert_wanted(total, stream, MAX_STARTUP_FRAME),
        Ok(
            InitiatorStep::Accepted { consumed, .. }
            | InitiatorStep::Unacceptable { consumed, .. }
            | InitiatorStep::Rejected { consumed, .. },
        ) => assert!(consumed <= stream.len()),
        Err(_) => {}
    }
    let responder = Responder::new(params);
    match responder.on_bytes(stream) {
        Ok(ResponderStep::NeedBytes(total)) => assert_wanted(total, stream, MAX_STARTUP_FRAME),
        Ok(ResponderStep::Request { request, consumed }) => {
            assert_eq!(consumed, stream.len());
            let accepted = responder.accept(&request, b"").expect("no private data");
            let rejected = responder.reject(&request, b"no").expect("two bytes");
            assert!(accepted.0.len() < MAX_STARTUP_FRAME && rejected.len() < MAX_STARTUP_FRAME);
            assert_eq!(accepted.1.enhanced.is_some(), request.enhanced.is_some());
        }
        Err(_) => {}
    }
    assert!(encode_request(params, b"").is_ok());
}

/// A stream in Full Operation; what is found in it is framed again, and found again.
pub fn framing(input: &[u8]) {
    on_fpdus(input, |_| true);
}

/// As [`framing`], and a receiver judges the ULPDUs.
pub fn connection(input: &[u8]) -> Predicted {
    let mut judge = Judge::new(input.first().copied().unwrap_or(0) >> 2);
    on_fpdus(input, |ulpdu| judge.goes_on(ulpdu));
    judge.predicted
}

/// A receiver that expects some responses.
fn receiver(flags: u8) -> Receiver {
    let mut receiver = Receiver::new(StreamConfig {
        extensions: bit(flags, 0),
        await_rtr: bit(flags, 1),
        version: u8::from(!bit(flags, 2)),
        send_immediates: bit(flags, 4),
        ..StreamConfig::new(if bit(flags, 3) { 0 } else { 3 }, 4)
    });
    receiver.expect_read(ReadRequest {
        sink: Memory::STAG,
        sink_to: Memory::BASE,
        len: 24,
        source: Stag(9),
        source_to: 0,
    });
    receiver.expect_atomic(7);
    receiver.expect_read(ReadRequest::RTR);
    receiver
}

/// Single ULPDUs, framing aside.
pub fn segments(input: &[u8]) -> Predicted {
    let Some((&flags, mut rest)) = input.split_first() else {
        return Predicted::default();
    };
    let mut judge = Judge::new(flags);
    while let Some((&len, behind)) = rest.split_first() {
        let (ulpdu, next) = behind.split_at(usize::from(len).min(behind.len()));
        judge.goes_on(ulpdu);
        rest = next;
    }
    judge.predicted
}

/// A receiver, its resources, and what it predicted.
struct Judge {
    receiver: Receiver,
    memory: Memory,
    predicted: Predicted,
}

impl Judge {
    fn new(flags: u8) -> Self {
        Self {
            receiver: receiver(flags),
            memory: Memory::default(),
            predicted: Predicted::default(),
        }
    }

    /// One ULPDU; places nothing outside its region or buffer. True if the stream goes on.
    fn goes_on(&mut self, ulpdu: &[u8]) -> bool {
        let ordinary = self.receiver.predict(ulpdu);
        match self.receiver.on_ulpdu(ulpdu, &mut self.memory) {
            Ok(inbound) => {
                if let Some(ordinary) = ordinary {
                    self.predicted.check(&ordinary, &inbound);
                }
                self.memory.take(&inbound);
            }
            Err(violation) => {
                let told = violation.terminate().ulpdu();
                assert!(told.len() <= MAX_TERMINATE && violation.terminate().code().is_known());
                assert!(self.receiver.has_ended() && !violation.to_string().is_empty());
                let again = self.receiver.on_ulpdu(ulpdu, &mut self.memory);
                assert_eq!(again, Ok(Inbound::Dropped));
            }
        }
        !self.receiver.has_ended()
    }
}

/// Calls `each` for the ULPDUs of a stream behind its flag byte, until it says no.
fn on_fpdus(input: &[u8], mut each: impl FnMut(&[u8]) -> bool) {
    let Some((&flags, mut stream)) = input.split_first() else {
        return;
    };
    let (crc, markers) = (bit(flags, 0), bit(flags, 1));
    let (mut deframer, mut framer) = (Deframer::new(crc, markers), Framer::new(crc, markers));
    loop {
        match deframer.next(stream) {
            Ok(Step::NeedBytes(total)) => return assert_wanted(total, stream, 2 * MAX_ULPDU),
            Ok(Step::Fpdu { ulpdu, consumed }) => {
                assert_eq!(consumed, framer.fpdu_len(ulpdu.len()));
                let mut again = vec![0; consumed];
                again[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
                framer.seal(&mut again, ulpdu.len());
                if !each(ulpdu) {
                    return;
                }
                stream = stream.get(consumed..).expect("an FPDU lies in its stream");
            }
            Err(error) => {
                assert_eq!(deframer.next(stream), Err(error));
                assert!(crc || error != MpaError::Crc);
                assert!(error.terminate().code().is_known());
                return;
            }
        }
    }
}

/// More bytes are wanted than there are, and no absurd number of them.
fn assert_wanted(total: usize, stream: &[u8], limit: usize) {
    assert!(total > stream.len() && total <= limit, "{total} wanted");
}

//! Replay of a recorded connection, as each of its ends would have read it.

use std::fmt::Write;

use xwarp_iwarp::mpa::{Enhanced, InitiatorStep, ResponderStep, Step};
use xwarp_iwarp::{
    AccessError, AccessKind, Deframer, Inbound, Initiator, InvalidateError, Opcode, ReadRequest,
    Receiver, Resources, Responder, Stag, StartupParams, StreamConfig,
};

use crate::capture::{Connection, Sender};

/// Maximum of outstanding Reads on either side: siw's limit.
const DEPTH: u16 = 128;
/// siw's parameters: no CRC, but an exchange of depths.
const SIW: StartupParams = StartupParams {
    crc: false,
    enhanced: Some(Enhanced::with_depths(DEPTH, DEPTH)),
    ..StartupParams::DEFAULT
};

/// Contents of a connection.
pub(crate) struct Replayed {
    pub(crate) revision: u8,
    pub(crate) crc: bool,
    /// What the end sent: opcode, segments, messages.
    pub(crate) initiator: String,
    pub(crate) responder: String,
    /// FPDUs that were incomplete in the TCP segment that they began in.
    pub(crate) spanning: usize,
}

/// Resources with every region and buffer.
struct Everything;

impl Resources for Everything {
    type Place = ();

    fn take_receive(&mut self) -> Option<u64> {
        Some(u64::from(u32::MAX))
    }

    fn admit(&self, _: Stag, _: u64, _: u64, _: AccessKind) -> Result<(), AccessError> {
        Ok(())
    }

    fn check_invalidate(&self, _: Stag) -> Result<(), InvalidateError> {
        Ok(())
    }
}

/// Segments and messages of each opcode.
#[derive(Default)]
struct Counts(Vec<(Opcode, usize, usize)>);

impl Counts {
    fn add(&mut self, opcode: Opcode, last: bool) {
        let Self(counts) = self;
        let at = counts.iter().position(|(known, ..)| *known == opcode);
        let at = at.unwrap_or_else(|| {
            counts.push((opcode, 0, 0));
            counts.len() - 1
        });
        counts[at].1 += 1;
        counts[at].2 += usize::from(last);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (opcode, segments, messages) in &self.0 {
            let comma = if text.is_empty() { "" } else { ", " };
            write!(text, "{comma}{opcode:?} {segments}/{messages}").expect("to a string");
        }
        text
    }
}

/// One end, which has received bytes.
struct Reader {
    stream: Vec<u8>,
    deframer: Deframer,
    receiver: Receiver,
    counts: Counts,
    spanning: usize,
}

impl Reader {
    fn new(crc: bool) -> Self {
        Self {
            stream: Vec::new(),
            deframer: Deframer::new(crc, false),
            receiver: Receiver::new(StreamConfig::new(DEPTH, DEPTH)),
            counts: Counts::default(),
            spanning: 0,
        }
    }

    /// Reads bytes from the other end. Returns the Reads that it requests, and the number of
    /// complete responses.
    fn read(&mut self, bytes: &[u8]) -> (Vec<ReadRequest>, usize) {
        self.stream.extend_from_slice(bytes);
        let (mut reads, mut responses) = (Vec::new(), 0);
        loop {
            match self.deframer.next(&self.stream).expect("a good FPDU") {
                Step::NeedBytes(_) => break,
                Step::Fpdu { ulpdu, consumed } => {
                    let opcode = Opcode::from_control(ulpdu[1]).expect("an opcode");
                    let inbound = self.receiver.on_ulpdu(ulpdu, &mut Everything);
                    match inbound.unwrap_or_else(|why| panic!("refused: {}", why.cause())) {
                        Inbound::ReadRequest(read) => reads.push(read.request),
                        Inbound::ReadResponse { done, .. } => responses += usize::from(done),
                        Inbound::Write { .. } | Inbound::Send { .. } => {}
                        other => panic!("siw sends no {other:?}"),
                    }
                    self.counts.add(opcode, ulpdu[0] & 0x40 != 0);
                    self.stream.drain(..consumed);
                }
            }
        }
        self.spanning += usize::from(!self.stream.is_empty());
        (reads, responses)
    }
}

pub(crate) fn replay(connection: &Connection) -> Replayed {
    let mut chunks = connection.chunks.iter();
    let request = chunks.next().expect("a Request");
    assert_eq!(request.from, Sender::Initiator);
    let request = match Responder::new(SIW)
        .on_bytes(&request.bytes)
        .expect("a Request")
    {
        ResponderStep::Request { request, .. } => request,
        ResponderStep::NeedBytes(_) => panic!("siw's Request comes in one piece"),
    };
    let reply = chunks.next().expect("a Reply");
    assert_eq!(reply.from, Sender::Responder);
    let initiator = Initiator::new(StartupParams {
        crc: request.crc,
        enhanced: SIW.enhanced.filter(|_| request.enhanced.is_some()),
        ..SIW
    });
    let negotiated = match initiator.on_bytes(&reply.bytes).expect("a Reply") {
        InitiatorStep::Accepted {
            negotiated,
            consumed,
            ..
        } if consumed == reply.bytes.len() => negotiated,
        other => panic!("the Reply accepts, and comes alone: {other:?}"),
    };
    let mut initiator = Reader::new(negotiated.crc);
    let mut responder = Reader::new(negotiated.crc);
    for chunk in chunks {
        let (receiving, sending) = match chunk.from {
            Sender::Initiator => (&mut responder, &mut initiator),
            Sender::Responder => (&mut initiator, &mut responder),
        };
        let (reads, responses) = receiving.read(&chunk.bytes);
        for read in reads {
            sending.receiver.expect_read(read);
        }
        for _ in 0..responses {
            sending.receiver.response_sent();
        }
    }
    assert!(
        initiator.stream.is_empty() && responder.stream.is_empty(),
        "an FPDU is cut off"
    );
    Replayed {
        revision: negotiated.revision,
        crc: negotiated.crc,
        initiator: responder.counts.text(),
        responder: initiator.counts.text(),
        spanning: initiator.spanning + responder.spanning,
    }
}

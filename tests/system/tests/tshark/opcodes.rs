//! Every opcode of RFC 5040 and RFC 7306, made by the wire types.

use std::collections::BTreeSet;

use xwarp_iwarp::{
    AtomicOperation, AtomicRequest, Framer, Message, ReadRequest, SendKind, Sender, Stag,
    StreamConfig, TermCode, Terminate,
};
use xwarp_system_tests::dissection::{Cable, dissect, fpdu};

use crate::support::{STARTUP, assert_shown};

/// Bytes of a ULPDU that fills a segment: an EMSS of 1448 (RFC 5044 §4.5).
const MULPDU: usize = 1442;

const READ: ReadRequest = ReadRequest {
    sink: Stag(0x5566_7788),
    sink_to: 0x2000,
    len: 3000,
    source: Stag(0x1122_3344),
    source_to: 0x1_0000_0001,
};

/// Both operations of opcode 10.
fn atomics() -> [AtomicRequest; 2] {
    let operations = [
        AtomicOperation::FetchAdd {
            add: 1,
            mask: 1 << 63,
        },
        AtomicOperation::CompareSwap {
            compare: 1,
            compare_mask: u64::MAX,
            swap: 2,
            swap_mask: 0xff,
        },
    ];
    operations.map(|operation| AtomicRequest {
        id: 0x0102_0304,
        operation,
        stag: Stag(0x1122_3344),
        to: 0x40,
    })
}

/// One message of each kind, and some of no bytes and of several segments.
fn messages(sender: &mut Sender) -> Vec<Message> {
    let mut messages = Vec::new();
    for (solicited, invalidate) in [
        (false, None),
        (true, None),
        (false, Some(Stag(9))),
        (true, Some(Stag(9))),
    ] {
        messages.push(sender.send(
            SendKind {
                solicited,
                invalidate,
                immediate: None,
            },
            100,
        ));
    }
    messages.push(sender.send(SendKind::default(), 0));
    messages.push(sender.send(SendKind::default(), 3001));
    messages.push(sender.write(Stag(0x1122_3344), 0x1000, 5));
    messages.push(sender.write(Stag(1), 0, 0));
    messages.push(sender.write(Stag(0x1122_3344), 0xffff_fff0, 4000));
    messages.push(sender.read_request(&READ));
    messages.push(sender.read_response(&READ));
    messages.push(sender.read_response(&ReadRequest::RTR));
    messages.push(sender.immediate(*b"8 bytes!", false));
    messages.push(sender.immediate(*b"8 bytes!", true));
    for atomic in atomics() {
        messages.push(sender.atomic_request(&atomic));
    }
    messages.push(sender.atomic_response(0x0102_0304, 42));
    messages
}

/// The ULPDUs of a message.
fn ulpdus(mut message: Message) -> Vec<Vec<u8>> {
    let mut ulpdus = Vec::new();
    while let Some(segment) = message.next_segment(MULPDU) {
        let payload = segment.payload.map(|byte| byte.to_le_bytes()[0]);
        ulpdus.push(segment.header.iter().copied().chain(payload).collect());
    }
    ulpdus
}

#[test]
fn every_opcode_is_shown_as_it_was_sent() {
    let mut sender = Sender::new(StreamConfig::new(4, 4));
    let mut sent: Vec<Vec<u8>> = messages(&mut sender).into_iter().flat_map(ulpdus).collect();
    sent.push(Terminate::with_code(TermCode::ddp_local()).ulpdu().to_vec());
    let opcodes: BTreeSet<u8> = sent.iter().map(|ulpdu| ulpdu[1] & 0x0f).collect();
    assert!(opcodes.into_iter().eq(0..=11), "all opcodes are there");
    // Once from either side.
    let mut cable = Cable::default();
    let fpdus = || {
        let mut framer = Framer::new(true, false);
        sent.iter().map(move |ulpdu| fpdu(&mut framer, ulpdu))
    };
    let initiator: Vec<Vec<u8>> = std::iter::once(STARTUP[0].to_vec())
        .chain(fpdus())
        .collect();
    cable.talk(&initiator, &[STARTUP[1].to_vec()]);
    let responder: Vec<Vec<u8>> = std::iter::once(STARTUP[1].to_vec())
        .chain(fpdus())
        .collect();
    cable.talk(&[STARTUP[0].to_vec()], &responder);
    let shown = assert_shown(&dissect(&cable.frames));
    assert!(
        shown == [sent.clone(), sent].concat(),
        "tshark shows other ULPDUs than were sent"
    );
}

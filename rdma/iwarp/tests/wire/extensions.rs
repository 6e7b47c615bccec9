//! RFC 7306: Immediate Data and Atomic Operations; F-9 to F-14 of vectors.md. `input/` has the
//! refusals.

use crate::support::{A, B, Region, Stream, fpdus, hex};
use proptest::prelude::*;
use xwarp_iwarp::rdmap::InboundAtomic;
use xwarp_iwarp::{
    AccessError, AtomicOperation, AtomicRequest, Inbound, Message, ReadRequest, SendKind, Sender,
    Stag, StreamConfig, Terminate,
};

const ADD_ONE: AtomicRequest = AtomicRequest {
    id: 0xcafe_f00d,
    operation: AtomicOperation::FetchAdd { add: 1, mask: 0 },
    stag: A,
    to: 0x1008,
};

const SWAP: AtomicRequest = AtomicRequest {
    id: 0xcafe_f00e,
    operation: AtomicOperation::CompareSwap {
        compare: 43,
        compare_mask: u64::MAX,
        swap: 0x0102_0304_0506_0708,
        swap_mask: u64::MAX,
    },
    stag: A,
    to: 0x1008,
};

/// F-11 without its CRC, and with MSN 1: `FetchAdd` of 1 to A at 0x1008.
const FETCH_ADD: &str = "41 4a 00000000 00000001 00000001 00000000 00000000 cafef00d 11223344 0000000000001008 \
     0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff";

fn sender() -> Sender {
    Sender::new(StreamConfig::new(4, 4))
}

/// The only FPDU of a message without payload of the ULP.
fn only(message: Message) -> Vec<u8> {
    let [fpdu] = fpdus(message, &[], 128).try_into().expect("one segment");
    fpdu
}

fn read() -> ReadRequest {
    ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len: 0,
        source: A,
        source_to: 0,
    }
}

/// A ULPDU on this queue with this opcode and payload.
fn ulpdu(opcode: u8, qn: u8, msn: u8, payload: &str) -> Vec<u8> {
    hex(&format!(
        "41 4{opcode:x} 00000000 000000{qn:02x} 000000{msn:02x} 00000000 {payload}"
    ))
}

fn atomic(stream: &mut Stream, bytes: &[u8]) -> InboundAtomic {
    match stream.ulpdu(bytes) {
        Ok(Inbound::AtomicRequest(atomic)) => atomic,
        other => panic!("an Atomic Request, not {other:?}"),
    }
}

#[test]
fn immediate_data_is_built_and_delivered_in_turn_with_sends() {
    let (mut sender, mut stream) = (sender(), Stream::extended());
    for msn in 1..5 {
        let _ = sender.send(SendKind::default(), 0);
        stream = stream.receive(0);
        assert!(stream.ulpdu(&ulpdu(3, 0, msn, "")).is_ok());
    }
    let data = [1, 2, 3, 4, 5, 6, 7, 8];
    for (solicited, fpdu) in [
        (
            false,
            "001a 41 48 00000000 00000000 00000005 00000000 0102030405060708 922360c6",
        ), // F-9
        (
            true,
            "001a 41 49 00000000 00000000 00000006 00000000 0102030405060708 a0a022b9",
        ), // F-10
    ] {
        let fpdu = hex(fpdu);
        stream = stream.receive(0);
        assert_eq!(only(sender.immediate(data, solicited)), fpdu);
        assert_eq!(
            stream.fpdu(&fpdu),
            Ok(Inbound::Immediate { data, solicited })
        );
        assert!(stream.table.receives.is_empty());
    }
    assert_eq!(
        stream.refusal(&ulpdu(8, 0, 8, "0102030405060708")),
        "1/2/03"
    );
}

#[test]
fn immediate_data_needs_a_receive_of_any_size() {
    let immediate = ulpdu(8, 0, 1, "0102030405060708");
    assert_eq!(Stream::extended().refusal(&immediate), "1/2/02");
    assert!(Stream::extended().receive(0).ulpdu(&immediate).is_ok());
    let mut shifted = immediate.clone();
    shifted[17] = 1;
    assert_eq!(Stream::extended().receive(0).refusal(&shifted), "1/2/04");
    let mut within_send = Stream::extended().receive(8);
    let mut send = ulpdu(3, 0, 1, "aa");
    send[0] = 0x01;
    assert!(within_send.ulpdu(&send).is_ok());
    assert_eq!(within_send.refusal(&immediate), "0/2/06"); // D14
}

#[test]
fn invalidate_stag_field_is_not_read() {
    let mut immediate = ulpdu(8, 0, 1, "0102030405060708");
    immediate[2..6].fill(0xdd);
    assert!(Stream::extended().receive(0).ulpdu(&immediate).is_ok());
    let mut request = hex(FETCH_ADD);
    request[2..6].fill(0xdd);
    assert!(Stream::extended().page().ulpdu(&request).is_ok());
}

#[test]
fn atomic_requests_are_built_and_handed_on() {
    let mut sender = sender();
    let _ = sender.read_request(&read()); // MSN 1: Reads and Atomics share the sequence
    let mut stream = Stream::extended().page();
    assert!(stream.ulpdu(&ulpdu(1, 1, 1, &"00".repeat(28))).is_ok());
    for (request, fpdu) in [
        (
            ADD_ONE, // F-11
            "0046 41 4a 00000000 00000001 00000002 00000000 00000000 cafef00d 11223344 0000000000001008 \
             0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff 9bfd26d8",
        ),
        (
            SWAP, // F-12
            "0046 41 4a 00000000 00000001 00000003 00000000 00000002 cafef00e 11223344 0000000000001008 \
             0102030405060708 ffffffffffffffff 000000000000002b ffffffffffffffff d9cf12b2",
        ),
    ] {
        let fpdu = hex(fpdu);
        assert_eq!(only(sender.atomic_request(&request)), fpdu);
        let Ok(Inbound::AtomicRequest(inbound)) = stream.fpdu(&fpdu) else {
            panic!("an Atomic Request")
        };
        assert_eq!(inbound.request, request);
    }
}

#[test]
fn atomic_responses_are_built_and_complete_the_oldest_requests() {
    let mut sender = sender();
    let mut stream = Stream::extended();
    stream.receiver.expect_atomic(0xcafe_f00d);
    stream.receiver.expect_read(read());
    stream.receiver.expect_atomic(0xcafe_f00e);
    let first =
        // F-13
        hex("001e 41 4b 00000000 00000003 00000001 00000000 cafef00d 000000000000002a 00b13b98");
    assert_eq!(only(sender.atomic_response(0xcafe_f00d, 42)), first);
    assert_eq!(
        stream.fpdu(&first),
        Ok(Inbound::AtomicResponse { original: 42 })
    );
    let response = hex("c1 42 00000001 0000000000000000");
    assert!(matches!(
        stream.ulpdu(&response),
        Ok(Inbound::ReadResponse { done: true, .. })
    ));
    let second =
        // F-14
        hex("001e 41 4b 00000000 00000003 00000002 00000000 cafef00e 000000000000002b cb5ad293");
    assert_eq!(only(sender.atomic_response(0xcafe_f00e, 43)), second);
    assert_eq!(
        stream.fpdu(&second),
        Ok(Inbound::AtomicResponse { original: 43 })
    );
    assert_eq!(stream.receiver.outstanding_reads(), 0);
}

#[test]
fn responses_come_in_the_order_of_the_requests() {
    let mut stream = Stream::extended();
    stream.receiver.expect_read(read());
    stream.receiver.expect_atomic(7);
    let response = ulpdu(0xb, 3, 1, "00000007 0000000000000000");
    assert_eq!(stream.refusal(&response), "1/2/03");
    let mut stream = Stream::extended();
    stream.receiver.expect_atomic(7);
    assert_eq!(
        stream.refusal(&hex("c1 42 00000001 0000000000000000")),
        "1/1/00"
    );
}

#[test]
fn reserved_bits_and_the_compare_fields_of_a_fetch_add_are_not_read() {
    let mut request = hex(FETCH_ADD);
    request[18..21].fill(0xff);
    request[21] = 0xf0;
    request[54..].fill(0x77); // Compare Data and Mask
    assert_eq!(
        atomic(&mut Stream::extended().page(), &request).request,
        ADD_ONE
    );
}

#[test]
fn reads_and_atomics_share_the_credit() {
    let config = StreamConfig {
        extensions: true,
        ..StreamConfig::new(2, 0)
    };
    let mut stream = Stream::with_config(config).page();
    let zero_read = |msn| ulpdu(1, 1, msn, &"00".repeat(28));
    let add = |msn| {
        let mut bytes = hex(FETCH_ADD);
        bytes[13] = msn;
        bytes
    };
    assert!(stream.ulpdu(&zero_read(1)).is_ok());
    assert!(stream.ulpdu(&add(2)).is_ok());
    stream.receiver.response_sent();
    assert!(stream.ulpdu(&add(3)).is_ok());
    assert_eq!(stream.refusal(&zero_read(4)), "1/2/03");
    let none = StreamConfig { ird: 0, ..config };
    assert_eq!(Stream::with_config(none).page().refusal(&add(1)), "1/2/01");
}

#[test]
fn atomic_whose_target_went_away_returns_its_ddp_header_only() {
    let inbound = atomic(&mut Stream::extended().page(), &hex(FETCH_ADD));
    let refusal = Terminate::atomic_refused(&inbound, AccessError::InvalidStag).ulpdu();
    assert_eq!(
        refusal[18..],
        hex("0100c000 0046 41 4a 00000000 00000001 00000001 00000000")
    );
}

#[test]
fn every_defined_operation_is_executed_as_it_is_read() {
    assert_eq!(ADD_ONE.operation.apply(42), 43);
    assert_eq!(SWAP.operation.apply(43), 0x0102_0304_0506_0708);
    assert_eq!(SWAP.operation.apply(44), 44);
}

#[test]
fn region_needs_the_right_and_the_room_for_8_bytes() {
    let region = Region::new(A, 0x1000, 15);
    assert_eq!(
        Stream::extended().region(region).refusal(&hex(FETCH_ADD)),
        "0/1/01"
    );
    let region = Region::new(A, 0x1000, 16);
    assert!(
        Stream::extended()
            .region(region)
            .ulpdu(&hex(FETCH_ADD))
            .is_ok()
    );
}

/// Adds field by field, bit by bit.
fn add_by_bits(original: u64, add: u64, mask: u64) -> u64 {
    let (mut result, mut carry) = (0, 0);
    for bit in 0..64 {
        let sum = (original >> bit & 1) + (add >> bit & 1) + carry;
        result |= (sum & 1) << bit;
        carry = if mask >> bit & 1 == 1 { 0 } else { sum >> 1 };
    }
    result
}

proptest! {
    #[test]
    fn masked_add_is_that_of_the_bitwise_definition(original: u64, add: u64, mask: u64, other: u64) {
        for mask in [mask, mask & other, mask & other & other.rotate_left(7)] {
            let operation = AtomicOperation::FetchAdd { add, mask };
            prop_assert_eq!(operation.apply(original), add_by_bits(original, add, mask));
        }
    }

    #[test]
    fn any_request_comes_back_as_it_was_built(
        id: u32, stag: u32, to in 0u64..0x1000, data: u64, mask: u64, compare: u64, compare_mask: u64, swap: bool,
    ) {
        let to = to & !7;
        let operation = if swap {
            AtomicOperation::CompareSwap { compare, compare_mask, swap: data, swap_mask: mask }
        } else {
            AtomicOperation::FetchAdd { add: data, mask }
        };
        let request = AtomicRequest { id, operation, stag: Stag(stag), to };
        let fpdu = only(sender().atomic_request(&request));
        let mut stream = Stream::extended().region(Region::new(Stag(stag), 0, 0x1000));
        let Ok(Inbound::AtomicRequest(inbound)) = stream.fpdu(&fpdu) else {
            panic!("an Atomic Request")
        };
        prop_assert_eq!(inbound.request, request);
    }
}

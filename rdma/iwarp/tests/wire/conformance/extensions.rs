//! Immediate Data and Atomic Operations (RFC 7306).

use crate::support::{Region, Stream, hex};
use xwarp_iwarp::{Inbound, Stag, StreamConfig};

/// A message of RFC 7306: opcode, queue, payload. Each is valid as the first of its queue.
fn messages() -> [(u8, u8, Vec<u8>); 4] {
    let add = "00000000 cafef00d 11223344 0000000000001008 \
         0000000000000001 0000000000000000 0000000000000000 ffffffffffffffff";
    [
        (0x8, 0, hex("0102030405060708")),
        (0x9, 0, hex("0102030405060708")),
        (0xa, 1, hex(add)),
        (0xb, 3, hex("cafef00d 000000000000002a")),
    ]
}

fn ulpdu(control: [u8; 2], qn: u8, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = hex("00 00 00000000 00000000 00000001 00000000");
    ulpdu[..2].copy_from_slice(&control);
    ulpdu[9] = qn;
    [ulpdu, payload.to_vec()].concat()
}

/// A stream that accepts each of the messages.
fn extended() -> Stream {
    let mut stream = Stream::extended().page().receive(0);
    stream.receiver.expect_atomic(0xcafe_f00d);
    stream
}

/// R7306-4.1-2, -8.2-1
#[test]
fn every_message_of_rfc_7306_is_of_rdmap_version_1() {
    for (opcode, qn, payload) in messages() {
        let right = ulpdu([0x41, 0x40 | opcode], qn, &payload);
        assert!(extended().ulpdu(&right).is_ok(), "opcode {opcode:#x}");
        for rv in [0x00, 0x80, 0xc0] {
            let wrong = ulpdu([0x41, rv | opcode], qn, &payload);
            assert_eq!(extended().refusal(&wrong), "0/2/05", "opcode {opcode:#x}");
        }
        for dv in [0, 2, 3] {
            let wrong = ulpdu([0x40 | dv, 0x40 | opcode], qn, &payload);
            assert_eq!(extended().refusal(&wrong), "1/2/06", "opcode {opcode:#x}");
        }
        // A stream of the RDMA Consortium's versions does not know them.
        let config = StreamConfig {
            version: 0,
            extensions: true,
            ..StreamConfig::new(4, 4)
        };
        let old = ulpdu([0x40, opcode], qn, &payload);
        assert!(Stream::with_config(config).receive(8).ulpdu(&old).is_err());
    }
}

/// R7306-8.2-1
#[test]
fn ddp_fields_of_every_message_of_rfc_7306_are_checked() {
    for (opcode, qn, payload) in messages() {
        let right = ulpdu([0x41, 0x40 | opcode], qn, &payload);
        // The last bytes of QN, MSN and MO.
        for (at, value, code) in [(9, 4, "1/2/01"), (13, 2, "1/2/03"), (17, 1, "1/2/04")] {
            let mut wrong = right.clone();
            wrong[at] = value;
            assert_eq!(extended().refusal(&wrong), code, "opcode {opcode:#x}");
        }
        let mut unfinished = right;
        unfinished[0] = 0x01;
        assert_eq!(
            extended().refusal(&unfinished),
            "0/2/07",
            "opcode {opcode:#x}"
        );
    }
}

/// R7306-4.1-4
#[test]
fn invalidate_stag_field_of_no_message_of_rfc_7306_is_read() {
    for (opcode, qn, payload) in messages() {
        let mut odd = ulpdu([0x41, 0x40 | opcode], qn, &payload);
        odd[2..6].fill(0xdd);
        let mut right = odd.clone();
        right[2..6].fill(0);
        let (mut one, mut other) = (extended(), extended());
        let found = format!("{:?}", one.ulpdu(&odd).expect("is taken"));
        let expected = format!("{:?}", other.ulpdu(&right).expect("is taken"));
        // The header of an Atomic Request is kept for a later Terminate.
        if opcode != 0xa {
            assert_eq!(found, expected);
        }
    }
}

/// R7306-5.1.2-2: a `CmpSwap` is judged as a `FetchAdd` is.
#[test]
fn misaligned_compare_swap_is_0_2_07() {
    let [_, _, (_, _, mut header), _] = messages();
    header[3] = 2; // CmpSwap
    let atomic = |header: &[u8]| ulpdu([0x41, 0x4a], 1, header);
    assert!(extended().ulpdu(&atomic(&header)).is_ok());
    for low in 1..8 {
        header[19] = 0x08 | low;
        assert_eq!(extended().refusal(&atomic(&header)), "0/2/07", "TO {low}");
    }
}

/// R7306-5.2.2-5-1
#[test]
fn responses_to_as_many_atomics_as_may_be_outstanding_are_taken() {
    for ord in [1, 7, 64] {
        let config = StreamConfig {
            extensions: true,
            ..StreamConfig::new(0, ord)
        };
        let mut stream = Stream::with_config(config);
        for id in 0..ord {
            stream.receiver.expect_atomic(u32::from(id));
        }
        for id in 0..u8::try_from(ord).unwrap() {
            let mut response = ulpdu([0x41, 0x4b], 3, &hex("00000000 000000000000002a"));
            (response[13], response[21]) = (id + 1, id);
            let original = Inbound::AtomicResponse { original: 42 };
            assert_eq!(stream.ulpdu(&response), Ok(original), "response {id}");
        }
        assert_eq!(stream.receiver.outstanding_reads(), 0);
    }
}

/// R7306-8.2-3: to the last byte of the region.
#[test]
fn atomic_is_an_access_to_eight_bytes() {
    let [_, _, (_, _, header), _] = messages();
    let request = ulpdu([0x41, 0x4a], 1, &header);
    for (base, len, code) in [
        (0x1008, 8, None),
        (0x1008, 7, Some("0/1/01")),
        (0x1009, 8, Some("0/1/01")),
        (0x1000, 15, Some("0/1/01")),
        (0x1000, 16, None),
    ] {
        let region = Region::new(Stag(0x1122_3344), base, len);
        let mut stream = Stream::extended().region(region);
        match code {
            None => assert!(stream.ulpdu(&request).is_ok(), "{len} bytes at {base:#x}"),
            Some(code) => assert_eq!(stream.refusal(&request), code),
        }
    }
}

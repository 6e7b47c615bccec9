//! Terminates to the byte, one for each kind of refusal: vectors.md §6. `rows/` has every input that is refused, and its code.

use crate::support::{A, B, Region, Stream, hex, sealed, ulpdu_of};
use xwarp_iwarp::{
    AccessError, Inbound, InvalidateError, MpaError, ReadRequest, Sender, StreamConfig, TermCode,
    Terminate,
};

/// A page at TO 0x1000 of [`A`].
const PAGE: Region = Region {
    stag: A,
    base: 0x1000,
    len: 0x1000,
    ours: true,
    rights: true,
    invalidate: Ok(()),
};

/// The stream refuses `offending` with exactly the FPDU `terminate`, and then reads nothing more.
fn assert_refused(mut stream: Stream, offending: &str, terminate: &str) {
    let offending = hex(offending);
    let violation = stream.fpdu(&offending).expect_err("is to be refused");
    assert_eq!(
        sealed(&violation.terminate().ulpdu()),
        hex(terminate),
        "{violation}"
    );
    assert!(stream.receiver.has_ended());
    let zero_length_write = hex("000e c1 40 00000001 0000000000000000 ebd34c5f");
    assert_eq!(stream.fpdu(&zero_length_write), Ok(Inbound::Dropped));
}

/// T-1
#[test]
fn write_to_an_unknown_stag_is_1_1_00() {
    assert_refused(
        Stream::new(),
        "0012 c1 40 badbad00 0000000000000000 00010203 0c38b614",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1100c000 0012 c1 40 badbad00 0000000000000000 5654335f",
    );
}

/// T-2
#[test]
fn write_past_the_end_is_1_1_01() {
    assert_refused(
        Stream::new().page(),
        "0012 c1 40 11223344 0000000000001ffe 00010203 27d2e0b9",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1101c000 0012 c1 40 11223344 0000000000001ffe fd611200",
    );
}

/// T-3
#[test]
fn write_to_a_region_of_another_stream_is_1_1_02() {
    assert_refused(
        Stream::new().region(Region {
            ours: false,
            ..PAGE
        }),
        "0012 c1 40 11223344 0000000000001000 00010203 9a37d6c7",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1102c000 0012 c1 40 11223344 0000000000001000 8a18dc76",
    );
}

/// T-4
#[test]
fn write_that_wraps_is_1_1_03() {
    assert_refused(
        Stream::new().page(),
        "002e c1 40 11223344 fffffffffffffff0 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 47da7726",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1103c000 002e c1 40 11223344 fffffffffffffff0 31bb616e",
    );
}

/// T-5
#[test]
fn tagged_segment_of_ddp_version_0_is_1_1_04() {
    assert_refused(
        Stream::new().page(),
        "0012 c0 40 11223344 0000000000001000 00010203 b135bfc8",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1104c000 0012 c0 40 11223344 0000000000001000 8d7c74ba",
    );
}

/// T-6
#[test]
fn queue_4_is_1_2_01() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000004 00000001 00000000 00010203 7795fe1a",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1201c000 0016 41 43 00000000 00000004 00000001 00000000 07b9a595",
    );
}

/// T-7
#[test]
fn send_without_a_receive_is_1_2_02() {
    assert_refused(
        Stream::new(),
        "0016 41 43 00000000 00000000 00000001 00000000 00010203 e374b6d9",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1202c000 0016 41 43 00000000 00000000 00000001 00000000 7c6b1ed5",
    );
}

/// T-8
#[test]
fn send_with_another_number_than_the_next_is_1_2_03() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000000 00000005 00000000 00010203 d0b67907",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1203c000 0016 41 43 00000000 00000000 00000005 00000000 f4258840",
    );
}

/// T-9
#[test]
fn send_that_begins_beyond_its_buffer_is_1_2_04() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 43 00000000 00000000 00000001 00001388 00010203 ca51c386",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1204c000 0016 41 43 00000000 00000000 00000001 00001388 b20717ef",
    );
}

/// T-10
#[test]
fn send_longer_than_its_buffer_is_1_2_05() {
    assert_refused(
        Stream::new().receive(100),
        "0077 41 43 00000000 00000000 00000001 00000000 \
         000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f \
         303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f \
         6061626364 000000 892c0ca4",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1205c000 0077 41 43 00000000 00000000 00000001 00000000 ab548e80",
    );
}

/// T-11
#[test]
fn untagged_segment_of_ddp_version_2_is_1_2_06() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 42 43 00000000 00000000 00000001 00000000 00010203 3f47883d",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1206c000 0016 42 43 00000000 00000000 00000001 00000000 10db0616",
    );
}

/// T-12
#[test]
fn rdmap_version_0_is_0_2_05() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 03 00000000 00000000 00000001 00000000 00010203 b0941d95",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0205c000 0016 41 03 00000000 00000000 00000001 00000000 59f117a2",
    );
}

/// T-13
#[test]
fn unassigned_opcode_is_0_2_06() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 4c 00000000 00000000 00000001 00000000 00010203 08ead292",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0206c000 0016 41 4c 00000000 00000000 00000001 00000000 60b5baec",
    );
}

/// T-14
#[test]
fn read_of_an_unknown_stag_is_0_1_00() {
    assert_refused(
        Stream::new(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00001000 badbad00 0000000000000000 a5a44693",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0100e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00001000 \
         badbad00 0000000000000000 5cb5cb8a",
    );
}

/// T-15
#[test]
fn read_past_the_end_is_0_1_01() {
    assert_refused(
        Stream::new().page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00001001 11223344 0000000000001000 233fe1fd",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0101e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00001001 \
         11223344 0000000000001000 5c1444dd",
    );
}

/// T-16
#[test]
fn read_of_a_region_without_the_right_is_0_1_02() {
    assert_refused(
        Stream::new().region(Region {
            rights: false,
            ..PAGE
        }),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0102e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000010 \
         11223344 0000000000001000 a587d1f7",
    );
}

/// T-17
#[test]
fn read_of_a_region_of_another_stream_is_0_1_03() {
    assert_refused(
        Stream::new().region(Region {
            ours: false,
            ..PAGE
        }),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0103e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000010 \
         11223344 0000000000001000 23bdf9ce",
    );
}

/// T-18
#[test]
fn read_that_wraps_is_0_1_04() {
    assert_refused(
        Stream::new().page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000020 11223344 fffffffffffffff0 7df0ac3c",
        "0046 41 47 00000000 00000002 00000001 00000000 \
         0104e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002000 00000020 \
         11223344 fffffffffffffff0 9c0b81c1",
    );
}

/// T-19
#[test]
fn invalidate_of_a_region_of_another_stream_is_0_1_09() {
    let foreign = Region {
        stag: B,
        invalidate: Err(InvalidateError::NotAssociated),
        ..PAGE
    };
    assert_refused(
        Stream::new().receive(4096).region(foreign),
        "0016 41 44 55667788 00000000 00000001 00000000 00010203 f9da19d4",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0109c000 0016 41 44 55667788 00000000 00000001 00000000 cf5d89c6",
    );
}

/// T-24
#[test]
fn write_to_a_region_without_the_right_is_1_1_02() {
    assert_refused(
        Stream::new().region(Region {
            rights: false,
            ..PAGE
        }),
        "0012 c1 40 11223344 0000000000001000 00010203 9a37d6c7",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         1102c000 0012 c1 40 11223344 0000000000001000 8a18dc76",
    );
}

/// T-25
#[test]
fn read_beyond_the_ird_is_1_2_03() {
    let mut stream = Stream::new().page();
    let mut peer = Sender::new(StreamConfig::new(4, 4));
    let read = ReadRequest {
        sink: B,
        sink_to: 0x2000,
        len: 16,
        source: A,
        source_to: 0x1000,
    };
    for _ in 0..4 {
        let request = peer
            .read_request(&read)
            .next_segment(1454)
            .expect("one segment");
        assert!(matches!(
            stream.ulpdu(&request.header),
            Ok(Inbound::ReadRequest(_))
        ));
    }
    assert_refused(
        stream,
        "002e 41 41 00000000 00000001 00000005 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 1d3904f1",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1203c000 002e 41 41 00000000 00000001 00000005 00000000 c3d03002",
    );
}

/// T-26
#[test]
fn read_request_without_the_l_bit_is_0_2_07() {
    assert_refused(
        Stream::new().page(),
        "002e 01 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 c0f7d3c6",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0207c000 002e 01 41 00000000 00000001 00000001 00000000 cacd0961",
    );
}

/// T-27
#[test]
fn segment_shorter_than_its_header_is_1_0_00() {
    assert_refused(
        Stream::new().page(),
        "000a c1 40 11223344 00000000 b5429277",
        "0016 41 47 00000000 00000002 00000001 00000000 10000000 c4130bf4",
    );
}

/// T-28
#[test]
fn read_without_ird_is_1_2_01() {
    assert_refused(
        Stream::with_ird(0).page(),
        "002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00000010 11223344 0000000000001000 50e30c9c",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         1201c000 002e 41 41 00000000 00000001 00000001 00000000 038ed209",
    );
}

/// T-29
#[test]
fn tagged_send_is_0_2_06() {
    assert_refused(
        Stream::new().page(),
        "0012 c1 43 11223344 0000000000001000 00010203 7b53fb27",
        "0026 41 47 00000000 00000002 00000001 00000000 \
         0206c000 0012 c1 43 11223344 0000000000001000 5f7650eb",
    );
}

/// T-30
#[test]
fn invalidate_of_an_unknown_stag_is_0_1_00() {
    assert_refused(
        Stream::new().receive(4096),
        "0016 41 44 badbad00 00000000 00000001 00000000 00010203 49b71f95",
        "002a 41 47 00000000 00000002 00000001 00000000 \
         0100c000 0016 41 44 badbad00 00000000 00000001 00000000 52914ede",
    );
}

/// T-20: the returned header asks for what was not sent.
#[test]
fn read_aborted_midway_returns_its_rest() {
    let mut stream = Stream::new().region(Region {
        len: 0x2000,
        ..PAGE
    });
    let request = hex("002e 41 41 00000000 00000001 00000001 00000000 \
         55667788 0000000000002000 00002000 11223344 0000000000001000 b90c4a3b");
    let Ok(Inbound::ReadRequest(read)) = stream.fpdu(&request) else {
        panic!("a Read Request")
    };
    let terminate = Terminate::read_aborted(&read, 2048, AccessError::InvalidStag);
    let expected = hex("0046 41 47 00000000 00000002 00000001 00000000 \
         0100e000 002e 41 41 00000000 00000001 00000001 00000000 55667788 0000000000002800 00001800 \
         11223344 0000000000001800 8d830099");
    assert_eq!(sealed(&terminate.ulpdu()), expected);
}

/// T-21 to T-23 offend in RFC 7306's ways; here its opcodes are already too much.
#[test]
fn opcodes_of_rfc_7306_are_0_2_06() {
    for (opcode, qn) in [
        (0x48, 0),
        (0x49, 0),
        (0x4a, 1),
        (0x4b, 0),
        (0x4b, 1),
        (0x4b, 2),
    ] {
        let mut ulpdu = hex("41 00 00000000 00000000 00000001 00000000 0001020304050607");
        (ulpdu[1], ulpdu[9]) = (opcode, qn);
        assert_eq!(
            Stream::new().receive(4096).refusal(&ulpdu),
            "0/2/06",
            "control {opcode:#x} on QN {qn}"
        );
    }
}

#[test]
fn terminates_without_an_offending_message_have_no_headers() {
    for (terminate, control, crc) in [
        (Terminate::local(), "00000000", "f9a26f1d"),
        (
            Terminate::with_code(TermCode::ddp_local()),
            "10000000",
            "c4130bf4",
        ),
        (
            Terminate::with_code(TermCode::mpa(1)),
            "20010000",
            "0c240b6f",
        ),
        (MpaError::Crc.terminate(), "20020000", "7fe42585"),
        (
            Terminate::with_code(TermCode::mpa(3)),
            "20030000",
            "01766420",
        ),
        (
            Terminate::with_code(TermCode::mpa(5)),
            "20050000",
            "1680d5f1",
        ),
        (
            Terminate::with_code(TermCode::mpa(6)),
            "20060000",
            "6540fb1b",
        ),
        (
            Terminate::with_code(TermCode::mpa(7)),
            "20070000",
            "1bd2babe",
        ),
    ] {
        let expected = hex(&format!(
            "0016 41 47 00000000 00000002 00000001 00000000 {control} {crc}"
        ));
        assert_eq!(sealed(&terminate.ulpdu()), expected);
    }
}

#[test]
fn violation_says_what_where_and_how_much() {
    let offending = hex("0012 c1 40 11223344 0000000000001ffe 00010203 27d2e0b9");
    let violation = Stream::new()
        .page()
        .ulpdu(ulpdu_of(&offending))
        .expect_err("past the end");
    let text = "Write of 4 bytes to STag 0x11223344 at TO 0x1ffe: base or bounds violated";
    assert_eq!(violation.to_string(), text);
    let code = "1/1/01 base or bounds violation (DDP tagged buffer)";
    assert_eq!(violation.terminate().code().to_string(), code);
}

//! Terminates that no inbound segment causes, and an interrupted Read: vectors.md §6. `input/` has
//! those of refused input.

use crate::support::{A, Region, Stream, hex, sealed, ulpdu_of};
use xwarp_iwarp::{AccessError, Inbound, MpaError, TermCode, Terminate};

/// T-20: the returned header requests the unsent rest.
#[test]
fn read_aborted_midway_returns_its_rest() {
    let mut stream = Stream::new().region(Region::new(A, 0x1000, 0x2000));
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

#[test]
fn terminates_without_an_offending_message_have_no_headers() {
    let with_code = Terminate::with_code;
    for (terminate, control, crc) in [
        (Terminate::local(), "00000000", "f9a26f1d"),
        (with_code(TermCode::ddp_local()), "10000000", "c4130bf4"),
        (with_code(TermCode::mpa(1)), "20010000", "0c240b6f"),
        (MpaError::Crc.terminate(), "20020000", "7fe42585"),
        (with_code(TermCode::mpa(3)), "20030000", "01766420"),
        (with_code(TermCode::mpa(5)), "20050000", "1680d5f1"),
        (with_code(TermCode::mpa(6)), "20060000", "6540fb1b"),
        (with_code(TermCode::mpa(7)), "20070000", "1bd2babe"),
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

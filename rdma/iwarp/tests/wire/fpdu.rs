//! Framing, CRC and MULPDU: vectors.md §1, §7.1, §7.2, §8 and §9.

use crate::support::{hex, sealed, ulpdu_of};
use xwarp_iwarp::MpaError;
use xwarp_iwarp::mpa::{Step, fpdu_len, mulpdu, next_fpdu, seal_fpdu};

/// F-4: a Send of "Hello".
const HELLO: &str = "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 20f5b101";

#[test]
fn whole_fpdu_yields_its_ulpdu_and_a_part_of_it_the_length_that_is_wanted() {
    let stream = hex(HELLO);
    assert_eq!(
        next_fpdu(&stream, true),
        Ok(Step::Fpdu {
            ulpdu: &stream[2..25],
            consumed: 32
        })
    );
    assert_eq!(next_fpdu(&[], true), Ok(Step::NeedBytes(2)));
    assert_eq!(next_fpdu(&stream[..1], true), Ok(Step::NeedBytes(2)));
    for have in 2..32 {
        assert_eq!(next_fpdu(&stream[..have], true), Ok(Step::NeedBytes(32)));
    }
}

#[test]
fn bytes_after_an_fpdu_belong_to_the_next() {
    let stream = [hex(HELLO), hex("000e")].concat();
    assert_eq!(
        next_fpdu(&stream, true),
        Ok(Step::Fpdu {
            ulpdu: &stream[2..25],
            consumed: 32
        })
    );
}

#[test]
fn rfc_5044_figures_5_and_6_without_their_markers_are_good() {
    let zeros = "000000000000000000000000000000000000000000000000";
    for (msn, crc) in [("00000001", "b7243ec3"), ("00000002", "290fbede")] {
        let fpdu = hex(&format!(
            "002a 41 43 00000000 00000000 {msn} 00000000 {zeros} {crc}"
        )); // K-1n, K-2n
        assert_eq!(fpdu.len(), 48);
        assert_eq!(sealed(ulpdu_of(&fpdu)), fpdu);
    }
}

#[test]
fn corrupt_fpdus_are_refused() {
    for (name, fpdu) in [
        (
            "C-1 payload",
            "0017 41 43 00000000 00000000 00000001 00000000 49656c6c6f 000000 20f5b101",
        ),
        (
            "C-2 length",
            "0016 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 20f5b101",
        ),
        (
            "C-3 pad",
            "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 800000 20f5b101",
        ),
        (
            "C-4 CRC",
            "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 20f5b100",
        ),
        (
            "C-5 CRC big-endian",
            "0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 01b1f520",
        ),
    ] {
        assert_eq!(next_fpdu(&hex(fpdu), true), Err(MpaError::Crc), "{name}");
    }
}

#[test]
fn crc_error_is_told_without_headers() {
    let terminate = MpaError::Crc.terminate();
    assert_eq!(terminate.code().to_string(), "2/0/02 CRC mismatch (MPA)");
    let fpdu = hex("0016 41 47 00000000 00000002 00000001 00000000 20020000 7fe42585"); // F-8
    assert_eq!(sealed(&terminate.ulpdu()), fpdu);
}

#[test]
fn crc_field_is_ignored_if_both_sides_do_without() {
    // F-44
    let fpdu = hex("0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f 000000 deadbeef");
    assert_eq!(next_fpdu(&fpdu, true), Err(MpaError::Crc));
    assert_eq!(
        next_fpdu(&fpdu, false),
        Ok(Step::Fpdu {
            ulpdu: &fpdu[2..25],
            consumed: 32
        })
    );
}

#[test]
fn crc_field_is_zero_without_crc() {
    let mut fpdu = hex(HELLO);
    fpdu[25..].fill(0xEE);
    seal_fpdu(&mut fpdu, 23, false);
    assert_eq!(fpdu[25..], [0; 7]);
}

#[test]
fn pad_bytes_are_covered_but_not_read() {
    // F-43
    let fpdu = hex("0017 41 43 00000000 00000000 00000001 00000000 48656c6c6f ffffff 5aa92a9e");
    assert_eq!(ulpdu_of(&fpdu), &fpdu[2..25]);
}

#[test]
fn impossible_length_is_refused_on_the_length_field() {
    assert_eq!(next_fpdu(&hex("fd00"), true), Ok(Step::NeedBytes(64776))); // 64768
    let refused = next_fpdu(&hex("fd01"), true).unwrap_err();
    assert_eq!(refused, MpaError::Length(64769));
    let terminate = refused.terminate();
    // TL 1/0/00
    let fpdu = hex("0016 41 47 00000000 00000002 00000001 00000000 10000000 c4130bf4");
    assert_eq!(sealed(&terminate.ulpdu()), fpdu);
    assert_eq!(next_fpdu(&hex("ffff"), false), Err(MpaError::Length(65535)));
}

#[test]
fn empty_ulpdu_is_framed() {
    let fpdu = sealed(&[]);
    assert_eq!(fpdu.len(), 8); // length, pad to 4, CRC
    assert_eq!(
        next_fpdu(&fpdu, true),
        Ok(Step::Fpdu {
            ulpdu: &[],
            consumed: 8
        })
    );
}

#[test]
fn mulpdu_without_markers_is_that_of_the_table() {
    for (emss, expected) in [
        (64, 128),
        (100, 128),
        (134, 128),
        (135, 128),
        (136, 130),
        (140, 134),
        (142, 134),
        (144, 138),
        (512, 506),
        (513, 506),
        (536, 530),
        (1220, 1214),
        (1360, 1354),
        (1400, 1394),
        (1428, 1422),
        (1440, 1434),
        (1448, 1442),
        (1459, 1450),
        (1460, 1454),
        (4036, 4030),
        (8948, 8942),
        (8960, 8954),
        (65483, 64768),
        (65495, 64768),
        (0, 128),
    ] {
        assert_eq!(mulpdu(emss), expected, "EMSS {emss}");
    }
}

#[test]
fn full_size_fpdu_never_exceeds_the_emss() {
    // Below 136 the lower bound of MULPDU applies: an FPDU of 128 + 6 bytes is padded to 136.
    for emss in 136..9100 {
        assert!(fpdu_len(mulpdu(emss)) <= emss, "EMSS {emss}");
    }
}

#[test]
#[should_panic(expected = "FPDU buffer")]
fn sealing_a_buffer_of_the_wrong_size_is_a_bug_of_the_caller() {
    seal_fpdu(&mut [0; 31], 23, true);
}

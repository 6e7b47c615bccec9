//! CRCs, from the first FPDU to the last (RFC 5044 §4.4).

use xwarp::error::TermCode;
use xwarp_sim_tests::wire::Tagged;
use xwarp_sim_tests::{KIB, pattern};

use super::Dut;

/// R5044-4.4-6, -11: after a thousand good FPDUs one with a bad CRC is found, and its bytes reach
/// no memory.
#[test]
fn bad_crc_late_in_the_stream_is_found_and_places_nothing() {
    let mut dut = Dut::new().expecting(&["drop_bad_fpdu", "drop_after_failure"]);
    let target = dut.end.target(KIB);
    let place = target.remote(0);
    let stream: Vec<u8> = (0_u64..)
        .zip(pattern(KIB))
        .flat_map(|(at, byte)| Tagged::write(place.stag, place.to + at).fpdu(&[byte]))
        .collect();
    dut.peer.send(&stream);
    dut.sim.run_until_idle();
    assert_eq!(target.to_vec(), pattern(KIB));
    let mut bad = Tagged::write(place.stag, place.to).fpdu(&[0xff; KIB]);
    let last = bad.len() - 1;
    bad[last] ^= 0x80;
    dut.assert_terminates("a bad CRC", &bad, TermCode::mpa(2));
    assert_eq!(target.to_vec(), pattern(KIB));
    assert_eq!(dut.end.host().drops()["drop_bad_fpdu"], 1);
}

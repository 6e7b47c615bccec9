//! Parameters of siw, one after the other and together (guest/siw-parameters.sed).

use ::xwarp::cm::MpaConfig;
use ::xwarp::error::{ConnectError, TermCode};
use ::xwarp::event::AsyncEventKind;
use ::xwarp::{Opcode, Stag};
use xwarp_guest_tests::siw::{Guest, Lab, Mtus, Peer, Recorder, XWARP_ADDRESS};
use xwarp_system_tests::{Capture, check_nothing_dropped};
use xwarp_test_kit::next_request;

use crate::operations::write_each_way;
use crate::pair::with_guest_on;
use crate::reads::{read_from_siw, read_from_xwarp};
use crate::xwarp::{Setup, Xwarp};
use crate::{PORT, Pair, Role, with_guest};

const LARGE: u32 = 200_000;

/// Messages of every kind each way, among them those that siw sends without copying: Reads' answers
/// and unsignaled work.
fn exchange_all(lab: &Lab, guest: &Guest<'_>, role: Role) {
    let mut pair = Pair::connect(lab, guest, role, &Setup::with_bytes(512 << 10));
    for len in [4095, LARGE] {
        pair.exchange(role, len);
        write_each_way(&mut pair, len);
        read_from_siw(&mut pair, len, 1);
        read_from_xwarp(&mut pair, len, 1);
        write_unsignaled(&mut pair, len);
    }
    check_nothing_dropped(&pair.xwarp.rnic);
}

/// siw writes without a completion; a Send says when it is there.
fn write_unsignaled(pair: &mut Pair<'_>, len: u32) {
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    let Stag(stag) = xwarp.end.sink.stag();
    xwarp.end.post_recv(1, 0);
    siw.ask(&format!("fill region=r offset=0 length={len} seed=9"));
    siw.ask(&format!(
        "write name=s id=1 region=r offset=0 length={len} stag={stag} to=0 flags=unsignaled"
    ));
    siw.ask("send name=s id=2 region=r offset=0 length=0");
    xwarp.done(1, Opcode::Receive);
    let done = &siw.poll("s", 1)[0];
    assert_eq!((done.id, done.status.as_str()), (2, "success"));
    xwarp.assert_received(len as usize, 9);
}

#[test]
fn siw_sends_with_and_without_copying_and_with_and_without_nagle() {
    with_guest(|lab, guest| {
        for (zcopy, nagle) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            guest.set_siw("zcopy_tx", zcopy);
            guest.set_siw("siw_tcp_nagle", nagle);
            for role in Role::BOTH {
                exchange_all(lab, guest, role);
            }
        }
    });
}

/// siw asks for GSO-sized FPDUs by a reserved flag of its Request, and sends them to a peer whose
/// Reply echoes that flag.
#[test]
fn siw_that_tries_gso_is_not_told_that_it_may() {
    with_guest(|lab, guest| {
        guest.set_siw("try_gso", 1);
        let recorder = lab.record(1);
        for role in Role::BOTH {
            exchange_all(lab, guest, role);
        }
        let largest = largest_ulpdu(recorder);
        assert!((1400..1460).contains(&largest), "{largest}");
    });
}

/// siw's flag in a Request or a Reply: FPDUs may be larger than a TCP segment.
const GSO: u8 = 0x08;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// Sets that flag in the start-up frames of xwarp's, so that siw takes it for another siw.
fn allow_gso(frame: &mut [u8]) {
    let Some(key) = frame.windows(7).position(|bytes| bytes == b"MPA ID ") else {
        return;
    };
    let tcp = ETHERNET + usize::from(frame[ETHERNET] & 15) * 4;
    let (flags, checksum) = (key + 16, tcp + 16..tcp + 18);
    let old = u16::from_be_bytes([frame[flags], frame[flags + 1]]);
    frame[flags] |= GSO;
    let new = u16::from_be_bytes([frame[flags], frame[flags + 1]]);
    // RFC 1624 §3: the checksum follows the word that has changed; start-up frames begin at an even
    // byte.
    let sum = u16::from_be_bytes([frame[checksum.start], frame[checksum.start + 1]]);
    let sum = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("folded");
    frame[checksum].copy_from_slice(&sum.to_be_bytes());
}

/// With an MSS of 1348, 48 segments are as much as RFC 5044 §3 lets an FPDU have. siw does not know
/// that limit, and goes beyond it where the MSS is 1448.
#[test]
fn fpdus_of_many_segments_are_taken_from_siw() {
    with_guest_on(Mtus::all(1400), |lab, guest| {
        guest.set_siw("try_gso", 1);
        let _meddler = lab.interpose(1, allow_gso);
        for role in Role::BOTH {
            let recorder = lab.record(1);
            exchange_all(lab, guest, role);
            let largest = largest_ulpdu(recorder);
            assert!(largest > 64_000, "{role:?}: {largest}");
        }
    });
}

/// Bytes of the largest ULPDU of a record.
fn largest_ulpdu(recorder: Recorder) -> u32 {
    let capture = Capture::dissect_port(&recorder.finish(), PORT);
    let lengths = capture.count("iwarp_mpa.ulpdulength");
    let lengths = lengths.keys().filter_map(|length| length.parse().ok());
    lengths.max().expect("FPDUs")
}

/// What siw may be set to, what xwarp wants, and what comes of it in either role: CRCs or not, or
/// no connection.
struct CrcCase {
    siw: [(&'static str, u8); 2],
    xwarp: bool,
    initiator: Option<bool>,
    responder: Option<bool>,
}

const REQUIRED: &str = "mpa_crc_required";
const STRICT: &str = "mpa_crc_strict";

#[test]
fn crcs_that_siw_insists_on_or_forbids() {
    let case = |required, strict, xwarp, initiator, responder| CrcCase {
        siw: [(REQUIRED, required), (STRICT, strict)],
        xwarp,
        initiator,
        responder,
    };
    with_guest(|lab, guest| {
        for case in [
            case(0, 1, false, Some(false), Some(false)),
            // Strict without required: no CRC at all.
            case(0, 1, true, None, None),
            // As responder siw asks for none, whatever it is set to.
            case(1, 1, false, Some(false), Some(true)),
            case(1, 1, true, Some(true), Some(true)),
        ] {
            for (name, value) in case.siw {
                guest.set_siw(name, value);
            }
            let setup = Setup {
                mpa: MpaConfig::default().crc(case.xwarp),
                ..Setup::default()
            };
            let outcomes = [case.initiator, case.responder];
            for (role, outcome) in Role::BOTH.into_iter().zip(outcomes) {
                match outcome {
                    None if role == Role::Initiator => rejected_by_siw(lab, guest, &setup),
                    None => reply_refused_by_siw(lab, guest, &setup),
                    Some(crc) => {
                        let mut pair = Pair::connect(lab, guest, role, &setup);
                        let what = format!("{role:?}, siw {:?}, xwarp {}", case.siw, case.xwarp);
                        assert_eq!(pair.xwarp.info().crc, crc, "{what}");
                        pair.exchange(role, 20_000);
                    }
                }
            }
        }
    });
}

fn rejected_by_siw(lab: &Lab, guest: &Guest<'_>, setup: &Setup) {
    let mut xwarp = Xwarp::open(lab, setup);
    let mut siw = Peer::start(guest);
    let address = guest.address();
    siw.ask(&format!("listen name=l address={address} port={PORT}"));
    let outcome = xwarp.connect(guest.at(PORT), b"");
    let rejected = matches!(outcome, Err(ConnectError::Rejected { .. }));
    assert!(rejected, "{outcome:?}");
}

/// siw asks, is answered, and closes.
fn reply_refused_by_siw(lab: &Lab, guest: &Guest<'_>, setup: &Setup) {
    let (xwarp, mut siw) = answer_to_siw(lab, guest, setup);
    let told = siw.ask("event name=s");
    assert_eq!(told.text("event"), "REJECTED", "{told:?}");
    match xwarp.event() {
        AsyncEventKind::ConnectionReset
        | AsyncEventKind::ConnectionLost { .. }
        | AsyncEventKind::Closed => {}
        other => panic!("{other:?}"),
    }
}

/// xwarp's yes to siw's Request, whatever siw makes of it.
fn answer_to_siw<'a>(lab: &'a Lab, guest: &'a Guest<'a>, setup: &Setup) -> (Xwarp<'a>, Peer<'a>) {
    let mut xwarp = Xwarp::open(lab, setup);
    let mut listener = xwarp.listen();
    let mut siw = Peer::start(guest);
    siw.ask(&format!(
        "resolve name=s address={XWARP_ADDRESS} port={PORT}"
    ));
    siw.ask("connect name=s ird=16 ord=16");
    let request = next_request(&mut listener);
    request.accept(&mut xwarp.end.qp, b"").expect("accepted");
    (xwarp, siw)
}

/// Without relaxed negotiation siw wants all the depth that its application asked for, or no
/// connection.
#[test]
fn depths_that_siw_insists_on() {
    with_guest(|lab, guest| {
        guest.set_siw("relaxed_ird_negotiation", 0);
        // RFC 6581 §9.1: the initiator says 2/0/06, with both halves of the first byte swapped, and
        // no header follows that would tell. Where CRCs are agreed on this Terminate has none.
        for (crc, code) in [
            (false, TermCode::rdmap_operation(6)),
            (true, TermCode::mpa(2)),
        ] {
            let few = Setup {
                mpa: MpaConfig::default().crc(crc),
                ..Setup::with_depths(4, 4)
            };
            let (xwarp, mut siw) = answer_to_siw(lab, guest, &few);
            let told = siw.ask("event name=s");
            assert_eq!(told.text("event"), "CONNECT_ERROR", "{told:?}");
            match xwarp.event() {
                AsyncEventKind::TerminateReceived(told) if !crc => assert_eq!(told, code),
                AsyncEventKind::Terminated { code: told, .. } if crc => assert_eq!(told, code),
                other => panic!("CRC {crc}: {other:?}"),
            }
        }

        for role in Role::BOTH {
            let enough = Setup::with_depths(16, 16);
            let mut pair = Pair::connect(lab, guest, role, &enough);
            assert_eq!((pair.xwarp.info().ird, pair.xwarp.info().ord), (16, 16));
            pair.exchange(role, 1000);
        }
    });
}

/// Revision 0 is that of the RDMA Consortium.
#[test]
fn siw_of_revision_0_is_not_spoken_with() {
    with_guest(|lab, guest| {
        guest.set_siw("mpa_version", 0);
        let xwarp = Xwarp::open(lab, &Setup::default());
        let mut listener = xwarp.listen();
        let mut siw = Peer::start(guest);
        siw.ask(&format!(
            "resolve name=s address={XWARP_ADDRESS} port={PORT}"
        ));
        siw.ask("connect name=s");
        let told = siw.ask("event name=s");
        assert_ne!(told.text("event"), "ESTABLISHED", "{told:?}");
        assert!(listener.try_accept().unwrap().is_none(), "it was offered");
        assert_eq!(xwarp.rnic.counters().expect("an RNIC").rdma.drop_startup, 1);
    });
}

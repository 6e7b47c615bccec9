//! Packed segments: siw takes several FPDUs of one TCP segment, in either role.

use std::collections::BTreeSet;

use ::xwarp::{Opcode, RemoteAddress, SendRequest, WrId};
use xwarp_system_tests::{Capture, Frame, check_nothing_dropped};

use crate::xwarp::Setup;
use crate::{PORT, Pair, Role, with_guest};

/// Bytes of a message: 17 FPDUs of such are as many as fit a segment at an MTU of 1500.
const LEN: u32 = 64;
const MOST: u64 = 17;
/// Where siw receives, behind what is written.
const RECEIVED_AT: u32 = 32 << 10;
/// Opcodes (RFC 5040 §4.3), as tshark prints them.
const WRITE: &str = "0x00";
const SEND: &str = "0x03";

/// Posts Writes and a Send at once, `fpdus` messages in all, and has siw check what has come.
fn pack(pair: &mut Pair<'_>, fpdus: u64) {
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    let total = u64::from(LEN) * (fpdus - 1);
    siw.ask(&format!(
        "fill region=r offset=0 length={} seed=9",
        LEN * 17
    ));
    siw.ask(&format!(
        "recv name=s id={fpdus} region=r offset={RECEIVED_AT} length={LEN}"
    ));
    let piece = |at| xwarp.end.source.local(at, LEN);
    let writes = (1..fpdus).map(|i| {
        let at = (i - 1) * u64::from(LEN);
        let remote = RemoteAddress {
            to: pair.remote.to + at,
            ..pair.remote
        };
        SendRequest::write(WrId(i), piece(at), remote)
    });
    let send = SendRequest::send(WrId(fpdus), piece(0));
    let list: Vec<SendRequest> = writes.chain([send]).collect();
    xwarp.end.qp.post_send_list(list).expect("room");
    for i in 1..fpdus {
        xwarp.done(i, Opcode::Write);
    }
    xwarp.done(fpdus, Opcode::Send);
    let received = &siw.poll("s", 1)[0];
    assert_eq!((received.id, received.status.as_str()), (fpdus, "success"));
    siw.ask(&format!("check region=r offset=0 length={total} seed=1"));
    siw.ask(&format!(
        "check region=r offset={RECEIVED_AT} length={LEN} seed=1"
    ));
}

/// FPDUs of each segment that ends with a Send behind Writes.
fn packed(capture: &Capture) -> BTreeSet<u64> {
    let fpdus = |frame: &Frame| {
        let (last, before) = frame.all("iwarp_rdma.opcode").split_last()?;
        let is_packed = last == SEND && !before.is_empty() && before.iter().all(|it| it == WRITE);
        is_packed.then_some(before.len() as u64 + 1)
    };
    capture.frames().iter().filter_map(fpdus).collect()
}

#[test]
fn siw_takes_2_to_17_fpdus_of_one_segment() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let recorder = lab.record(1);
            let mut pair = Pair::connect(lab, guest, role, &Setup::default());
            pair.exchange(role, LEN);
            (1..=MOST).for_each(|fpdus| pack(&mut pair, fpdus));
            pair.exchange(role, 1000);
            check_nothing_dropped(&pair.xwarp.rnic);
            let capture = Capture::dissect_port(&recorder.finish(), PORT);
            let counts = packed(&capture);
            assert!(counts.into_iter().eq(2..=MOST), "{role:?}");
            assert_eq!(capture.verdicts().bad, 0, "{role:?}");
        }
    });
}

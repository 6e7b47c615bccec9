//! Messages of every kind and many lengths, each way, in both roles.

use ::xwarp::{Opcode, RecvRequest, SendRequest, Stag, WrId};
use xwarp_system_tests::check_nothing_dropped;

use crate::operations::write_each_way;
use crate::reads::{read_from_siw, read_from_xwarp};
use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

const LARGEST: u32 = 64 << 20;

fn sweep(lengths: &[u32]) {
    let largest = *lengths.iter().max().expect("a length");
    // A Send is received at the region's beginning and sent from its middle, a Write is placed at
    // an odd place.
    let setup = Setup::with_bytes(2 * largest as usize + 4096);
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let mut pair = Pair::connect(lab, guest, role, &setup);
            for len in lengths {
                pair.exchange(role, *len);
                write_each_way(&mut pair, *len);
                read_from_siw(&mut pair, *len, 1);
                read_from_xwarp(&mut pair, *len, 1);
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

/// Bytes of payload that one FPDU takes: siw's of Writes and Sends, and xwarp's.
const SEGMENTS: [u32; 4] = [1428, 1424, 1440, 1436];

#[test]
fn lengths_about_whole_segments_and_pages() {
    let about = |len: u32| [len - 1, len, len + 1];
    let mut lengths: Vec<u32> = SEGMENTS.into_iter().flat_map(about).collect();
    lengths.extend(SEGMENTS.map(|len| 3 * len));
    lengths.extend([0, 1, 2, 3, 4, 32, 33, 4096, 65_536, 1 << 20]);
    sweep(&lengths);
}

#[test]
#[ignore = "only in the set of all"]
fn lengths_about_all_powers_of_two_to_64_mib() {
    let mut lengths = vec![0, 1];
    for power in 1..=LARGEST.ilog2() {
        let len = 1 << power;
        lengths.extend([len - 1, len, len + 1]);
    }
    lengths.pop();
    sweep(&lengths);
}

/// Everything of either side at once: a Send, a Write and two Reads, all of this length.
fn both_at_once(pair: &mut Pair<'_>, len: u32) {
    let whole = u64::from(len);
    let [sends, writes, reads, source] = [0, whole, 2 * whole, 3 * whole];
    let remote = |to| ::xwarp::RemoteAddress {
        to: pair.remote.to + to,
        ..pair.remote
    };
    let (written, read) = (remote(writes), remote(source));
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    let (Stag(ours), Stag(sink)) = (xwarp.end.source.stag(), xwarp.end.sink.stag());
    let buffer = xwarp.end.sink.local(sends, len);
    let receive = RecvRequest::new(WrId(4), buffer);
    xwarp.end.qp.post_recv(receive).expect("room");
    siw.ask(&format!(
        "fill region=r offset={source} length={len} seed=6"
    ));
    siw.ask(&format!(
        "recv name=s id=4 region=r offset={sends} length={len}"
    ));
    let what = format!("name=s region=r length={len}");
    siw.ask(&format!(
        "write {what} id=1 offset={source} stag={sink} to={writes}"
    ));
    siw.ask(&format!("send {what} id=2 offset={source}"));
    siw.ask(&format!("read {what} id=3 offset={reads} stag={ours} to=0"));
    let piece = xwarp.end.source.local(0, len);
    xwarp.end.post(SendRequest::write(WrId(1), piece, written));
    xwarp.end.post(SendRequest::send(WrId(2), piece));
    let into = xwarp.end.sink.local(reads, len);
    xwarp.end.post(SendRequest::read(WrId(3), into, read));
    let mut done: Vec<(u64, Opcode)> = (0..4)
        .map(|_| {
            let done = xwarp.completion();
            assert!(done.is_success(), "{done:?}");
            let WrId(id) = done.wr_id;
            (id, done.opcode)
        })
        .collect();
    done.sort_by_key(|(id, _)| *id);
    let kinds = [Opcode::Write, Opcode::Send, Opcode::Read, Opcode::Receive];
    assert_eq!(
        done,
        [1, 2, 3, 4].into_iter().zip(kinds).collect::<Vec<_>>()
    );
    let done = siw.poll("s", 4);
    assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
    for at in [sends, writes, reads] {
        siw.ask(&format!("check region=r offset={at} length={len} seed=1"));
    }
    let held = xwarp.end.sink.bytes().to_vec();
    let expected = xwarp_guest_tests::siw::filling(len as usize, 6);
    for (part, held) in held.chunks(len as usize).take(3).enumerate() {
        assert!(held == expected, "part {part}");
    }
}

fn all_at_once(len: u32) {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let setup = Setup::with_bytes(4 * len as usize);
            let mut pair = Pair::connect(lab, guest, role, &setup);
            both_at_once(&mut pair, len);
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

#[test]
fn both_sides_send_write_and_read_2_mib_at_once() {
    all_at_once(2 << 20);
}

#[test]
#[ignore = "only in the set of all"]
fn both_sides_send_write_and_read_64_mib_at_once() {
    all_at_once(LARGEST);
}

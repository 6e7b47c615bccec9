//! Reads, each way, in both roles, and many at once.

use ::xwarp::{Opcode, SendRequest, Stag, WrId};
use xwarp_system_tests::check_nothing_dropped;

use crate::xwarp::Setup;
use crate::{Pair, Role, with_guest};

/// xwarp reads `len` bytes of siw's, in `pieces` at once.
pub(crate) fn read_from_siw(pair: &mut Pair<'_>, len: u32, pieces: u32) {
    let remote = pair.remote;
    let (xwarp, siw) = (&mut pair.xwarp, &mut pair.siw);
    if len > 0 {
        siw.ask(&format!("fill region=r offset=0 length={len} seed=3"));
    }
    let piece = len / pieces;
    for i in 0..pieces {
        let at = u64::from(i * piece);
        let from = ::xwarp::RemoteAddress {
            to: remote.to + at,
            ..remote
        };
        let into = xwarp.end.sink.local(at, piece);
        xwarp
            .end
            .post(SendRequest::read(WrId(u64::from(i)), into, from));
    }
    for i in 0..pieces {
        let done = xwarp.done(u64::from(i), Opcode::Read);
        assert_eq!(done.byte_len, piece);
    }
    xwarp.assert_received((piece * pieces) as usize, 3);
}

/// siw reads `len` bytes of xwarp's, in `pieces` at once.
pub(crate) fn read_from_xwarp(pair: &mut Pair<'_>, len: u32, pieces: u32) {
    let source = pair.xwarp.end.source.remote(0);
    let (Stag(stag), to) = (source.stag, source.to);
    let piece = len / pieces;
    let count = pieces as usize;
    pair.siw.ask(&format!(
        "read name=s id=0 region=r offset=0 length={piece} stag={stag} to={to} times={pieces}"
    ));
    let done = pair.siw.poll("s", count);
    assert!(done.iter().all(|done| done.status == "success"), "{done:?}");
    if len > 0 {
        pair.siw.ask(&format!(
            "check region=r offset=0 length={} seed=1",
            piece * pieces
        ));
    }
}

fn with_depth(depth: u16, bytes: usize) -> Setup {
    Setup {
        bytes,
        ..Setup::with_depths(depth, depth)
    }
}

#[test]
fn reads_of_many_lengths_are_answered_each_way() {
    with_guest(|lab, guest| {
        for role in Role::BOTH {
            let setup = with_depth(16, (1 << 20) + 4096);
            let mut pair = Pair::connect(lab, guest, role, &setup);
            if role == Role::Responder {
                pair.exchange(role, 1);
            }
            for len in [0, 1, 4096, 65_535, 1 << 20] {
                read_from_siw(&mut pair, len, 1);
                read_from_xwarp(&mut pair, len, 1);
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

#[test]
fn many_reads_are_outstanding_each_way() {
    with_guest(|lab, guest| {
        for (depth, pieces) in [(16, 64), (128, 128)] {
            let setup = with_depth(depth, 256 << 10);
            let mut pair = Pair::connect(lab, guest, Role::Initiator, &setup);
            read_from_siw(&mut pair, 256 << 10, pieces);
            read_from_xwarp(&mut pair, 256 << 10, pieces);
            check_nothing_dropped(&pair.xwarp.rnic);
        }
    });
}

#[test]
#[ignore = "only in the set of all"]
fn reads_of_64_mib_are_answered_each_way() {
    with_guest(|lab, guest| {
        let setup = with_depth(16, (64 << 20) + 4096);
        let mut pair = Pair::connect(lab, guest, Role::Initiator, &setup);
        for len in [16 << 20, 64 << 20] {
            read_from_siw(&mut pair, len, 1);
            read_from_xwarp(&mut pair, len, 1);
        }
        check_nothing_dropped(&pair.xwarp.rnic);
    });
}

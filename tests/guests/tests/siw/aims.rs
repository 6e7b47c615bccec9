//! Places that a peer may not access, and what both sides report of who tried.

use ::xwarp::error::TermCode;
use ::xwarp::work::Operation;
use ::xwarp::{Access, MemoryRegion, RemoteAddress, SendRequest, Stag, WrId};
use xwarp_guest_tests::siw::{Guest, Peer};
use xwarp_system_tests::eventually;

use crate::Pair;

/// Bytes of what is tried.
pub(crate) const LEN: u32 = 8;

pub(crate) fn nowhere() -> RemoteAddress {
    RemoteAddress {
        stag: Stag(0x0bad_0100),
        to: 0,
    }
}

/// The same region by another key.
pub(crate) fn wrong_key(place: RemoteAddress) -> RemoteAddress {
    let Stag(stag) = place.stag;
    RemoteAddress {
        stag: Stag(stag ^ 1),
        ..place
    }
}

/// `bytes` further.
pub(crate) fn further(place: RemoteAddress, bytes: u64) -> RemoteAddress {
    RemoteAddress {
        to: place.to.wrapping_add(bytes),
        ..place
    }
}

/// So far that the end of what is accessed passes 2^64.
pub(crate) fn wrapping(place: RemoteAddress) -> RemoteAddress {
    RemoteAddress {
        to: u64::MAX - u64::from(LEN) + 2,
        ..place
    }
}

/// A region of siw's of 4096 bytes with these rights; `foreign` puts it into another protection
/// domain.
pub(crate) fn region_of_siw(
    siw: &mut Peer<'_>,
    name: &str,
    rights: &str,
    foreign: bool,
) -> RemoteAddress {
    let foreign = u8::from(foreign);
    let region = siw.ask(&format!(
        "region region={name} size=4096 rights={rights} foreign={foreign}"
    ));
    RemoteAddress {
        stag: Stag(u32::try_from(region.number("stag")).expect("32 bits")),
        to: region.number("to"),
    }
}

/// A region of xwarp's with these rights; a queue pair's of its own protection domain.
pub(crate) fn region_of_xwarp(pair: &Pair<'_>, rights: Access) -> MemoryRegion {
    pair.xwarp.pd.allocate(4096, rights).expect("memory")
}

/// A Send of `LEN` bytes that asks for this invalidation.
pub(crate) fn invalidate(pair: &Pair<'_>, id: u64, stag: Stag) -> SendRequest {
    let operation = Operation::Send {
        payload: pair.xwarp.end.source.local(0, LEN).into(),
        solicited: false,
        invalidate: Some(stag),
    };
    SendRequest::new(WrId(id), operation)
}

/// Forgets what siw's kernel has said so far.
pub(crate) fn clear_log(guest: &Guest<'_>) {
    let _ = guest.run("dmesg --clear").succeeded();
}

/// What siw's kernel says of a Terminate that has come: it must be this one. False if it says
/// nothing, as it may have been closed before it looked.
pub(crate) fn siw_was_told(guest: &Guest<'_>, code: TermCode, what: &str) -> bool {
    let log = guest.run("dmesg --notime").succeeded().output;
    // It reads both halves of a Terminate's first byte the other way round.
    let (layer, etype, code) = (code.etype(), code.layer(), code.code());
    let right = format!("siw: got TERMINATE. layer {layer}, type {etype}, code {code}");
    let mut said = log.lines().filter(|line| line.contains("got TERMINATE"));
    let told = said.next();
    assert!(told.is_none_or(|told| told == right), "{what}: {log}");
    assert_eq!(said.next(), None, "{what}");
    told.is_some()
}

/// siw's queue pair ends once its application disconnects in its turn. Until then siw may leave it
/// as it is, although it has closed the connection.
pub(crate) fn assert_siw_ends(siw: &mut Peer<'_>) {
    // There may be nothing left to disconnect.
    let _ = siw.try_ask("disconnect name=s");
    eventually("siw's queue pair ends", || {
        siw.ask("state name=s").text("state") != "rts"
    });
}

//! The harness itself: guests, what runs in them, and siw talking to siw.

use xwarp_guest_tests::siw::{Guest, Image, Lab, Peer};

mod ending;
mod guests;
mod inside;
mod peers;
mod refusals;
mod tools;

const PORT: u16 = 7471;

/// Runs a test in two guests, which is skipped where guests cannot be had.
fn with_two_guests(test: impl FnOnce(&Lab, &[Guest<'_>; 2])) {
    let Some(image) = Image::find() else { return };
    let lab = Lab::new();
    let guests = [1, 2].map(|number| Guest::boot(&lab, &image, number));
    test(&lab, &guests);
}

/// Two peers with connection `c` in the first and `s` in the second, one step before the request:
/// receives can be posted at `c`.
fn prepare<'a>(guests: &'a [Guest<'a>; 2]) -> [Peer<'a>; 2] {
    let [mut client, mut server] = [&guests[0], &guests[1]].map(Peer::start);
    let address = guests[1].address();
    server.ask(&format!("listen name=l address={address} port={PORT}"));
    client.ask(&format!("resolve name=c address={address} port={PORT}"));
    [client, server]
}

/// Connects `c` and `s`, with everything that can be said in a request and a reply.
fn connect([client, server]: &mut [Peer<'_>; 2]) {
    client.ask("connect name=c data=68656c6c6f ird=3 ord=4");
    let request = server.ask("take listener=l name=s");
    assert_eq!(request.text("event"), "CONNECT_REQUEST");
    assert_eq!(request.text("data"), "68656c6c6f");
    // Each sees the other's depths from its own side.
    assert_eq!((request.number("ird"), request.number("ord")), (4, 3));
    server.ask("accept name=s data=77656c63 ird=4 ord=3");
    let reply = client.expect_event("c", "ESTABLISHED");
    assert_eq!(reply.text("data"), "77656c63");
    // siw says so once it looks for more: what reaches it between its Reply and this lies unread.
    server.expect_event("s", "ESTABLISHED");
}

/// Connects, with a region of `size` bytes and all rights in each, `r`.
fn connect_with_regions(peers: &mut [Peer<'_>; 2], size: u64) -> [Remote; 2] {
    let regions = [0, 1].map(|which| {
        let rights = "local-write,remote-read,remote-write";
        let region = format!("region region=r size={size} rights={rights}");
        let region = peers[which].ask(&region);
        Remote {
            stag: region.number("stag"),
            to: region.number("to"),
        }
    });
    connect(peers);
    regions
}

/// Where a region is, for the other side.
#[derive(Clone, Copy)]
struct Remote {
    stag: u64,
    to: u64,
}

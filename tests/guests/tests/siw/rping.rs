//! `xwarp ping` and rdma-core's rping.

use std::net::IpAddr;

use xwarp_guest_tests::siw::{Guest, Job, XWARP_ADDRESS};
use xwarp_system_tests::{DEV, eventually};

use crate::with_guest;

const SIZES: [u32; 4] = [64, 1448, 10_000, 65_535];

/// rping as a server, which listens when this returns.
pub(crate) fn serve<'a>(guest: &'a Guest<'a>, size: u32) -> Job<'a> {
    serve_at(guest, guest.address(), size)
}

/// The same at this address of the guest's.
pub(crate) fn serve_at<'a>(guest: &'a Guest<'a>, address: IpAddr, size: u32) -> Job<'a> {
    let server = guest.start(&format!("rping -s -a {address} -S {size}"));
    eventually("rping listens", || {
        let listed = guest.run("rdma resource show cm_id").succeeded();
        listed.output.contains("LISTEN")
    });
    server
}

#[test]
fn xwarp_pings_rping() {
    with_guest(|lab, guest| {
        for size in SIZES {
            let address = guest.address();
            let server = serve(guest, size);
            let client = format!("ping {address} --dev {DEV} --count 10 --size {size}");
            let client = lab.xwarp.xwarp(&client).succeeded();
            assert!(
                client.stdout.contains("10 pings, all verified"),
                "{}",
                client.stdout
            );
            let _ = server.finish();
        }
    });
}

#[test]
fn rping_pings_xwarp() {
    with_guest(|lab, guest| {
        for size in SIZES {
            let mut server = lab.xwarp.start(&format!("ping --dev {DEV}"));
            server.line("waiting for a client at ");
            let ask = format!("rping -c -a {XWARP_ADDRESS} -S {size} -V -C 10");
            let _ = guest.run(&ask).succeeded();
            let server = server.finish().succeeded();
            assert!(server.stdout.contains(": 10 pings"), "{}", server.stdout);
        }
    });
}

//! IPv6: connections and transfers as by IPv4.

use xwarp_guest_tests::siw::XWARP_ADDRESS_6;
use xwarp_system_tests::{Capture, DEV, check_nothing_dropped};

use crate::operations::write_each_way;
use crate::reads::{read_from_siw, read_from_xwarp};
use crate::rping::serve_at;
use crate::xwarp::Setup;
use crate::{PORT, Pair, Role, with_guest};

#[test]
fn sends_writes_and_reads_arrive_each_way_by_ipv6() {
    with_guest(|lab, guest| {
        let recorder = lab.record(1);
        for role in Role::BOTH {
            let setup = Setup {
                ipv6: true,
                bytes: (256 << 10) + 4096,
                ..Setup::default()
            };
            let mut pair = Pair::connect(lab, guest, role, &setup);
            for len in [0, 1000, 100_000] {
                pair.exchange(role, len);
                write_each_way(&mut pair, len);
                read_from_siw(&mut pair, len, 1);
                read_from_xwarp(&mut pair, len, 1);
            }
            check_nothing_dropped(&pair.xwarp.rnic);
        }
        let capture = Capture::dissect_port(&recorder.finish(), PORT);
        let versions = capture.count("ip.version");
        assert!(!versions.contains_key("4"), "{versions:?}");
        let fpdus = capture.fpdus();
        assert!(fpdus > 400, "{fpdus}");
        assert_eq!(capture.verdicts().good, fpdus);
    });
}

#[test]
fn rping_and_xwarp_ping_each_other_by_ipv6() {
    with_guest(|lab, guest| {
        for size in [64, 10_000] {
            let address = guest.address_6();
            let server = serve_at(guest, address, size);
            let client = format!("ping {address} --dev {DEV} --count 10 --size {size}");
            let client = lab.xwarp.xwarp(&client).succeeded();
            assert!(
                client.stdout.contains("10 pings, all verified"),
                "{}",
                client.stdout
            );
            let _ = server.finish();

            let mut server = lab.xwarp.start(&format!("ping --dev {DEV}"));
            server.line("waiting for a client at ");
            let ask = format!("rping -c -a {XWARP_ADDRESS_6} -S {size} -V -C 10");
            let _ = guest.run(&ask).succeeded();
            let server = server.finish().succeeded();
            assert!(server.stdout.contains(": 10 pings"), "{}", server.stdout);
        }
    });
}

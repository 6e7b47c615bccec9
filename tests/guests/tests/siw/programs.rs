//! Programs of rdma-core and perftest: on our library by `xwarp run` at one end, and on siw in the
//! guest at the other.

use std::time::Duration;

use xwarp_dropin_tests::{serve, start};
use xwarp_guest_tests::siw::{Guest, Lab, XWARP_ADDRESS, XWARP_ADDRESS_6};
use xwarp_system_tests::eventually;

use crate::{Role, with_guest};

/// No row takes as long.
const LIMIT: Duration = Duration::from_mins(2);

/// A program at either end; the server's address is put behind the client's arguments.
#[derive(Clone, Copy)]
struct Row {
    server: &'static str,
    client: &'static str,
    ipv6: bool,
}

impl Row {
    const fn new(server: &'static str, client: &'static str) -> Self {
        let ipv6 = false;
        Self {
            server,
            client,
            ipv6,
        }
    }

    /// A program of perftest, whose ends have the same arguments.
    const fn perftest(program: &'static str) -> Self {
        Self::new(program, program)
    }

    const fn by_ipv6(self) -> Self {
        Self { ipv6: true, ..self }
    }

    /// Runs both ends, which have to end well. `role` is ours.
    fn run(self, lab: &Lab, guest: &Guest<'_>, role: Role) {
        match role {
            Role::Initiator => self.connect_to_siw(lab, guest),
            Role::Responder => self.connect_to_us(lab, guest),
        }
    }

    fn connect_to_siw(self, lab: &Lab, guest: &Guest<'_>) {
        let server = guest.start(self.server);
        eventually("siw listens", || {
            let listed = guest.run("rdma resource show cm_id").succeeded();
            listed.output.contains("LISTEN")
        });
        let address = if self.ipv6 {
            guest.address_6()
        } else {
            guest.address()
        };
        let client = format!("{} {address}", self.client);
        let ours = start(&lab.xwarp, &client);
        ours.finish_within(LIMIT).succeeded();
        let _ = server.finish_within(LIMIT).succeeded();
    }

    fn connect_to_us(self, lab: &Lab, guest: &Guest<'_>) {
        let server = serve(&lab.xwarp, self.server);
        let address = if self.ipv6 {
            XWARP_ADDRESS_6
        } else {
            XWARP_ADDRESS
        };
        let client = format!("{} {address}", self.client);
        let _ = guest.start(&client).finish_within(LIMIT).succeeded();
        server.finish_within(LIMIT).succeeded();
    }
}

/// Runs rows on a guest, each in both roles.
fn run_all(lab: &Lab, guest: &Guest<'_>, rows: &[Row]) {
    for row in rows {
        for role in Role::BOTH {
            row.run(lab, guest, role);
        }
    }
}

/// With -V rping compares what it reads back.
#[test]
fn rping_of_ours_and_rping_of_siw_read_and_write_what_the_other_sent() {
    with_guest(|lab, guest| {
        let rows = [
            Row::new("rping -s -C 10 -V", "rping -c -C 10 -V -a"),
            Row::new(
                "rping -s -C 10 -V -S 65535",
                "rping -c -C 10 -V -S 65535 -a",
            ),
            Row::new("rping -s -a :: -C 10 -V", "rping -c -C 10 -V -a").by_ipv6(),
        ];
        run_all(lab, guest, &rows);
    });
}

#[test]
fn perftest_measures_bandwidth_between_ours_and_siw() {
    with_guest(|lab, guest| {
        guest.await_listeners(&[]);
        let rows = [
            Row::perftest("ib_write_bw -R -F -n 200"),
            Row::perftest("ib_read_bw -R -F -n 200"),
            Row::perftest("ib_send_bw -R -F -n 200"),
        ];
        run_all(lab, guest, &rows);
    });
}

/// The server of `ib_write_lat` writes first. As MPA's responder it may not before the initiator
/// has sent something (RFC 5044 §7.1.2), and siw sends an RTR only in the peer-to-peer model.
#[test]
fn perftest_measures_latency_between_ours_and_siw() {
    with_guest(|lab, guest| {
        guest.await_listeners(&[]);
        guest.set_siw("peer_to_peer", 1);
        let rows = [
            Row::perftest("ib_write_lat -R -F -n 100"),
            Row::perftest("ib_read_lat -R -F -n 100"),
            Row::perftest("ib_send_lat -R -F -n 100"),
        ];
        run_all(lab, guest, &rows);
    });
}

#[test]
#[ignore = "takes minutes; tools/interop --all runs it"]
fn perftest_measures_every_size_between_ours_and_siw() {
    with_guest(|lab, guest| {
        guest.await_listeners(&[]);
        let rows = [
            Row::perftest("ib_write_bw -R -F -n 5 -a"),
            Row::perftest("ib_read_bw -R -F -n 5 -a"),
            Row::perftest("ib_send_bw -R -F -n 5 -a"),
        ];
        run_all(lab, guest, &rows);
    });
}

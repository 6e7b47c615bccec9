//! Programs of our own in C, compiled against the distribution's headers and libraries: what its
//! inline functions come to.

use xwarp_dropin_tests::{Row, SERVER, SERVER_V6, compile};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::{WorkDir, needs_root};

#[test]
fn endpoints_are_rejected_and_exchange_data_by_both_families() {
    needs_root!();
    let folder = WorkDir::new("dropin-endpoints");
    let libraries = ["-lrdmacm", "-libverbs"];
    let program = compile("cc", "endpoints", &libraries, &folder);
    let hosts = Hosts::new();
    for (family, address) in [(4, SERVER), (6, SERVER_V6)] {
        Row::run_programs(
            &hosts,
            &format!("{program} server {family}"),
            &format!("{program} client {address}"),
        );
    }
}

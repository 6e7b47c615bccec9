//! Programs of our own in C, compiled against the distribution's headers and libraries: what its inline functions come to.

use std::path::Path;
use std::process::Command;

use xwarp_dropin_tests::{Row, SERVER, SERVER_V6};
use xwarp_system_tests::Hosts;
use xwarp_test_kit::{WorkDir, needs_root};

/// Compiles a program of this folder.
fn compile(name: &str, into: &WorkDir) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("programs/{name}.c"));
    let program = into.file(name);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Werror", "-o"])
        .args([&program, &source]);
    cc.args(["-lrdmacm", "-libverbs"]);
    assert!(cc.status().expect("cc").success());
    program.into_os_string().into_string().expect("a path")
}

#[test]
fn endpoints_are_rejected_and_exchange_data_by_both_families() {
    needs_root!();
    let folder = WorkDir::new("dropin-endpoints");
    let (program, hosts) = (compile("endpoints", &folder), Hosts::new());
    for (family, address) in [(4, SERVER), (6, SERVER_V6)] {
        Row::run_programs(
            &hosts,
            &format!("{program} server {family}"),
            &format!("{program} client {address}"),
        );
    }
}

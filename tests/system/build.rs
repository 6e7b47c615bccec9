//! Compiles the XDP program that impairs.

use std::env;
use std::path::PathBuf;
use std::process::exit;

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/impair/impair.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    // Debian keeps <asm/types.h> in a directory per architecture, which `-target bpf` does not
    // search.
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .obj(PathBuf::from(variable("OUT_DIR")).join("impair.bpf.o"))
        .clang_args([format!("-I/usr/include/{arch}-linux-gnu")])
        .build();
    if let Err(why) = built {
        fail(&format!("{SOURCE} did not compile: {why:#}"));
    }
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|why| fail(&format!("{name}: {why}")))
}

fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(1);
}

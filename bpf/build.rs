//! Compiles the XDP program into the object that the crate carries.

use std::env;
use std::path::PathBuf;
use std::process::{Command, exit};

use libbpf_cargo::SkeletonBuilder;

const SOURCE: &str = "src/steer.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    if let Err(why) = Command::new("clang").arg("--version").output() {
        fail(&format!(
            "clang is needed to compile {SOURCE}, but it could not be run ({why}): \
             install it, on Debian with `apt-get install clang`"
        ));
    }
    compile("steer.bpf.o", &[]);
    compile("steer_bound.bpf.o", &["-DRX_VLAN_TAG"]);
    compile("steer_meta.bpf.o", &["-DRX_VLAN_TAG", "-DRX_METADATA"]);
}

fn compile(object: &str, definitions: &[&str]) {
    let object = PathBuf::from(variable("OUT_DIR")).join(object);
    let built = SkeletonBuilder::new()
        .source(SOURCE)
        .obj(object)
        .clang_args(
            clang_args()
                .into_iter()
                .chain(definitions.iter().map(|&definition| definition.to_owned())),
        )
        .build();
    if let Err(why) = built {
        fail(&format!("{SOURCE} did not compile: {why:#}"));
    }
}

fn clang_args() -> [String; 2] {
    // Debian keeps <asm/types.h> in a directory per architecture, which `-target bpf` does not
    // search. Elsewhere the directory does not exist, which clang takes quietly.
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    // Otherwise the object would differ with the directory it was built in.
    let root = variable("CARGO_MANIFEST_DIR");
    [
        format!("-I/usr/include/{arch}-linux-gnu"),
        format!("-fdebug-prefix-map={root}=."),
    ]
}

/// A variable that cargo sets for every build script.
fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|why| fail(&format!("{name}: {why}")))
}

fn fail(why: &str) -> ! {
    eprintln!("error: {why}");
    exit(1);
}

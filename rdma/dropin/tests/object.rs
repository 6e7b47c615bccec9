//! The shared object as programs load it: what it exports, and what unmodified programs and a program of C see.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use xwarp_test_kit::{WorkDir, is_root_or_skipped};

/// Programs that may be installed, whose imports are looked up.
const PROGRAMS: [&str; 14] = [
    "ibv_devices",
    "ibv_devinfo",
    "ibv_rc_pingpong",
    "rping",
    "ucmatose",
    "rdma_client",
    "rdma_xserver",
    "cmtime",
    "ib_write_bw",
    "ib_read_lat",
    "qperf",
    "fio",
    "fi_info",
    "tgtd",
];

/// Where the library is built, once for all tests.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dropin");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new("tools/dropin");
    let built = build.arg("--dev").arg(&folder).current_dir(root).output();
    checked(built.expect("tools/dropin"));
    folder
});

fn library() -> PathBuf {
    FOLDER.join("libxwarp-rdma.so.1")
}

/// What a program that has succeeded printed.
fn checked(output: Output) -> String {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out
}

fn run(program: &str, arguments: &[&str]) -> String {
    let command = Command::new(program).args(arguments).output();
    checked(command.unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// `name version` of every name in the map.
fn map() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("exports.map");
    let text = fs::read_to_string(path).expect("a map");
    let (mut names, mut version) = (BTreeSet::new(), String::new());
    for line in text.lines().map(str::trim) {
        if let Some((node, _)) = line.split_once(" {") {
            node.clone_into(&mut version);
        } else if let Some(name) = line.strip_suffix(';')
            && name
                .chars()
                .all(|it| it.is_ascii_alphanumeric() || it == '_')
        {
            names.insert(format!("{name} {version}"));
        }
    }
    names
}

#[test]
fn object_exports_what_the_map_says_and_nothing_else() {
    let object = library();
    let listed = run(
        "nm",
        &["-D", "--defined-only", object.to_str().expect("a path")],
    );
    let symbols = listed.lines().filter(|line| !line.contains(" A "));
    let names = symbols.filter_map(|line| line.split(' ').nth(2));
    let exported: BTreeSet<_> = names.map(|name| name.replace("@@", " ")).collect();
    assert!(exported.len() > 250);
    assert_eq!(exported, map());
}

#[test]
fn imports_of_installed_programs_are_in_the_map() {
    let (map, mut looked_at) = (map(), 0);
    for program in PROGRAMS {
        let path = format!("/usr/bin/{program}");
        if !Path::new(&path).exists() {
            continue;
        }
        for line in run("objdump", &["-T", &path]).lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            let [.., version, name] = words[..] else {
                continue;
            };
            let version = version.trim_matches(['(', ')']);
            let is_ours = ["IBVERBS_", "RDMACM_", "MLX5_", "EFA_"];
            if is_ours.iter().any(|prefix| version.starts_with(prefix)) {
                assert!(
                    map.contains(&format!("{name} {version}")),
                    "{program}: {line}"
                );
                looked_at += 1;
            }
        }
    }
    println!("{looked_at} imports");
}

#[test]
fn versioned_symbols_are_found_by_dlvsym() {
    let program = "#define _GNU_SOURCE\n#include <dlfcn.h>\nint main(int c, char **v) {\n\
        void *h = dlopen(v[1], RTLD_NOW);\n\
        return !(h && dlvsym(h, \"ibv_reg_mr_iova2\", \"IBVERBS_1.8\")\n\
        && dlvsym(h, \"rdma_create_id\", \"RDMACM_1.0\") && !dlvsym(h, \"ibv_reg_mr\", \"IBVERBS_1.0\"));\n}\n";
    let folder = WorkDir::new("dropin-dlvsym");
    let (source, finder) = (folder.file("find.c"), folder.file("find"));
    fs::write(&source, program).expect("a folder");
    let [source, finder] = [&source, &finder].map(|path| path.to_str().expect("a path"));
    run("cc", &["-o", finder, source, "-ldl"]);
    run(finder, &[library().to_str().expect("a path")]);
}

/// Runs a program in a network namespace of its own, with a device `dropin0` that is up and has an address. What XDP program is attached
/// afterwards is printed, too.
fn in_namespace(program: &str) -> String {
    let script = format!(
        "ip link add dropin0 type veth peer name dropin1 && ip link set dropin1 up && \
         ip addr add 10.99.0.1/24 dev dropin0 && ip link set dropin0 up && {program} && \
         echo attached: $(ip link show dev dropin0 | grep -o prog/xdp)"
    );
    let command = Command::new("unshare")
        .args([
            "--net",
            "--mount-proc",
            "--fork",
            "--pid",
            "sh",
            "-c",
            &script,
        ])
        .env("LD_LIBRARY_PATH", &*FOLDER)
        .env("XWARP_DEV", "dropin0")
        .output();
    checked(command.expect("unshare"))
}

#[test]
fn devices_are_listed_and_described_without_attaching() {
    let installed = Path::new("/usr/bin/ibv_devinfo").exists();
    if !is_root_or_skipped() || !installed {
        println!("skipped unless ibverbs-utils is installed");
        return;
    }
    let listed = in_namespace("ibv_devices && ibv_devinfo -v");
    for line in [
        "dropin0",
        "hca_id:\tdropin0",
        "iWARP (1)",
        "PORT_ACTIVE (4)",
        "GID[  0]",
    ] {
        assert!(listed.contains(line), "{line} is not in\n{listed}");
    }
    assert!(listed.ends_with("attached:\n"), "{listed}");
}

/// Compiles a program of this folder against the installed headers and our object, and runs it on an interface. It has to end well, and
/// to leave nothing attached.
fn run_on_an_interface(name: &str) {
    let headers = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
    let installed = |header: &&str| Path::new("/usr/include").join(header).exists();
    if !is_root_or_skipped() || !headers.iter().all(installed) {
        println!("skipped unless libibverbs-dev and librdmacm-dev are installed");
        return;
    }
    let folder = WorkDir::new(&format!("dropin-{name}"));
    let program = folder.file(name);
    let [program, library] =
        [&program, &library()].map(|it| it.to_str().expect("a path").to_owned());
    let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
    run(
        "cc",
        &["-Wall", "-Werror", "-o", &program, &source, &library],
    );
    let printed = in_namespace(&program);
    assert!(printed.ends_with("attached:\n"), "{printed}");
}

#[test]
fn program_of_c_makes_objects_on_an_interface_and_ends_them() {
    run_on_an_interface("verbs");
}

#[test]
fn program_of_c_is_refused_what_iwarp_does_not_have() {
    run_on_an_interface("refused");
}

#[test]
fn program_of_c_uses_identifiers_without_a_peer() {
    run_on_an_interface("identifiers");
}

//! The shared object as programs load it: what it exports, and what unmodified programs and a
//! program of C see.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{FOLDER, Program, checked, in_namespace, library, run, run_on_an_interface};
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
    let mut exported: BTreeSet<_> = names.map(|name| name.replace("@@", " ")).collect();
    assert!(exported.len() > 250);
    assert!(exported.remove("ibv_query_gid_type@IBVERBS_PRIVATE_59"));
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
        && dlvsym(h, \"ibv_query_gid_type\", \"IBVERBS_PRIVATE_34\")\n\
        && dlvsym(h, \"ibv_query_gid_type\", \"IBVERBS_PRIVATE_59\")\n\
        && dlvsym(h, \"rdma_create_id\", \"RDMACM_1.0\") && !dlvsym(h, \"ibv_reg_mr\", \"IBVERBS_1.0\"));\n}\n";
    let folder = WorkDir::new("dropin-dlvsym");
    let (source, finder) = (folder.file("find.c"), folder.file("find"));
    fs::write(&source, program).expect("a folder");
    let [source, finder] = [&source, &finder].map(|path| path.to_str().expect("a path"));
    run("cc", &["-o", finder, source, "-ldl"]);
    run(finder, &[library().to_str().expect("a path")]);
}

/// Names that say "not supported" whatever they are called with, and the error number that they
/// set.
fn is_refused(symbol: &str) -> Option<&'static str> {
    let (name, version) = symbol.split_once(' ')?;
    let is_of_vendor = version.starts_with("MLX5_") || version.starts_with("EFA_");
    let is_socket = version.starts_with("RDMACM_") && !name.starts_with("rdma_");
    // What only the distribution's librdmacm calls, and objects of other processes.
    let others = ["_kern", "ibv_unimport_", "ibv_resolve_eth_"];
    if is_socket {
        Some("ENOSYS")
    } else if is_of_vendor || others.iter().any(|part| name.contains(part)) {
        Some("EOPNOTSUPP")
    } else {
        None
    }
}

#[test]
fn names_that_are_not_supported_set_errno() {
    let mut program = String::from(
        "#include <errno.h>\n#include <stdio.h>\n#define REFUSES(name, number) { long name(void); errno = 0; name(); \\\n\
         if (errno != number) { printf(#name \": %d\\n\", errno); failed = 1; } }\n\
         int main(void) {\n    int failed = 0;\n",
    );
    let map = map();
    let refused = map.iter().filter_map(|it| Some((it, is_refused(it)?)));
    for (symbol, number) in refused {
        let name = symbol.split(' ').next().expect("a name");
        writeln!(program, "    REFUSES({name}, {number})").expect("memory");
    }
    assert!(program.lines().count() > 150, "{program}");
    let folder = WorkDir::new("dropin-names");
    let (source, caller) = (folder.file("names.c"), folder.file("names"));
    fs::write(&source, program + "    return failed;\n}\n").expect("a folder");
    let library = library();
    let files = [&source, &library, &caller].map(|path| path.to_str().expect("a path"));
    let [source, library, caller] = files;
    run(
        "cc",
        &[
            "-Wno-builtin-declaration-mismatch",
            "-o",
            caller,
            source,
            library,
        ],
    );
    let command = Command::new(caller)
        .env("LD_LIBRARY_PATH", &*FOLDER)
        .output();
    checked(command.expect("a program"));
}

/// `name test` of each row of the table of symbols.
fn table() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SYMBOLS.md");
    let table = fs::read_to_string(path).expect("a table");
    let rows = table.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let (names, test) = (cells.next()?, cells.next()?);
        let names = names.split(' ').map(|name| name.trim_matches('`'));
        Some(
            names
                .map(|name| (name.to_owned(), test.trim_matches('`').to_owned()))
                .collect::<Vec<_>>(),
        )
    });
    rows.flatten().collect()
}

/// Functions that inline functions of the headers find in structs: of a context, of a completion
/// queue and of a queue pair.
fn slots() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verbs");
    let texts = ["operations.rs", "cq_ex.rs", "qp_ex.rs"]
        .map(|file| fs::read_to_string(folder.join(file)).expect(file));
    let lines = texts.iter().flat_map(|text| text.lines());
    let filled = lines.filter_map(|line| line.split_once(" = Some(")?.0.rsplit('.').next());
    filled.map(str::to_owned).collect()
}

#[test]
fn every_function_is_called_by_the_test_that_the_table_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (table, mut names) = (table(), slots());
    assert!(names.len() > 40, "{names:?}");
    let of_map = map()
        .into_iter()
        .filter(|symbol| is_refused(symbol).is_none());
    names.extend(of_map.map(|symbol| symbol.split(' ').next().unwrap_or_default().to_owned()));
    let listed: BTreeSet<_> = table.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(listed.len(), table.len(), "a name is there twice");
    assert_eq!(listed, names);
    for (name, test) in &table {
        let text = fs::read_to_string(root.join(test)).expect(test);
        let called = name.trim_start_matches('_');
        let is_called = [
            format!("{called}("),
            format!("{called}_ex("),
            format!(".{called}"),
        ];
        let is_there = is_called.iter().any(|call| text.contains(call));
        assert!(is_there, "{test} does not call {name}");
    }
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

#[test]
fn program_of_c_makes_objects_on_an_interface_and_ends_them() {
    run_on_an_interface("verbs");
}

#[test]
fn closed_rnic_keeps_no_descriptor_though_its_objects_memory_is_kept() {
    run_on_an_interface("descriptors");
}

#[test]
fn program_of_c_is_told_of_link_down_and_link_up() {
    run_on_an_interface("link");
}

#[test]
fn program_of_c_is_told_when_its_interface_is_gone() {
    run_on_an_interface("gone");
}

#[test]
fn interface_that_is_named_and_does_not_exist_is_told_once() {
    if !is_root_or_skipped() || !Path::new("/usr/bin/ibv_devinfo").exists() {
        return;
    }
    let printed = in_namespace("XWARP_DEV=dropin0,nosuch0 ibv_devinfo 2>&1");
    assert!(printed.contains("hca_id:\tdropin0"), "{printed}");
    let told: Vec<_> = printed
        .lines()
        .filter(|it| it.contains("nosuch0"))
        .collect();
    let [told] = told[..] else {
        panic!("{printed}");
    };
    assert!(
        told.starts_with("xwarp: there is no interface nosuch0"),
        "{told}"
    );
}

/// The program runs all the same, with what is the default.
#[test]
fn variables_without_a_meaning_are_reported_once_each() {
    let Some(program) = Program::compiled("descriptors") else {
        return;
    };
    let set = "XWARP_LOG=loud XWARP_TRANSPORT=roce XWARP_STATS=0";
    let printed = in_namespace(&format!("{set} {program} 2>&1"));
    for message in [
        "xwarp: XWARP_LOG is loud, which is no level: ",
        "xwarp: XWARP_TRANSPORT is roce, which is no transport: ",
    ] {
        assert_eq!(printed.matches(message).count(), 1, "{printed}");
    }
    assert!(!printed.contains("never destroyed"), "{printed}");
    let set = "XWARP_LOG= XWARP_TRANSPORT=iwarp XWARP_STATS=1";
    let printed = in_namespace(&format!("{set} {program} 2>&1"));
    assert!(!printed.contains("XWARP_"), "{printed}");
    let Some(program) = Program::compiled("identifiers") else {
        return;
    };
    let none = in_namespace(&format!("! XWARP_DEV=, {program} 2>&1"));
    let message = "xwarp: XWARP_DEV is set and names no interface: none is used";
    assert_eq!(none.matches(message).count(), 1, "{none}");
}

#[test]
fn interface_can_be_named_by_an_alternative_name() {
    if !is_root_or_skipped() || !Path::new("/usr/bin/ibv_devinfo").exists() {
        return;
    }
    let name = "rdma-of-a-rather-long-name";
    let printed = in_namespace(&format!(
        "ip link property add dev dropin0 altname {name} && XWARP_DEV={name} ibv_devinfo 2>&1"
    ));
    assert!(printed.contains("hca_id:\tdropin0"), "{printed}");
}

#[test]
fn program_of_c_is_refused_what_iwarp_does_not_have() {
    let Some(said) = run_on_an_interface("refused") else {
        return;
    };
    let how_to_connect = (said.lines()).filter(|line| line.contains("reaches no peer by its LID"));
    assert_eq!(how_to_connect.count(), 1, "{said}");
}

#[test]
fn program_of_c_uses_identifiers_without_a_peer() {
    let addresses = ["10.99.0.9/24", "fd99::1/64 nodad"];
    let added = addresses.map(|address| format!("ip addr add {address} dev dropin0 && "));
    if let Some(program) = Program::compiled("identifiers") {
        in_namespace(&format!("{}{program}", added.concat()));
    }
}

#[test]
fn identifiers_of_a_program_of_c_are_told_when_their_device_is_gone() {
    run_on_an_interface("removal");
}

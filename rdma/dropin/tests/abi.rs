//! Structs of C against the headers that are installed: sizes, and offsets of every field.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use xwarp_dropin::abi::{Layout, cm, verbs};
use xwarp_test_kit::WorkDir;

const HEADERS: [&str; 2] = [
    "/usr/include/infiniband/verbs.h",
    "/usr/include/rdma/rdma_cma.h",
];

/// A program of C that prints what the headers say.
fn program(layouts: &[&Layout]) -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for layout in layouts {
        let name = layout.name;
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").expect("memory");
        for (field, _) in layout.fields {
            writeln!(
                text,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {field}));"
            )
            .expect("memory");
        }
    }
    // Parts of a union, which Rust says as structs of their own.
    for part in UNION {
        let (field, _) = part;
        writeln!(
            text,
            "printf(\"{field} %zu\\n\", offsetof(struct ibv_send_wr, {field}));"
        )
        .expect("memory");
    }
    text + "return 0;\n}\n"
}

/// Parts of the union in a work request, and where they are.
const UNION: [(&str, usize); 6] = {
    const START: usize = std::mem::offset_of!(verbs::ibv_send_wr, wr);
    [
        (
            "wr.rdma.remote_addr",
            START + std::mem::offset_of!(verbs::Rdma, remote_addr),
        ),
        (
            "wr.rdma.rkey",
            START + std::mem::offset_of!(verbs::Rdma, rkey),
        ),
        (
            "wr.atomic.remote_addr",
            START + std::mem::offset_of!(verbs::Atomic, remote_addr),
        ),
        (
            "wr.atomic.compare_add",
            START + std::mem::offset_of!(verbs::Atomic, compare_add),
        ),
        (
            "wr.atomic.swap",
            START + std::mem::offset_of!(verbs::Atomic, swap),
        ),
        (
            "wr.atomic.rkey",
            START + std::mem::offset_of!(verbs::Atomic, rkey),
        ),
    ]
};

/// What it prints if we are right.
fn expected(layouts: &[&Layout]) -> String {
    let mut text = String::new();
    for Layout { name, size, fields } in layouts {
        writeln!(text, "{name} {size}").expect("memory");
        for (field, offset) in *fields {
            writeln!(text, "{name}.{field} {offset}").expect("memory");
        }
    }
    for (field, offset) in UNION {
        writeln!(text, "{field} {offset}").expect("memory");
    }
    text
}

#[test]
fn structs_are_laid_out_as_in_the_headers() {
    if !HEADERS.iter().all(|header| Path::new(header).exists()) {
        println!("skipped: libibverbs-dev and librdmacm-dev are not installed");
        return;
    }
    let layouts: Vec<_> = verbs::LAYOUTS.iter().chain(cm::LAYOUTS).collect();
    assert!(layouts.len() >= 50, "{} structs", layouts.len());
    let directory = WorkDir::new("dropin-abi");
    let (source, program_path) = (directory.file("abi.c"), directory.file("abi"));
    fs::write(&source, program(&layouts)).expect("a directory");
    let mut cc = Command::new("cc");
    let build = cc.arg("-o").args([&program_path, &source]);
    assert!(build.status().expect("cc").success());
    let output = Command::new(&program_path).output().expect("a program");
    let printed = String::from_utf8(output.stdout).expect("text");
    for (line, expected) in printed.lines().zip(expected(&layouts).lines()) {
        assert_eq!(line, expected);
    }
    assert_eq!(printed, expected(&layouts));
}

//! The shared object, built once for all tests of a program, and programs of C that run on it.
#![allow(dead_code, reason = "a test program uses what it needs")]

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use xwarp_test_kit::{WorkDir, is_root_or_skipped};

/// Where the library is: in the folder of `XWARP_BUILT_LIB`, or built once for all tests.
pub(crate) static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    if let Some(built) = std::env::var_os("XWARP_BUILT_LIB") {
        return built.into();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dropin");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut build = Command::new("tools/dropin");
    let built = build.arg("--dev").arg(&folder).current_dir(root).output();
    checked(built.expect("tools/dropin"));
    folder
});

pub(crate) fn library() -> PathBuf {
    FOLDER.join("libxwarp-rdma.so.1")
}

/// What a program that has succeeded printed.
pub(crate) fn checked(output: Output) -> String {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{out}{err}");
    out
}

pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let command = Command::new(program).args(arguments).output();
    checked(command.unwrap_or_else(|error| panic!("{program}: {error}")))
}

/// Runs a program in a network namespace of its own, with a device `dropin0` that is up and has an
/// address. What XDP program is attached afterwards is printed, too.
pub(crate) fn in_namespace(program: &str) -> String {
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

/// Programs so far: each has a folder of its own.
static PROGRAMS: AtomicUsize = AtomicUsize::new(0);

/// A program of this folder, compiled against the installed headers and our object.
pub(crate) struct Program {
    path: String,
    _folder: WorkDir,
}

impl Program {
    /// `None` if it could not run: there are no headers, or this process is not root.
    pub(crate) fn compiled(name: &str) -> Option<Self> {
        Self::compiled_with(name, &[])
    }

    /// Compiles it with options of the linker. `None` if it could not run.
    pub(crate) fn compiled_with(name: &str, options: &[&str]) -> Option<Self> {
        let headers = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
        let installed = |header: &&str| Path::new("/usr/include").join(header).exists();
        if !is_root_or_skipped() || !headers.iter().all(installed) {
            println!("skipped unless libibverbs-dev and librdmacm-dev are installed");
            return None;
        }
        let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
        let folder = WorkDir::new(&format!("dropin-{name}-{number}"));
        let program = folder.file(name);
        let [path, library] =
            [&program, &library()].map(|it| it.to_str().expect("a path").to_owned());
        let source = format!("{}/tests/{name}.c", env!("CARGO_MANIFEST_DIR"));
        let arguments = [
            "-Wall", "-Werror", "-o", &path, &source, &library, "-pthread",
        ];
        run("cc", &[&arguments, options].concat());
        Some(Self {
            path,
            _folder: folder,
        })
    }

    /// Runs it on an interface. It has to end well, and to leave nothing attached. What it prints,
    /// also on standard error.
    pub(crate) fn run(&self) -> String {
        let printed = in_namespace(&format!("{self} 2>&1"));
        assert!(printed.ends_with("attached:\n"), "{printed}");
        printed
    }
}

impl fmt::Display for Program {
    /// As a shell calls it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

/// Compiles a program of this folder and runs it on an interface. What it prints; nothing where it
/// cannot be run.
pub(crate) fn run_on_an_interface(name: &str) -> Option<String> {
    Program::compiled(name).map(|program| program.run())
}

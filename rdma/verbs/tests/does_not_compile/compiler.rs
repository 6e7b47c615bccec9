//! The compiler, and its errors about programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::{env, fs, thread};

use crate::CLAIMS;

/// What the types rule out.
pub(crate) struct Claim {
    pub(crate) name: &'static str,
    pub(crate) programs: &'static [Program],
}

/// A program that compiles, and changes of it that do not.
pub(crate) struct Program {
    pub(crate) right: &'static str,
    pub(crate) wrong: &'static [Change],
}

/// The piece of a program that is replaced, and what it is replaced by. Then the code of the
/// compiler's error, or its text if it has no code.
pub(crate) type Change = (&'static str, &'static str, &'static str);

/// Stages of the compiler, in order. A stage may not see what the one before has refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Types,
    Borrows,
}

impl Part {
    /// The part that finds an error.
    fn of(code: &str) -> Self {
        match code {
            "E0382" => Self::Borrows,
            _ => Self::Types,
        }
    }
}

/// One program of the source that the compiler reads, and the error that it shall find there.
struct Case {
    claim: &'static str,
    source: String,
    expected: Option<&'static str>,
}

impl Program {
    /// The program with a change, which must concern one piece of it.
    fn changed(&self, (from, to, _): Change) -> String {
        assert_eq!(
            self.right.matches(from).count(),
            1,
            "{from}: {}",
            self.right
        );
        self.right.replace(from, to)
    }
}

/// All programs that compile.
fn right() -> Vec<Case> {
    let programs = |claim: &'static Claim| {
        claim.programs.iter().map(|program| Case {
            claim: claim.name,
            source: program.right.to_owned(),
            expected: None,
        })
    };
    CLAIMS.into_iter().flat_map(programs).collect()
}

/// All changed programs whose errors a part of the compiler finds.
fn wrong(part: Part) -> Vec<Case> {
    let mut cases = Vec::new();
    for claim in CLAIMS {
        for program in claim.programs {
            let here = |it: &&Change| Part::of(it.2) == part;
            cases.extend(program.wrong.iter().filter(here).map(|change| Case {
                claim: claim.name,
                source: program.changed(*change),
                expected: Some(change.2),
            }));
        }
    }
    cases
}

/// The libraries that may be the one which these tests were built with, the newest first.
fn libraries() -> Vec<PathBuf> {
    let exe = env::current_exe().expect("this program");
    let folder = exe.parent().expect("the folder of libraries");
    let is_ours = |path: &PathBuf| {
        let name = path.file_stem().and_then(|name| name.to_str());
        let is_library = path.extension().is_some_and(|end| end == "rlib");
        is_library && name.is_some_and(|name| name.starts_with("libxwarp-"))
    };
    let files = fs::read_dir(folder).expect("the folder").flatten();
    let mut libraries: Vec<_> = files.map(|file| file.path()).filter(is_ours).collect();
    let changed = |path: &PathBuf| fs::metadata(path).and_then(|it| it.modified()).ok();
    libraries.sort_by_key(|path| std::cmp::Reverse(changed(path)));
    libraries
}

/// Has the compiler read programs, each a module of its own. Returns the errors, with the numbers
/// of the programs that they are in.
fn compile(library: &Path, cases: &[Case]) -> Vec<(Option<usize>, String)> {
    let (mut source, mut begins) = (String::from("#![allow(warnings)]\n"), BTreeMap::new());
    for (number, case) in cases.iter().enumerate() {
        begins.insert(source.lines().count() + 1, number);
        let program = format!("mod program_{number} {{\n{}\n}}\n", case.source);
        source.push_str(&program);
    }
    let program_at = |line| begins.range(..=line).next_back().map(|(_, number)| *number);
    let said = run(library, &source);
    let errors = said.lines().filter_map(|line| error_in(line));
    errors
        .map(|(line, code)| (line.and_then(program_at), code.to_owned()))
        .collect()
}

/// Messages of the compiler about a source, one a line.
fn run(library: &Path, source: &str) -> String {
    let folder = library.parent().expect("a folder");
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut running = Command::new(compiler)
        .args([
            "--edition=2024",
            "--crate-type=lib",
            "--crate-name=programs",
        ])
        .args(["--emit=metadata", "--error-format=short", "--out-dir"])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("--extern")
        .arg(format!("xwarp={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", folder.display()))
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("rustc");
    let mut stdin = running.stdin.take().expect("its standard input");
    stdin.write_all(source.as_bytes()).expect("a source");
    drop(stdin);
    let output = running.wait_with_output().expect("rustc");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.success(), !said.contains("error"), "{said}");
    said
}

/// The line and code of a message such as `<anon>:12:5: error[E0308]: mismatched types`, if it is
/// an error. An error without a code has its text instead. Those of the program as a whole have no
/// line, and the last message only counts the errors.
fn error_in(message: &str) -> Option<(Option<usize>, &str)> {
    let (place, what) = message.split_once("error")?;
    let is_message = place.is_empty() || place.ends_with(": ");
    if !is_message || what.starts_with(": aborting due to") {
        return None;
    }
    let code = what.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let line = place.split(':').nth(1).and_then(|line| line.parse().ok());
    let text = what.strip_prefix(": ").unwrap_or(what);
    Some((line, code.map_or(text, |(code, _)| code)))
}

/// Errors of the compiler in one program.
struct Verdict {
    case: Case,
    errors: Vec<String>,
}

/// Those of all programs.
static VERDICTS: LazyLock<Vec<Verdict>> = LazyLock::new(|| {
    let library = library();
    let parts = [Part::Types, Part::Borrows];
    let mut all = vec![right()];
    all.extend(parts.map(wrong));
    let judge = |cases: Vec<Case>| move || judged(library, cases);
    thread::scope(|scope| {
        let running: Vec<_> = all.into_iter().map(|it| scope.spawn(judge(it))).collect();
        let done = running.into_iter().map(|it| it.join().expect("a verdict"));
        done.flatten().collect()
    })
});

/// The newest library that programs can be compiled with. Another build may have left a newer one
/// that is of another compiler.
fn library() -> &'static Path {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let empty = Case {
            claim: "",
            source: "use xwarp::Rnic;".to_owned(),
            expected: None,
        };
        let serves = |library: &PathBuf| compile(library, std::slice::from_ref(&empty)).is_empty();
        let found = libraries().into_iter().find(serves);
        found.expect("the library that this test was built with")
    });
    &FOUND
}

fn judged(library: &Path, cases: Vec<Case>) -> Vec<Verdict> {
    let errors = compile(library, &cases);
    let nowhere: Vec<_> = errors.iter().filter(|(place, _)| place.is_none()).collect();
    assert!(nowhere.is_empty(), "{nowhere:?}");
    let of = |number| {
        let here = errors
            .iter()
            .filter(move |(place, _)| *place == Some(number));
        here.map(|(_, code)| code.clone()).collect()
    };
    let verdicts = cases.into_iter().enumerate();
    verdicts
        .map(|(number, case)| Verdict {
            case,
            errors: of(number),
        })
        .collect()
}

/// Asserts that each program of a claim compiles, and that each change of it is refused for its
/// reason and for no other.
#[track_caller]
pub(crate) fn assert_ruled_out(claim: &Claim) {
    let verdicts = VERDICTS.iter().filter(|it| it.case.claim == claim.name);
    let mut programs = 0;
    for Verdict { case, errors } in verdicts {
        let expected: Vec<_> = case.expected.into_iter().collect();
        assert_eq!(*errors, expected, "{}", case.source);
        programs += 1;
    }
    let changes = claim.programs.iter().map(|program| 1 + program.wrong.len());
    assert_eq!(programs, changes.sum::<usize>(), "all were compiled");
}

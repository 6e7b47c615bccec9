//! The library in processes as they are: standard error that takes nothing, variables that name nothing.

mod common;

use std::fs;

use common::{FOLDER, Program, in_namespace};
use xwarp_test_kit::WorkDir;

#[test]
fn rnic_works_on_though_standard_error_takes_nothing() {
    let Some(program) = Program::compiled("link") else {
        return;
    };
    let variables = "XWARP_LOG=trace XWARP_STATS=1 XWARP_DEV=dropin0,nosuch0";
    let printed = in_namespace(&format!("{variables} {program} 2>/dev/full"));
    assert!(printed.ends_with("attached:\n"), "{printed}");
}

/// What a program that lists devices prints with these variables, and no others of the library. Standard error first.
fn listed(before: &str, variables: &str, program: &Program) -> String {
    let command = format!("{before}; env -u XWARP_DEV {variables} {program} 2>&1");
    let printed = in_namespace(&format!("{{ {command}; }}"));
    let end = printed.strip_suffix("attached:\n");
    end.unwrap_or_else(|| panic!("{printed}")).to_owned()
}

#[test]
fn variable_that_names_no_interface_means_none() {
    let Some(program) = Program::compiled("list") else {
        return;
    };
    let list = |before, variables| listed(before, variables, &program);
    assert_eq!(list(":", "XWARP_DEV=dropin0,dropin0"), "device dropin0\n");
    let unreadable = list(":", "XWARP_DEV=\"$(printf 'dropin0\\377')\"");
    assert!(unreadable.starts_with("xwarp: XWARP_DEV is dropin0\u{fffd}, which is no text"));
    assert_eq!(unreadable.lines().count(), 1, "{unreadable}");
    let folder = WorkDir::new("dropin-fifo");
    let fifo = folder.file("fifo");
    let fifo = fifo.to_str().expect("a path");
    let refused = list(&format!("mkfifo {fifo}"), &format!("XWARP_CONFIG={fifo}"));
    let why = format!("xwarp: cannot read the names of interfaces from {fifo}: it is no file");
    assert!(refused.starts_with(&why), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
}

/// The user could have the program print any file.
#[test]
fn program_with_more_rights_than_its_user_ignores_variables() {
    let rpath = format!("-Wl,-rpath,{}", FOLDER.display());
    let Some(program) = Program::compiled_with("list", &[&rpath]) else {
        return;
    };
    let folder = WorkDir::new("dropin-secret");
    let secret = folder.file("secret");
    fs::write(&secret, "secret words\n").expect("a file");
    let before = format!("chmod u+s {program}; chmod 600 {}", secret.display());
    let variables = format!(
        "XWARP_CONFIG={} setpriv --reuid 65534 --clear-groups",
        secret.display()
    );
    let printed = listed(&before, &variables, &program);
    assert!(!printed.contains("secret words"), "{printed}");
    assert!(printed.contains("device dropin0"), "{printed}");
}

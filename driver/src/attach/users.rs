//! Processes that use the XDP program of an interface, for messages that name them.

use std::fs;
use std::path::Path;

use super::status::shown;
use super::user::User;

/// All processes but this one that use xwarp's program on an interface, in the order of their
/// numbers. An engine of such a process publishes its state there, or the process holds the
/// program's link, as a forked child does. Processes that this one may not inspect are left out.
pub fn users(ifindex: u32, program_id: u32) -> Vec<User> {
    let engines = shown(ifindex).unwrap_or_default();
    let mut processes: Vec<u32> = engines.into_iter().map(|engine| engine.process).collect();
    processes.extend(holders(Path::new("/proc"), program_id));
    processes.sort_unstable();
    processes.dedup();
    let others = (processes.into_iter()).filter(|process| *process != std::process::id());
    others
        .filter_map(|process| {
            let comm = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
            let program = comm.trim_end().to_owned();
            Some(User { process, program })
        })
        .collect()
}

/// The processes with a descriptor that is a link of this program.
fn holders(proc: &Path, program_id: u32) -> Vec<u32> {
    let wanted = format!("prog_id:\t{program_id}");
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers
        .filter(|process: &u32| {
            let descriptors = proc.join(process.to_string()).join("fdinfo");
            let all = fs::read_dir(descriptors).into_iter().flatten().flatten();
            all.filter_map(|entry| fs::read_to_string(entry.path()).ok())
                .any(|info| is_link_of(&info, &wanted))
        })
        .collect()
}

/// Whether a descriptor's `fdinfo` is that of a link of the program with this line.
fn is_link_of(info: &str, wanted: &str) -> bool {
    info.lines().any(|line| line == "link_type:\txdp") && info.lines().any(|line| line == wanted)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    /// As Linux 6.18 shows it.
    const LINK: &str =
        "pos:\t0\nflags:\t02000000\nlink_type:\txdp\nlink_id:\t3\nprog_tag:\tab\nprog_id:\t71\n";

    #[test]
    fn link_is_known_by_its_program() {
        assert!(is_link_of(LINK, "prog_id:\t71"));
        assert!(!is_link_of(LINK, "prog_id:\t7"));
        let program = "pos:\t0\nprog_type:\t6\nprog_id:\t71\n";
        assert!(!is_link_of(program, "prog_id:\t71"), "no link");
    }

    #[test]
    fn holder_is_found_among_processes() {
        let processes = WorkDir::new("xwarp-holders");
        for (process, info) in [("12", LINK), ("13", "pos:\t0\n"), ("self", LINK)] {
            let descriptors = processes.file(process).join("fdinfo");
            fs::create_dir_all(&descriptors).unwrap();
            fs::write(descriptors.join("5"), info).unwrap();
        }
        assert_eq!(holders(processes.as_ref(), 71), [12]);
        assert_eq!(holders(processes.as_ref(), 72), []);
    }
}

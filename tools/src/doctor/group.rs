//! Memory of the control group: what it leaves to this process.

use std::fs;
use std::path::Path;

/// Where distributions mount control groups.
const MOUNT: &str = "/sys/fs/cgroup";

/// Files of a group: limit, usage and statistics.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Line of `memory.stat` with memory that the kernel reclaims on demand.
    dropped: &'static str,
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    dropped: "total_inactive_file ",
};
const VERSION_2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    dropped: "inactive_file ",
};

/// Bytes that the control groups of this process leave it: the minimum over all groups, or `None`
/// without a limit.
pub(super) fn memory_left() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    left_in(Path::new(MOUNT), &groups)
}

/// The minimum over the groups in these lines of /proc/self/cgroup.
fn left_in(mount: &Path, groups: &str) -> Option<u64> {
    let each = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.trim_start_matches('/');
        match controllers {
            "" => least(mount, path, &VERSION_2),
            "memory" => least(&mount.join("memory"), path, &VERSION_1),
            _ => None,
        }
    });
    each.min()
}

/// The minimum over the group at `path` and its parents. In a container the path may be one of the
/// host, and only the root is there.
fn least(root: &Path, path: &str, files: &Files) -> Option<u64> {
    let directory = root.join(path);
    let groups = directory
        .ancestors()
        .take_while(|group| group.starts_with(root));
    groups.filter_map(|group| left_of(group, files)).min()
}

fn left_of(group: &Path, files: &Files) -> Option<u64> {
    let read = |file| fs::read_to_string(group.join(file)).ok();
    let number = |file| read(file)?.trim().parse::<u64>().ok();
    // Without a limit it says `max`, or in version 1 a number beyond any memory.
    let limit = number(files.limit).filter(|limit| *limit < 1 << 62)?;
    let stat = read("memory.stat").unwrap_or_default();
    let dropped = stat
        .lines()
        .find_map(|line| line.strip_prefix(files.dropped)?.parse().ok());
    let used = number(files.usage)?.saturating_sub(dropped.unwrap_or_default());
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    /// Result for the groups a and a/b with these limits. 100 bytes are in use, of which the kernel
    /// would reclaim 60.
    fn left(name: &str, limits: [&str; 2], groups: &str) -> Option<u64> {
        let files = WorkDir::new(&format!("xwarp-group-{name}"));
        let mount = files.file("mount");
        for (group, limit) in ["a", "a/b"].into_iter().zip(limits) {
            for (root, files) in [
                (mount.clone(), VERSION_2),
                (mount.join("memory"), VERSION_1),
            ] {
                let group = root.join(group);
                fs::create_dir_all(&group).unwrap();
                fs::write(group.join(files.limit), limit).unwrap();
                fs::write(group.join(files.usage), "160\n").unwrap();
                let stat = format!("file 1\n{}60\n", files.dropped);
                fs::write(group.join("memory.stat"), stat).unwrap();
            }
        }
        left_in(&mount, groups)
    }

    #[test]
    fn least_of_a_group_and_those_above_counts() {
        for groups in ["0::/a/b\n", "4:memory:/a/b\n0::/\n", "1:cpu:/\n0::/a/b"] {
            assert_eq!(left("least", ["500\n", "300\n"], groups), Some(200));
            assert_eq!(left("above", ["300\n", "max\n"], groups), Some(200));
            assert_eq!(left("full", ["50\n", "300\n"], groups), Some(0));
        }
    }

    #[test]
    fn group_without_a_limit_has_none() {
        let huge = "9223372036854771712\n";
        for groups in ["0::/a/b\n", "4:memory:/a/b\n", "", "odd", "0::/elsewhere\n"] {
            assert_eq!(left("none", ["max\n", huge], groups), None);
        }
    }
}

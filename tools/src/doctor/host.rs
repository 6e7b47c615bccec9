//! Facts about the host for `xwarp doctor`: kernel, capabilities and memory limits.

use std::fs;
use std::num::NonZero;

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::Uid;
use xwarp_driver::in_initial_user_namespace;

use super::group;

/// Capabilities that opening an RNIC needs, with their numbers (linux/capability.h).
const NEEDED: [(u32, &str); 4] = [
    (12, "CAP_NET_ADMIN"),
    (13, "CAP_NET_RAW"),
    (21, "CAP_SYS_ADMIN"),
    (39, "CAP_BPF"),
];
const FREE_HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
const SHARED_HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
/// With this capability, the limit of locked memory does not apply.
const IPC_LOCK: u32 = 14;

/// The machine and this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Major and minor number of the kernel's version.
    pub(super) kernel: (u32, u32),
    /// Full version of the kernel.
    pub(super) release: String,
    /// Effective capabilities of this process.
    capabilities: u64,
    /// The process runs as root.
    pub(super) is_root: bool,
    /// The process is in the initial user namespace, where its capabilities apply to the whole
    /// kernel.
    pub(super) in_initial_user_namespace: bool,
    /// Limit of locked memory in bytes.
    pub(super) lockable: Limit,
    /// Limit of open files.
    pub(super) open_files: Limit,
    /// Bytes of memory that the control group of this process leaves it, or `None` without a limit.
    pub(super) group_leaves: Option<u64>,
    /// Free huge pages of 2 MiB, or `None` if this kernel has none of that size.
    pub(super) huge_pages: Option<u64>,
    /// The kernel makes huge pages of shared memory on request (`madvise`).
    pub(super) makes_huge_pages: bool,
    /// Number of processors that this process may use.
    pub(super) processors: usize,
}

/// A resource limit.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limit {
    /// Current limit.
    pub(super) now: u64,
    /// Maximum to which the process can raise it without privilege.
    pub(super) most: u64,
}

impl Limit {
    fn of(resource: Resource) -> anyhow::Result<Self> {
        let (now, most) = getrlimit(resource)?;
        Ok(Self { now, most })
    }

    /// True if the process may raise the limit to `wanted` without privilege.
    pub(super) fn allows(self, wanted: u64) -> bool {
        wanted <= self.most
    }
}

impl Host {
    pub(super) fn read() -> anyhow::Result<Self> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        let status = fs::read_to_string("/proc/self/status")?;
        let capabilities = (field(&status, "CapEff:"))
            .and_then(|mask| u64::from_str_radix(mask, 16).ok())
            .unwrap_or_default();
        Ok(Self {
            kernel: version(&release),
            release: release.trim().to_owned(),
            capabilities,
            is_root: Uid::effective().is_root(),
            in_initial_user_namespace: in_initial_user_namespace(),
            lockable: Limit::of(Resource::RLIMIT_MEMLOCK)?,
            open_files: Limit::of(Resource::RLIMIT_NOFILE)?,
            group_leaves: group::memory_left(),
            huge_pages: (fs::read_to_string(FREE_HUGE_PAGES).ok())
                .and_then(|count| count.trim().parse().ok()),
            makes_huge_pages: fs::read_to_string(SHARED_HUGE_PAGES)
                .is_ok_and(|setting| makes_huge_pages(&setting)),
            processors: std::thread::available_parallelism().map_or(1, NonZero::get),
        })
    }

    /// Capabilities that an RNIC needs and this process lacks.
    pub(super) fn missing_capabilities(&self) -> Vec<&'static str> {
        (NEEDED.into_iter())
            .filter(|(bit, _)| !self.has(*bit))
            .map(|(_, name)| name)
            .collect()
    }

    /// True if no limit of locked memory applies.
    pub(super) fn locks_any_memory(&self) -> bool {
        self.has(IPC_LOCK) && self.in_initial_user_namespace
    }

    fn has(&self, bit: u32) -> bool {
        self.capabilities >> bit & 1 == 1
    }

    #[cfg(test)]
    pub(super) fn of_root(release: &str) -> Self {
        Self {
            kernel: version(release),
            release: release.to_owned(),
            capabilities: u64::MAX,
            is_root: true,
            in_initial_user_namespace: true,
            lockable: Limit {
                now: 8 << 20,
                most: 8 << 20,
            },
            open_files: Limit {
                now: 1024,
                most: 1 << 20,
            },
            group_leaves: None,
            huge_pages: Some(0),
            makes_huge_pages: false,
            processors: 4,
        }
    }

    #[cfg(test)]
    pub(super) fn of_nobody(release: &str) -> Self {
        Self {
            capabilities: 0,
            is_root: false,
            ..Self::of_root(release)
        }
    }
}

/// The first word behind `name` in a file of /proc.
fn field<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    let line = file.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
}

/// The setting lists all values, the current one in brackets.
fn makes_huge_pages(setting: &str) -> bool {
    ["[always]", "[within_size]", "[advise]", "[force]"]
        .iter()
        .any(|value| setting.contains(value))
}

/// `6.18.3-arch1` is (6, 18). Zeros stand for parts that are not numbers.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|letter: char| !letter.is_ascii_digit())
        .map(|digits| digits.parse().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_that_of_the_release() {
        assert_eq!(version("6.18.44-fc-v657"), (6, 18));
        assert_eq!(version("7.3+deb13-amd64"), (7, 3));
        assert_eq!(version("odd"), (0, 0));
    }

    #[test]
    fn setting_in_brackets_counts() {
        let setting = |chosen: &str| {
            let all = "always within_size advise never deny force";
            makes_huge_pages(&all.replace(chosen, &format!("[{chosen}]")))
        };
        assert!(setting("always") && setting("advise"));
        assert!(!setting("never") && !setting("deny"));
    }

    #[test]
    fn this_machine_can_be_read() {
        let host = Host::read().unwrap();
        assert!(host.kernel >= (5, 0), "{host:?}");
    }
}

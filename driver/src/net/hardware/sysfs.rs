//! A device's driver, interrupts and memory node, by files of the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use crate::net::Interface;

/// An interrupt of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number, as in `/proc/interrupts`.
    pub number: u32,
    /// The processors that serve it, as the kernel lists them: `0-3`.
    pub processors: String,
}

/// The directory of an interface in sysfs.
pub(super) struct Directory(PathBuf);

impl Directory {
    /// `None` if there is none. The one of this name may be an interface of another network
    /// namespace, whose sysfs is mounted.
    pub(super) fn of(interface: &Interface) -> Option<Self> {
        let directory = Self(Path::new("/sys/class/net").join(&interface.name));
        let ours = directory.read("ifindex")? == interface.index.to_string()
            && directory.read("address")? == interface.mac.to_string();
        ours.then_some(directory)
    }

    pub(super) fn into_path(self) -> PathBuf {
        self.0
    }

    fn read(&self, file: &str) -> Option<String> {
        let said = fs::read_to_string(self.0.join(file)).ok()?;
        Some(said.trim().to_owned())
    }

    /// The driver of the device.
    pub(super) fn driver(&self) -> Option<String> {
        let link = fs::read_link(self.0.join("device/driver")).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    }

    /// Numbers of the interrupts of the device, or of the one that it is part of, as those of
    /// virtio are.
    pub(super) fn interrupts(&self) -> Vec<u32> {
        let listed =
            ["device/msi_irqs", "device/../msi_irqs"].map(|list| fs::read_dir(self.0.join(list)));
        let entries = listed.into_iter().flatten().flatten().flatten();
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// The interface beneath, if there is one alone.
    pub(super) fn lower(&self) -> Option<String> {
        let entries = fs::read_dir(&self.0).ok()?.flatten();
        let mut lower = entries.filter_map(|entry| {
            let name = entry.file_name();
            name.to_str()?.strip_prefix("lower_").map(str::to_owned)
        });
        let first = lower.next()?;
        lower.next().is_none().then_some(first)
    }

    /// The bond that the interface is a member of. Bridges have their own directories.
    pub(super) fn bond(&self) -> Option<String> {
        let master = self.0.join("master");
        let bond = fs::read_link(&master).ok()?;
        let name = bond.file_name()?.to_string_lossy().into_owned();
        master.join("bonding").is_dir().then_some(name)
    }

    /// The memory node of the device. A machine with one has no opinion, and says -1.
    pub(super) fn node(&self) -> Option<u32> {
        self.read("device/numa_node")?.parse().ok()
    }
}

/// These interrupts, with the processors that serve them. Vanished ones are left out.
pub(super) fn served(numbers: &[u32]) -> Vec<Interrupt> {
    (numbers.iter())
        .filter_map(|&number| {
            let file = format!("/proc/irq/{number}/effective_affinity_list");
            let processors = fs::read_to_string(file).ok()?.trim().to_owned();
            Some(Interrupt { number, processors })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A directory as the kernel makes it, which goes with the value.
    struct Trial(Directory);

    impl Trial {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("xwarp-sysfs-{}-{name}", std::process::id()));
            fs::create_dir_all(path.join("eth1")).unwrap();
            Self(Directory(path.join("eth1")))
        }

        fn leads(&self, link: &str, to: &str) {
            let there = self.0.0.join("..").join(to);
            fs::create_dir_all(&there).unwrap();
            symlink(there, self.0.0.join(link)).unwrap();
        }
    }

    impl Drop for Trial {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.0.join(".."));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes symbolic links")]
    fn interface_beneath_is_known_if_there_is_one() {
        let trial = Trial::new("lower");
        assert_eq!(trial.0.lower(), None);
        trial.leads("lower_eth0", "eth0");
        trial.leads("upper_br0", "br0");
        assert_eq!(trial.0.lower().as_deref(), Some("eth0"));
        trial.leads("lower_eth2", "eth2");
        assert_eq!(trial.0.lower(), None, "a bond has several");
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes symbolic links")]
    fn bond_is_told_from_a_bridge() {
        let trial = Trial::new("bond");
        assert_eq!(trial.0.bond(), None);
        trial.leads("master", "bond0");
        assert_eq!(trial.0.bond(), None, "it may be a bridge");
        fs::create_dir(trial.0.0.join("../bond0/bonding")).unwrap();
        assert_eq!(trial.0.bond().as_deref(), Some("bond0"));
    }
}

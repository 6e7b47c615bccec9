//! The program's view of the kernel's files. UCX, NCCL, Mooncake and `ibstatus` look for RDMA
//! devices in `/sys/class/infiniband` and `/dev/infiniband`. In a mount namespace of its own, the
//! program finds its devices there, beside everything else (decision record tools/0004).

mod mounts;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use xwarp_driver::net::Interface;

use mounts::Cover;
pub(super) use mounts::Namespace;

const CLASSES: &str = "/sys/class";
const NODES: &str = "/dev";
/// Folders of RDMA devices in both.
const RDMA: &str = "infiniband";
const VERBS: &str = "infiniband_verbs";
/// The class whose folders stand for the devices' PCI functions. Programs follow links to them.
const FUNCTIONS: &str = "xwarp";
/// Folder of the library's further names, for the loader.
pub(super) const ALIASES: &str = "/sys/class/xwarp/lib";
/// Version of the kernel's interface for libibverbs.
const VERBS_ABI: &str = "6";
/// All users may read the files.
const READABLE: Mode = Mode::from_bits_truncate(0o022);
/// Speed of an interface that reports none, in Mb/s, as the library has it.
const SPEED: u32 = 10_000;

/// A device of the program.
pub(super) struct Device {
    pub(super) name: String,
    pub(super) addresses: Vec<IpAddr>,
    mac: [u8; 6],
    is_active: bool,
    /// Its network interface.
    interface: String,
}

impl From<Interface> for Device {
    fn from(interface: Interface) -> Self {
        Self {
            mac: interface.mac.0,
            is_active: interface.up && interface.carrier,
            interface: interface.name.clone(),
            name: interface.name,
            addresses: interface.addresses,
        }
    }
}

impl Device {
    /// The device of a switch, on which each program has an Ethernet address of its own.
    pub(super) fn of_switch(name: &str, addresses: &[IpAddr]) -> Self {
        Self {
            name: name.to_owned(),
            addresses: addresses.to_vec(),
            mac: [2, 0, 0, 0, 0, 0],
            is_active: true,
            interface: "lo".to_owned(),
        }
    }

    /// The EUI-64 of the Ethernet address, as the library has it.
    fn guid(&self) -> String {
        let [first, second, third, rest @ ..] = self.mac;
        let bytes = [&[first ^ 2, second, third, 0xff, 0xfe][..], &rest].concat();
        let groups = bytes.chunks(2).map(|pair| {
            let digits = pair.iter().map(|byte| format!("{byte:02x}"));
            digits.collect::<String>()
        });
        groups.collect::<Vec<_>>().join(":")
    }

    /// Files of the device, without the folder of its port.
    fn files(&self, is_infiniband: bool) -> Vec<(&'static str, String)> {
        let kind = if is_infiniband { "1: CA" } else { "4: RNIC" };
        vec![
            ("board_id", "xwarp".to_owned()),
            ("fw_ver", env!("CARGO_PKG_VERSION").to_owned()),
            ("hca_type", "xwarp".to_owned()),
            ("hw_rev", "0".to_owned()),
            ("node_desc", format!("xwarp {}", self.name)),
            ("node_guid", self.guid()),
            ("node_type", kind.to_owned()),
            ("sys_image_guid", self.guid()),
        ]
    }

    /// Files of its port.
    fn port_files(&self) -> Vec<(String, String)> {
        let (state, link) = if self.is_active {
            ("4: ACTIVE", "5: LinkUp")
        } else {
            ("1: DOWN", "3: Disabled")
        };
        let fixed = [
            ("cap_mask", "0x00010000"),
            ("lid", "0x0"),
            ("lid_mask_count", "0"),
            ("link_layer", "Ethernet"),
            ("phys_state", link),
            ("pkeys/0", "0xffff"),
            ("rate", rate(self.attribute("speed"))),
            ("sm_lid", "0x0"),
            ("sm_sl", "0"),
            ("state", state),
        ];
        let mut files: Vec<_> = fixed.map(|(name, text)| (name.into(), text.into())).into();
        for (index, address) in self.addresses.iter().enumerate() {
            files.extend([
                (format!("gids/{index}"), gid(*address)),
                (format!("gid_attrs/types/{index}"), "RoCE v2".to_owned()),
                (format!("gid_attrs/ndevs/{index}"), self.interface.clone()),
            ]);
        }
        files
    }

    /// An attribute of the network interface; `None` if it reports none.
    fn attribute(&self, name: &str) -> Option<u32> {
        let file = format!("{CLASSES}/net/{}/{name}", self.interface);
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// The PCI function of the network card. That of a virtio device is above it.
    fn own_function(&self) -> Option<PathBuf> {
        let link = format!("{CLASSES}/net/{}/device", self.interface);
        let device = fs::canonicalize(link).ok()?;
        let function = device.ancestors().find(|folder| is_function(folder))?;
        Some(function.to_owned())
    }

    /// Name of the network card's PCI function and its files, or those of a made-up function.
    fn function(&self, index: usize) -> (String, Vec<(&'static str, String)>) {
        const FILES: [(&str, &str); 8] = [
            ("class", "0x020000"),
            ("device", "0x0000"),
            ("local_cpulist", "0"),
            ("local_cpus", "1"),
            ("numa_node", "-1"),
            ("subsystem_device", "0x0000"),
            ("subsystem_vendor", "0x0000"),
            ("vendor", "0x0000"),
        ];
        let own = self.own_function();
        let files = FILES.map(|(name, otherwise)| {
            let read = |own: &PathBuf| fs::read_to_string(own.join(name)).ok();
            let text = own.as_ref().and_then(read);
            let text = text.map_or_else(|| otherwise.to_owned(), |it| it.trim_end().to_owned());
            (name, text)
        });
        let name = own.as_deref().and_then(Path::file_name);
        let name = name.and_then(OsStr::to_str);
        let made_up = || format!("ffff:00:{index:02x}.0");
        let name = name.map_or_else(made_up, str::to_owned);
        (name, files.into())
    }
}

/// Whether a folder of sysfs is that of a PCI function, as `0000:03:00.1`.
fn is_function(folder: &Path) -> bool {
    let name = folder.file_name().and_then(OsStr::to_str);
    let mut parts = name.unwrap_or_default().split([':', '.']);
    let lengths = [(); 4].map(|()| parts.next().map(str::len));
    lengths == [Some(4), Some(2), Some(2), Some(1)] && parts.next().is_none()
}

/// The rate of a port with this speed in Mb/s, by InfiniBand's lanes and their speeds as
/// `ibv_query_port` has them.
fn rate(speed: Option<u32>) -> &'static str {
    match speed.unwrap_or(SPEED) {
        100_000.. => "100 Gb/sec (4X EDR)",
        50_000.. => "50 Gb/sec (1X HDR)",
        40_000.. => "40 Gb/sec (4X QDR)",
        25_000.. => "25 Gb/sec (1X EDR)",
        10_000.. => "10 Gb/sec (1X QDR)",
        _ => "2.5 Gb/sec (1X SDR)",
    }
}

/// An address as a GID: IPv4 is mapped into IPv6.
fn gid(address: IpAddr) -> String {
    let address: Ipv6Addr = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let groups = address.segments().map(|group| format!("{group:04x}"));
    groups.join(":")
}

/// What the program finds.
pub(super) struct View<'a> {
    pub(super) devices: &'a [Device],
    /// They report InfiniBand's transport.
    pub(super) is_infiniband: bool,
    /// Further names of the library.
    pub(super) aliases: &'a BTreeSet<OsString>,
    pub(super) library: &'a Path,
}

impl View<'_> {
    /// Shows it to this process and its children, in its own mount namespace.
    pub(super) fn show(&self) -> io::Result<()> {
        let before = umask(READABLE);
        let shown = self.cover();
        umask(before);
        shown
    }

    fn cover(&self) -> io::Result<()> {
        let classes = Cover::over(CLASSES, &[RDMA, VERBS, FUNCTIONS])?;
        write_classes(classes.folder(), self.devices, self.is_infiniband)?;
        let aliases = Path::new(ALIASES);
        fs::create_dir_all(aliases)?;
        for alias in self.aliases {
            symlink(self.library, aliases.join(alias))?;
        }
        classes.stay();
        cover_nodes(self.devices)
    }
}

/// Shows device nodes.
fn cover_nodes(devices: &[Device]) -> io::Result<()> {
    let nodes = Cover::over(NODES, &[RDMA])?;
    let folder = nodes.folder().join(RDMA);
    fs::create_dir(&folder)?;
    let names = (0..devices.len()).map(node_name);
    for name in names.chain(["rdma_cm".to_owned()]) {
        Cover::null_device(&folder.join(name))?;
    }
    nodes.stay();
    Ok(())
}

/// Writes the folders of the devices' classes.
fn write_classes(classes: &Path, devices: &[Device], is_infiniband: bool) -> io::Result<()> {
    let verbs = classes.join(VERBS);
    write(&verbs.join("abi_version"), VERBS_ABI)?;
    fs::create_dir_all(classes.join(RDMA))?;
    for (index, device) in devices.iter().enumerate() {
        let (function, files) = device.function(index);
        let folder = classes.join(FUNCTIONS).join(&function);
        for (name, text) in files {
            write(&folder.join(name), &text)?;
        }
        let own = folder.join(RDMA).join(&device.name);
        for (name, text) in device.files(is_infiniband) {
            write(&own.join(name), &text)?;
        }
        for (name, text) in device.port_files() {
            write(&own.join("ports/1").join(name), &text)?;
        }
        let node = node_name(index);
        let for_verbs = folder.join(VERBS).join(&node);
        write(&for_verbs.join("ibdev"), &device.name)?;
        write(&for_verbs.join("abi_version"), "1")?;
        for part in [&own, &for_verbs] {
            symlink("../..", part.join("device"))?;
        }
        // Interfaces may share a function.
        fs::create_dir_all(folder.join("net"))?;
        let interface = Path::new(CLASSES).join("net").join(&device.interface);
        symlink(interface, folder.join("net").join(&device.interface))?;
        let real = |class: &str, name: &str| -> PathBuf {
            ["..", FUNCTIONS, &function, class, name].iter().collect()
        };
        symlink(
            real(RDMA, &device.name),
            classes.join(RDMA).join(&device.name),
        )?;
        symlink(real(VERBS, &node), verbs.join(&node))?;
    }
    Ok(())
}

/// Name of the device node of libibverbs.
fn node_name(index: usize) -> String {
    format!("uverbs{index}")
}

/// Writes a file of one line, and the folders that lead to it.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, format!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    #[test]
    fn pci_function_is_told_from_other_folders() {
        for name in ["0000:03:00.1", "ffff:00:1f.0"] {
            assert!(
                is_function(&Path::new("/sys/devices/pci0000:00").join(name)),
                "{name}"
            );
        }
        for name in [
            "virtio0",
            "pci0000:00",
            "0000:03:00",
            "0000:03:00.1.2",
            "net",
            "/",
        ] {
            assert!(!is_function(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn programs_read_what_the_kernel_would_write() {
        let addresses = ["10.0.0.2", "fe80::1"].map(|it| it.parse().expect("an address"));
        let folder = WorkDir::new("found");
        let devices = [
            Device::of_switch("xwarp0", &addresses),
            Device {
                mac: [2, 0x11, 0x22, 0x33, 0x44, 0x55],
                is_active: false,
                ..Device::of_switch("xwarp1", &[])
            },
        ];
        write_classes(folder.as_ref(), &devices, false).expect("our own folder");
        let expected = [
            ("infiniband/xwarp0/node_type", "4: RNIC\n"),
            ("infiniband/xwarp0/ports/1/state", "4: ACTIVE\n"),
            ("infiniband/xwarp0/ports/1/rate", "10 Gb/sec (1X QDR)\n"),
            (
                "infiniband/xwarp0/ports/1/gids/0",
                "0000:0000:0000:0000:0000:ffff:0a00:0002\n",
            ),
            (
                "infiniband/xwarp0/ports/1/gids/1",
                "fe80:0000:0000:0000:0000:0000:0000:0001\n",
            ),
            ("infiniband/xwarp0/ports/1/gid_attrs/ndevs/1", "lo\n"),
            ("infiniband/xwarp0/device/numa_node", "-1\n"),
            ("infiniband/xwarp1/ports/1/state", "1: DOWN\n"),
            ("infiniband/xwarp1/node_guid", "0011:22ff:fe33:4455\n"),
            ("infiniband_verbs/abi_version", "6\n"),
            ("infiniband_verbs/uverbs1/ibdev", "xwarp1\n"),
            (
                "infiniband_verbs/uverbs1/device/infiniband/xwarp1/fw_ver",
                "0.1.0\n",
            ),
        ];
        for (file, text) in expected {
            let read = fs::read_to_string(folder.file(file)).expect(file);
            assert_eq!(read, text, "{file}");
        }
        // Programs take the name of the PCI function from the path.
        let own = fs::canonicalize(folder.file("infiniband/xwarp1")).expect("a link");
        assert!(
            own.ends_with("xwarp/ffff:00:01.0/infiniband/xwarp1"),
            "{}",
            own.display()
        );
    }
}

//! Network interfaces that an RNIC could be opened on, as the kernel reports them. Nothing is
//! opened or attached.

use std::ffi::CStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::entry::Result;
use crate::environment;
use crate::logging::say_once;

/// Names the interfaces, separated by commas.
const DEVICES: &CStr = c"XWARP_DEV";
/// Names the file with the names of interfaces, one in each line.
const CONFIGURATION: &CStr = c"XWARP_CONFIG";
/// The file that is read if neither variable is set.
const DEFAULT_CONFIGURATION: &str = "/etc/xwarp/devices";
/// Bytes of a configuration file at most: room for more interfaces than a host has.
const CONFIGURATION_MAX: u64 = 64 << 10;

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) is_up: bool,
    pub(crate) has_carrier: bool,
    is_loopback: bool,
    /// IPv4 first, link-local IPv6 last.
    pub(crate) addresses: Vec<IpAddr>,
}

/// The interfaces that are devices: the named ones, or all that are up and have an address.
pub(crate) fn devices() -> Result<Vec<Interface>> {
    let all = interfaces()?;
    let Some(names) = named() else {
        let usable = |it: &Interface| it.is_up && !it.is_loopback && !it.addresses.is_empty();
        return Ok(all.into_iter().filter(usable).collect());
    };
    let find = |name: &String| {
        let found = with_name(&all, name).cloned();
        if found.is_none() {
            say_once(format_args!(
                "there is no interface {name}, though XWARP_DEV or the configuration file names it; `ip link` lists what there is"
            ));
        }
        found
    };
    Ok(names.iter().filter_map(find).collect())
}

/// The interface with that name, with its present attributes.
pub(crate) fn interface(name: &str) -> Result<Interface> {
    with_name(&interfaces()?, name)
        .cloned()
        .ok_or(Errno::ENODEV)
}

/// The interface with that name or alternative name.
fn with_name<'a>(all: &'a [Interface], name: &str) -> Option<&'a Interface> {
    let find = |wanted: &str| all.iter().find(|it| it.name == wanted);
    find(name).or_else(|| find(&xwarp::interface_name(name)?))
}

/// Names from the environment or the configuration file, `None` if neither exists. An unreadable
/// one names no interface, as its user has meant some interfaces, not all.
pub(crate) fn named() -> Option<Vec<String>> {
    if let Some(names) = environment::value(DEVICES) {
        let Some(names) = names.to_str() else {
            say_once(format_args!(
                "XWARP_DEV is {}, which is no text: no interface is used; set it to names of interfaces, separated by commas",
                names.display()
            ));
            return Some(Vec::new());
        };
        return Some(some_words(names));
    }
    let configured = environment::value(CONFIGURATION);
    let path = configured
        .as_deref()
        .unwrap_or(DEFAULT_CONFIGURATION.as_ref());
    match read_configuration(path.as_ref()) {
        Ok(text) => Some(words(&text, '\n')),
        Err(error) if error.kind() == io::ErrorKind::NotFound && configured.is_none() => None,
        Err(error) => {
            say_once(format_args!(
                "cannot read the names of interfaces from {}: {error}; no interface is used; write a name in each line of a file, or set XWARP_DEV",
                path.display()
            ));
            Some(Vec::new())
        }
    }
}

/// The names in the variable. If there are none, that is printed, and no interface is a device.
fn some_words(text: &str) -> Vec<String> {
    let names = words(text, ',');
    if names.is_empty() {
        say_once(format_args!(
            "XWARP_DEV is set and names no interface: none is used; unset it, or set it to names, separated by commas"
        ));
    }
    names
}

/// Reads a configuration file. Anything but a regular file could block for ever, such as a FIFO.
fn read_configuration(path: &Path) -> io::Result<String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    let kind = file.metadata()?;
    if !kind.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if kind.len() > CONFIGURATION_MAX {
        return Err(io::Error::other("it has more than 64 KiB"));
    }
    let mut text = String::new();
    file.take(CONFIGURATION_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The words between separators, without comments and duplicates.
fn words(text: &str, separator: char) -> Vec<String> {
    let parts = text.split(separator);
    let parts = parts.map(|part| part.split('#').next().unwrap_or_default().trim());
    let mut words: Vec<String> = Vec::new();
    for word in parts.filter(|word| !word.is_empty()) {
        if !words.iter().any(|known| known == word) {
            words.push(word.to_owned());
        }
    }
    words
}

fn interfaces() -> Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    for address in getifaddrs()? {
        let name = &address.interface_name;
        let known = found.iter().position(|it| it.name == *name);
        let at = known.unwrap_or_else(|| {
            found.push(Interface {
                name: name.clone(),
                is_up: address.flags.contains(InterfaceFlags::IFF_UP),
                has_carrier: address.flags.contains(InterfaceFlags::IFF_LOWER_UP),
                is_loopback: address.flags.contains(InterfaceFlags::IFF_LOOPBACK),
                ..Interface::default()
            });
            found.len() - 1
        });
        if let (Some(interface), Some(address)) = (found.get_mut(at), address.address) {
            interface.add(&address);
        }
    }
    for interface in &mut found {
        interface.addresses.sort_by_key(place_in_table);
    }
    Ok(found)
}

/// IPv4 first, link-local IPv6 last.
fn place_in_table(address: &IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 0,
        IpAddr::V6(v6) if v6.is_unicast_link_local() => 2,
        IpAddr::V6(_) => 1,
    }
}

impl Interface {
    /// Adds an address of any kind.
    fn add(&mut self, address: &SockaddrStorage) {
        if let Some(link) = address.as_link_addr() {
            self.index = u32::try_from(link.ifindex()).unwrap_or(0);
            self.mac = link.addr().unwrap_or_default();
        } else if let Some(v4) = address.as_sockaddr_in() {
            self.addresses.push(IpAddr::V4(v4.ip()));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            self.addresses.push(IpAddr::V6(v6.ip()));
        }
    }

    /// Bytes of an IP packet at most. 1500 if the kernel does not report it.
    pub(crate) fn mtu(&self) -> usize {
        self.attribute("mtu").unwrap_or(1500)
    }

    /// Mb/s; `None` for an interface without a speed.
    pub(crate) fn speed(&self) -> Option<u32> {
        self.attribute("speed")
    }

    fn attribute<T: std::str::FromStr>(&self, what: &str) -> Option<T> {
        let path = format!("/sys/class/net/{}/{what}", self.name);
        fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// EUI-64 of the Ethernet address, which identifies the device.
    pub(crate) fn guid(&self) -> [u8; 8] {
        let [first, .., before_last, last] = self.mac;
        let [_, second, third, fourth, ..] = self.mac;
        [
            first ^ 2,
            second,
            third,
            0xff,
            0xfe,
            fourth,
            before_last,
            last,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use xwarp_test_kit::WorkDir;

    #[test]
    fn names_stand_between_separators_without_comments() {
        assert_eq!(words("eth1, eth2,,", ','), ["eth1", "eth2"]);
        assert_eq!(
            words("# RNICs\neth1 # fast\n\neth2", '\n'),
            ["eth1", "eth2"]
        );
        assert_eq!(words("eth1,eth2,eth1", ','), ["eth1", "eth2"]);
    }

    #[test]
    fn configuration_is_a_file_of_a_bounded_length() {
        let folder = WorkDir::new("dropin-configuration");
        let [file, large, fifo] = ["devices", "large", "fifo"].map(|name| folder.file(name));
        fs::write(&file, "eth1\n").expect("a file");
        fs::write(&large, vec![b'\n'; 65_537]).expect("a file");
        mkfifo(&fifo, Mode::S_IRWXU).expect("a FIFO");
        assert_eq!(read_configuration(&file).ok().as_deref(), Some("eth1\n"));
        let why = |path| read_configuration(path).map_err(|error| error.to_string());
        assert_eq!(why(&large), Err("it has more than 64 KiB".to_owned()));
        assert_eq!(why(&fifo), Err("it is no file".to_owned()));
        assert_eq!(why(Path::new("/")), Err("it is no file".to_owned()));
    }

    #[test]
    fn loopback_is_found_and_is_no_device() {
        let all = interfaces().expect("the kernel answers");
        assert!(all.iter().any(|it| it.is_loopback));
        if !environment::is_set(DEVICES) {
            let devices = devices().expect("the kernel answers");
            assert!(devices.iter().all(|it| !it.is_loopback && it.is_up));
        }
    }

    #[test]
    fn guid_is_the_eui_64_of_the_ethernet_address() {
        let interface = Interface {
            mac: [0x02, 0x11, 0x22, 0x33, 0x44, 0x55],
            ..Interface::default()
        };
        let guid = [0x00, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55];
        assert_eq!(interface.guid(), guid);
    }
}

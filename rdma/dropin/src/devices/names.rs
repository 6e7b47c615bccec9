//! Names of the interfaces that the user means: from the environment, or from a file.

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

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

/// Names from the environment or the configuration file, `None` if neither exists. An unreadable
/// one names no interface, as its user has meant some interfaces, not all.
pub(super) fn named() -> Option<Vec<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::fs;
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
}

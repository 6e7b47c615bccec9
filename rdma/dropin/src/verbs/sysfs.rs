//! Devices in sysfs. `xwarp run` shows them in `/sys/class/infiniband` to the program; otherwise a
//! device has the folder of its interface.

use std::ffi::{CStr, c_char, c_int};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::entry::{Result, sets};

/// Paths of a device, and the name of its node in `/dev/infiniband`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Paths {
    /// `dev_name` of `ibv_device`.
    pub(super) node: String,
    /// `dev_path`.
    pub(super) verbs: String,
    /// `ibdev_path`.
    pub(super) device: String,
}

impl Paths {
    pub(super) fn of(name: &str) -> Self {
        Self::found(Path::new("/sys/class"), name).unwrap_or_else(|| {
            let path = format!("/sys/class/net/{name}");
            Self {
                node: name.to_owned(),
                verbs: path.clone(),
                device: path,
            }
        })
    }

    /// Those of a device that `xwarp run` shows.
    fn found(classes: &Path, name: &str) -> Option<Self> {
        let device = classes.join("infiniband").join(name);
        if line(&device.join("hca_type"))? != "xwarp" {
            return None;
        }
        let nodes = fs::read_dir(classes.join("infiniband_verbs")).ok()?;
        let mut nodes = nodes.flatten().map(|node| node.path());
        let verbs = nodes.find(|node| line(&node.join("ibdev")).is_some_and(|it| it == name))?;
        let node = verbs.file_name()?.to_str()?.to_owned();
        let text = |path: PathBuf| path.into_os_string().into_string().ok();
        Some(Self {
            node,
            verbs: text(verbs)?,
            device: text(device)?,
        })
    }
}

/// A file of one line.
fn line(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim_end().to_owned())
}

/// The path of sysfs.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    const PATH: &CStr = c"/sys";
    PATH.as_ptr()
}

/// Reads a file of sysfs without the end of its line. Returns its length; sets errno.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    sets(|| {
        if directory.is_null() || file.is_null() || buffer.is_null() {
            return Err(Errno::EINVAL);
        }
        let [directory, file] = [directory, file].map(|text| {
            // SAFETY: it is not null, and a text of C.
            let text = unsafe { CStr::from_ptr(text) };
            text.to_string_lossy()
        });
        let text = read(&format!("{directory}/{file}"), size)?;
        // SAFETY: the buffer has `size` bytes, and the text not more.
        unsafe { buffer.cast::<u8>().copy_from(text.as_ptr(), text.len()) };
        if text.len() < size {
            // SAFETY: the buffer has `size` bytes.
            unsafe { buffer.wrapping_add(text.len()).write(0) };
        }
        c_int::try_from(text.len()).map_err(|_too_large| Errno::EFBIG)
    })
}

/// The first bytes of a file, `size` at most, without the end of a line.
fn read(file: &str, size: usize) -> Result<Vec<u8>> {
    let errno = |error: std::io::Error| {
        let number = error.raw_os_error();
        number.map_or(Errno::EIO, Errno::from_raw)
    };
    let limit = u64::try_from(size).unwrap_or(u64::MAX);
    let mut text = Vec::new();
    let file = File::open(file).map_err(errno)?;
    file.take(limit).read_to_end(&mut text).map_err(errno)?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    #[test]
    fn device_that_is_shown_has_its_own_paths() {
        let folder = WorkDir::new("sysfs");
        let classes: &Path = folder.as_ref();
        assert_eq!(Paths::found(classes, "eth1"), None);
        for (file, text) in [
            ("infiniband/eth1/hca_type", "xwarp\n"),
            ("infiniband/mlx5_0/hca_type", "MT4119\n"),
            ("infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
            ("infiniband_verbs/uverbs1/ibdev", "eth1\n"),
        ] {
            let file = classes.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("our own folder");
            fs::write(file, text).expect("our own folder");
        }
        let path = |end: &str| classes.join(end).display().to_string();
        let expected = Paths {
            node: "uverbs1".to_owned(),
            verbs: path("infiniband_verbs/uverbs1"),
            device: path("infiniband/eth1"),
        };
        assert_eq!(Paths::found(classes, "eth1"), Some(expected));
        assert_eq!(Paths::found(classes, "mlx5_0"), None, "another vendor's");
        let otherwise = Paths::of("no such interface").device;
        assert_eq!(otherwise, "/sys/class/net/no such interface");
    }

    #[test]
    fn file_is_read_without_the_end_of_its_line() {
        let folder = WorkDir::new("sysfs-file");
        fs::write(folder.file("state"), "4: ACTIVE\n").expect("our own folder");
        let directory: &Path = folder.as_ref();
        let directory = format!("{}\0", directory.display());
        let directory = CStr::from_bytes_with_nul(directory.as_bytes()).expect("a text");
        let read = |file: &CStr, size: usize| {
            let mut buffer = [b'x'; 16];
            let place = buffer.as_mut_ptr().cast();
            let length = ibv_read_sysfs_file(directory.as_ptr(), file.as_ptr(), place, size);
            (length, buffer)
        };
        assert_eq!(read(c"state", 16), (9, *b"4: ACTIVE\0xxxxxx"));
        assert_eq!(read(c"state", 4), (4, *b"4: Axxxxxxxxxxxx"));
        assert_eq!(read(c"state", 0), (0, [b'x'; 16]));
        assert_eq!(read(c"rate", 16).0, -1);
        assert_eq!(Errno::last(), Errno::ENOENT);
    }
}

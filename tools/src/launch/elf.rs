//! ELF files of 64 bits, little-endian, as far as the loader's search for libraries needs them
//! (elf(5)).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Supported `e_ident`: magic number, class 64, little-endian.
const IDENT: [u8; 6] = [0x7f, b'E', b'L', b'F', 2, 1];
/// Kinds of segments.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
/// Kinds of dynamic entries.
const DT_STRTAB: u64 = 5;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
/// Maximum number of segments and dynamic entries to read; linkers write some dozens.
const MOST: u64 = 4096;
/// Maximum length in bytes of a path list.
const PATHS: usize = 4096;

/// Header of the file: 64 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    ident: [u8; 16],
    kind: U16,
    machine: U16,
    version: U32,
    entry: U64,
    segments: U64, // file offset of the program headers
    sections: U64,
    flags: U32,
    own_bytes: U16,
    segment_bytes: U16,
    segment_count: U16,
    section_bytes: U16,
    section_count: U16,
    names: U16,
}
const _: () = assert!(size_of::<Header>() == 64);

/// Program header: 56 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Segment {
    kind: U32,
    flags: U32,
    offset: U64, // offset in the file
    address: U64,
    physical: U64,
    file_bytes: U64,
    memory_bytes: U64,
    alignment: U64,
}
const _: () = assert!(size_of::<Segment>() == 56);

/// Dynamic entry: 16 bytes.
#[derive(Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Dynamic {
    kind: U64,
    value: U64,
}
const _: () = assert!(size_of::<Dynamic>() == 16);

/// How a program gets its libraries.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Linked {
    /// Without libraries.
    Statically,
    /// By a loader.
    Dynamically {
        /// Folders of `DT_RPATH`, which applies unless there is a `DT_RUNPATH`.
        rpath: Vec<String>,
    },
}

/// An executable file, with its segments.
pub(super) struct Elf {
    file: File,
    segments: Vec<Segment>,
}

impl Elf {
    /// Returns `None` for a file that is no such executable.
    pub(super) fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let header: Header = read_at(&file, 0)?;
        let is_known = header.ident.starts_with(&IDENT)
            && usize::from(header.segment_bytes.get()) == size_of::<Segment>();
        if !is_known {
            return None;
        }
        let count = u64::from(header.segment_count.get());
        let segments = read_all(&file, header.segments.get(), count)?;
        Some(Self { file, segments })
    }

    fn segment(&self, kind: u32) -> Option<&Segment> {
        self.segments.iter().find(|it| it.kind.get() == kind)
    }

    pub(super) fn linked(&self) -> Option<Linked> {
        if self.segment(PT_INTERP).is_none() {
            return Some(Linked::Statically);
        }
        let dynamic = self.segment(PT_DYNAMIC)?;
        let count = dynamic.file_bytes.get() / size_of::<Dynamic>() as u64;
        let entries: Vec<Dynamic> = read_all(&self.file, dynamic.offset.get(), count)?;
        let value = |kind| {
            let found = entries.iter().find(|entry| entry.kind.get() == kind);
            found.map(|entry| entry.value.get())
        };
        let rpath = match (value(DT_RPATH), value(DT_RUNPATH)) {
            (Some(at), None) => self.folders(value(DT_STRTAB)?.checked_add(at)?)?,
            _ => Vec::new(),
        };
        Some(Linked::Dynamically { rpath })
    }

    /// Folders of the path list at an address.
    fn folders(&self, address: u64) -> Option<Vec<String>> {
        let mut loaded = self.segments.iter().filter(|it| it.kind.get() == PT_LOAD);
        let offset = loaded.find_map(|segment| {
            let within = address.checked_sub(segment.address.get())?;
            let inside = within < segment.file_bytes.get();
            inside.then(|| segment.offset.get().checked_add(within))?
        })?;
        let mut bytes = [0; PATHS];
        let read = self.file.read_at(&mut bytes, offset).ok()?;
        let list = bytes.get(..read)?.split(|byte| *byte == 0).next()?;
        let list = String::from_utf8_lossy(list);
        let folders = list.split(':').filter(|folder| !folder.is_empty());
        Some(folders.map(str::to_owned).collect())
    }
}

fn read_at<T: FromZeros + FromBytes + IntoBytes>(file: &File, offset: u64) -> Option<T> {
    let mut value = T::new_zeroed();
    file.read_exact_at(value.as_mut_bytes(), offset).ok()?;
    Some(value)
}

/// Reads up to [`MOST`] consecutive values.
fn read_all<T: FromBytes + IntoBytes>(file: &File, offset: u64, count: u64) -> Option<Vec<T>> {
    (0..count.min(MOST))
        .map(|at| read_at(file, offset.checked_add(at * size_of::<T>() as u64)?))
        .collect()
}

#[cfg(test)]
mod tests {
    use xwarp_test_kit::WorkDir;

    use super::*;

    /// An executable of 0x200 bytes with an interpreter and these dynamic entries, whose strings
    /// lie at 0x400180, and at 0x180 of the file.
    fn executable(is_loaded: bool, entries: &[(u64, u64)]) -> Vec<u8> {
        let mut header = Header::new_zeroed();
        header.ident[..6].copy_from_slice(&IDENT);
        header.segments = 64.into();
        header.segment_bytes = 56.into();
        header.segment_count = 3.into();
        let segment = |kind: u32, offset: u64, bytes: u64| {
            let mut segment = Segment::new_zeroed();
            (segment.kind, segment.offset) = (kind.into(), offset.into());
            segment.address = (0x40_0000 + offset).into();
            segment.file_bytes = bytes.into();
            segment
        };
        let interpreter = if is_loaded { PT_INTERP } else { 0 };
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(segment(PT_LOAD, 0, 0x200).as_bytes());
        bytes.extend_from_slice(segment(interpreter, 0, 0).as_bytes());
        bytes.extend_from_slice(segment(PT_DYNAMIC, 0x100, 16 * entries.len() as u64).as_bytes());
        bytes.resize(0x100, 0);
        for (kind, value) in entries {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        bytes.resize(0x180, 0);
        bytes.extend_from_slice(b"\0/opt/lib:$ORIGIN/../lib\0");
        bytes
    }

    fn linked(name: &str, is_loaded: bool, entries: &[(u64, u64)]) -> Option<Linked> {
        let files = WorkDir::new(&format!("xwarp-elf-{name}"));
        let file = files.file("executable");
        std::fs::write(&file, executable(is_loaded, entries)).unwrap();
        Elf::read(&file)?.linked()
    }

    #[test]
    fn rpath_counts_unless_there_is_a_runpath() {
        let (strings, rpath) = ((DT_STRTAB, 0x40_0180), (DT_RPATH, 1));
        let folders = ["/opt/lib", "$ORIGIN/../lib"].map(str::to_owned).to_vec();
        let with = |rpath| Some(Linked::Dynamically { rpath });
        assert_eq!(linked("rpath", true, &[strings, rpath]), with(folders));
        let both = [strings, rpath, (DT_RUNPATH, 1)];
        assert_eq!(linked("runpath", true, &both), with(vec![]));
        assert_eq!(linked("neither", true, &[strings]), with(vec![]));
        let statically = Some(Linked::Statically);
        assert_eq!(linked("static", false, &[strings, rpath]), statically);
    }

    #[test]
    fn broken_file_says_nothing() {
        assert_eq!(linked("no-strings", true, &[(DT_RPATH, 1)]), None);
        let far = [(DT_STRTAB, u64::MAX), (DT_RPATH, 1)];
        assert_eq!(linked("far", true, &far), None);
        assert!(Elf::read(Path::new("/proc/self/status")).is_none());
        assert!(Elf::read(Path::new("/nowhere")).is_none());
    }
}

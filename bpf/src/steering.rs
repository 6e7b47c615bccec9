//! Loading the program into the kernel.

use std::io;
use std::sync::Once;

use libbpf_rs::{Object, ObjectBuilder, OpenProgramMut, PrintLevel, ProgramMut, set_print};

use crate::{Maps, OpenMapsError, STEER_OBJECT, program_name};

/// The programs once more, to be bound to a device: these see VLAN tags that its driver has taken
/// off.
const BOUND_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer_bound.bpf.o"));
/// Programs that also write the driver's receive metadata in front of each frame.
const METADATA_OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/steer_meta.bpf.o"));
/// `BPF_F_XDP_DEV_BOUND_ONLY` of <linux/bpf.h>.
const BOUND_ONLY: u32 = 1 << 6;
/// The names of the programs that are bound to a device begin so.
const BOUND: &str = "steer_bound";
const METADATA: &str = "steer_meta";

/// <asm-generic/errno-base.h>.
const EPERM: i32 = 1;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Why the program could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The process lacks the capabilities.
    #[error("loading an XDP program needs root, or CAP_BPF and CAP_NET_ADMIN")]
    NotPrivileged,
    /// The process, or the machine, has no file descriptor left.
    #[error(
        "loading an XDP program takes more file descriptors than there are left; raise the limit of open files (`ulimit -n`)"
    )]
    NoDescriptors,
    /// libbpf or the kernel's verifier refused it.
    #[error(
        "the kernel did not take the XDP program, the verifier's reason is in the debug log: {0:#}"
    )]
    Refused(libbpf_rs::Error),
    /// The object holds no program of that name: a broken build.
    #[error("the compiled object has no program named {0}")]
    NoProgram(&'static str),
}

/// How many buffers the driver may spread a frame over; there is a program for either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// One: drivers take it in native mode up to an MTU of about 3500.
    One,
    /// As many as the frame needs. Linux has it since 5.18.
    Many,
}

impl Buffers {
    fn program(self) -> &'static str {
        match self {
            Self::One => "steer",
            Self::Many => "steer_frags",
        }
    }
}

/// What a program that is bound to an interface asks its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// The VLAN tags that it has taken off (Linux 6.8).
    Tags,
    /// These, and each frame's hash and time of arrival ([`RxMetadata`](crate::RxMetadata)).
    Metadata,
}

impl Asks {
    fn program(self, buffers: Buffers) -> &'static str {
        match (self, buffers) {
            (Self::Tags, Buffers::One) => BOUND,
            (Self::Tags, Buffers::Many) => "steer_bound_frg",
            (Self::Metadata, Buffers::One) => METADATA,
            (Self::Metadata, Buffers::Many) => "steer_meta_frg",
        }
    }

    fn object(self) -> &'static [u8] {
        match self {
            Self::Tags => BOUND_OBJECT,
            Self::Metadata => METADATA_OBJECT,
        }
    }
}

/// The program, loaded with fresh maps and attached to nothing yet.
#[derive(Debug)]
pub struct Steering {
    object: Object,
    program: &'static str,
}

impl Steering {
    /// Loads the program for such frames, with maps of its own.
    pub fn load(buffers: Buffers) -> Result<Self, LoadError> {
        Self::load_from(STEER_OBJECT, buffers.program(), |_program| ())
    }

    /// Loads the program that also asks the driver, which may not answer. It can be attached to
    /// this interface only, in native mode.
    pub fn load_bound(buffers: Buffers, asks: Asks, ifindex: u32) -> Result<Self, LoadError> {
        Self::load_from(asks.object(), asks.program(buffers), |program| {
            program.set_ifindex(ifindex);
            program.set_flags(BOUND_ONLY);
        })
    }

    fn load_from(
        object: &[u8],
        program: &'static str,
        prepare: impl Fn(&mut OpenProgramMut<'_>),
    ) -> Result<Self, LoadError> {
        libbpf_to_log();
        let mut object = ObjectBuilder::default()
            .open_memory(object)
            .map_err(refused)?;
        for mut other in object.progs_mut() {
            let wanted = other.name() == program;
            other.set_autoload(wanted);
            prepare(&mut other);
        }
        let object = object.load().map_err(refused)?;
        Ok(Self { object, program })
    }

    /// The loaded program, to attach it or to run it on a frame.
    pub fn program(&self) -> Result<ProgramMut<'_>, LoadError> {
        let mut programs = self.object.progs_mut();
        programs
            .find(|program| program.name() == self.program)
            .ok_or(LoadError::NoProgram(self.program))
    }

    /// The maps of this very program.
    pub fn maps(&self) -> Result<Maps, OpenMapsError> {
        Maps::of_object(&self.object)
    }
}

/// Whether the program with that id is one for one interface ([`Steering::load_bound`]).
pub fn is_bound(program_id: u32) -> Result<bool, OpenMapsError> {
    let name = program_name(program_id)?;
    Ok(name.is_some_and(|name| name.starts_with(BOUND) || name.starts_with(METADATA)))
}

/// Only the text of a libbpf-rs error distinguishes EPERM from EACCES, which is the verifier's.
fn refused(error: libbpf_rs::Error) -> LoadError {
    let text = format!("{error:#}");
    let is = |errno| text.contains(&io::Error::from_raw_os_error(errno).to_string());
    if is(EPERM) {
        LoadError::NotPrivileged
    } else if is(EMFILE) || is(ENFILE) {
        LoadError::NoDescriptors
    } else {
        LoadError::Refused(error)
    }
}

/// Sends what libbpf would print to standard error to the debug log instead.
///
/// libbpf has one such setting per process. Loading sets it; a caller of libbpf that loads nothing
/// calls this first.
pub fn libbpf_to_log() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let to_log = |_, message: String| log::debug!("{}", message.trim_end());
        set_print(Some((PrintLevel::Info, to_log)));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_refusal_is_not_a_missing_privilege() {
        let of_errno = |errno| refused(libbpf_rs::Error::from_raw_os_error(errno));
        assert!(matches!(of_errno(EPERM), LoadError::NotPrivileged));
        assert!(matches!(of_errno(13), LoadError::Refused(_))); // EACCES
    }

    #[test]
    fn process_without_descriptors_is_not_blamed_on_the_verifier() {
        for errno in [ENFILE, EMFILE] {
            let text = refused(libbpf_rs::Error::from_raw_os_error(errno)).to_string();
            assert!(
                text.contains("`ulimit -n`") && !text.contains("verifier"),
                "{text}"
            );
        }
    }
}

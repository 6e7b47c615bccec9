//! The XDP program on an interface.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, Xdp, XdpFlags};

use crate::impair::Rule;

const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/impair.bpf.o"));
const PROGRAM: &str = "impair";
const RULES: &str = "rules";
const DELAY_LINE: &str = "delay_line";
const FATES: &str = "fates";

/// Why a link could not be impaired.
#[derive(Debug, thiserror::Error)]
pub enum ImpairError {
    /// libbpf or the kernel refused; the program needs root.
    #[error("the kernel did not take the impairing program (it needs root): {0:#}")]
    Refused(#[from] libbpf_rs::Error),
    /// The object lacks a part: a broken build.
    #[error("the compiled object has no {0}")]
    Missing(&'static str),
    /// An interface's number is none.
    #[error("{0} is no number of an interface")]
    Interface(u32),
}

/// What became of the segments so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Gone on as if nothing were there.
    pub passed: u64,
    /// Lost.
    pub lost: u64,
    /// Diverted to the delay line.
    pub diverted: u64,
    /// Marked, and gone on.
    pub marked: u64,
}

/// The program, on one interface until it is dropped.
pub struct Impairment {
    object: Object,
    interface: Option<i32>,
}

impl Impairment {
    /// Loads the program with this rule; `delay_line` is the number of the interface that the delay
    /// line begins with.
    pub fn load(rule: &Rule, delay_line: u32) -> Result<Self, ImpairError> {
        let object = ObjectBuilder::default().open_memory(OBJECT)?.load()?;
        let this = Self {
            object,
            interface: None,
        };
        this.set_rule(rule)?;
        let key = 0_u32.to_ne_bytes();
        this.map(DELAY_LINE)?
            .update(&key, &delay_line.to_ne_bytes(), MapFlags::ANY)?;
        Ok(this)
    }

    /// The same, put on interface number `interface`: segments that come in there are impaired.
    pub fn attach(rule: &Rule, interface: u32, delay_line: u32) -> Result<Self, ImpairError> {
        let mut this = Self::load(rule, delay_line)?;
        let index = i32::try_from(interface).map_err(|_| ImpairError::Interface(interface))?;
        // In the kernel's stack, where the delay line need not be able to take frames as the driver
        // has them.
        let program = this.program()?;
        Xdp::new(program.as_fd())
            .attach(index, XdpFlags::SKB_MODE | XdpFlags::UPDATE_IF_NOEXIST)?;
        this.interface = Some(index);
        Ok(this)
    }

    /// Begins anew with another rule.
    pub fn set_rule(&self, rule: &Rule) -> Result<(), ImpairError> {
        let key = 0_u32.to_ne_bytes();
        self.map(RULES)?
            .update(&key, &rule.to_map_value(), MapFlags::ANY)?;
        Ok(())
    }

    /// The program, to run it on single frames.
    pub fn program(&self) -> Result<ProgramMut<'_>, ImpairError> {
        let mut programs = self.object.progs_mut();
        programs
            .find(|program| program.name() == PROGRAM)
            .ok_or(ImpairError::Missing("program"))
    }

    /// What became of the segments so far.
    pub fn fates(&self) -> Result<Fates, ImpairError> {
        let map = self.map(FATES)?;
        let count = |key: u32| -> Result<u64, ImpairError> {
            let value = map.lookup(&key.to_ne_bytes(), MapFlags::ANY)?;
            let bytes = value.and_then(|value| value.try_into().ok());
            Ok(u64::from_ne_bytes(
                bytes.ok_or(ImpairError::Missing("counter"))?,
            ))
        };
        Ok(Fates {
            passed: count(0)?,
            lost: count(1)?,
            diverted: count(2)?,
            marked: count(3)?,
        })
    }

    fn map(&self, name: &'static str) -> Result<impl MapCore, ImpairError> {
        self.object
            .maps()
            .find(|map| map.name() == name)
            .ok_or(ImpairError::Missing(name))
    }
}

impl Drop for Impairment {
    fn drop(&mut self) {
        let (Some(interface), Ok(program)) = (self.interface, self.program()) else {
            return;
        };
        // The thread that drops this may be in another namespace, where the number belongs to
        // another interface.
        let xdp = Xdp::new(program.as_fd());
        let ours = libbpf_rs::Program::id_from_fd(program.as_fd());
        let there = xdp.query_id(interface, XdpFlags::SKB_MODE);
        if let (Ok(ours), Ok(there)) = (ours, there)
            && ours == there
        {
            // It may go with its namespace meanwhile.
            let _ = xdp.detach(interface, XdpFlags::SKB_MODE);
        }
    }
}

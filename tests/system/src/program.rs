//! XDP programs on an interface, as `ip link` and the kernel's map show them, without xwarp's help.

use std::fmt;
use std::path::Path;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapHandle};
use serde_json::Value;

use crate::DEV;
use crate::hosts::Host;

/// The map of steered flows, as steer.bpf.c names it.
const FLOWS: &str = "xwarp_flows";

/// Where in the receive path a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's network stack.
    Generic,
}

impl Mode {
    /// The word of `ip link set dev DEV WORD ...` for it.
    fn ip_word(self) -> &'static str {
        match self {
            Self::Native => "xdp",
            Self::Generic => "xdpgeneric",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

/// An XDP program on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number.
    pub id: u32,
    /// Where it runs.
    pub mode: Mode,
}

impl Program {
    /// Flows in its map.
    pub fn flows(self) -> usize {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let program = ProgInfoIter::with_query_opts(options).find(|program| program.id == self.id);
        let maps = program.expect("an attached program").map_ids;
        let maps = maps
            .into_iter()
            .map(|id| MapHandle::from_map_id(id).expect("a map in use"));
        let flows = maps.into_iter().find(|map| map.name() == FLOWS);
        flows.expect("the map of flows").keys().count()
    }
}

impl Host {
    /// The XDP program of the host's interface, as `ip link` reports it.
    pub fn program(&self) -> Option<Program> {
        let listed = self.ip(&format!("-json link show dev {DEV}"));
        let links: Value = serde_json::from_str(&listed).expect("JSON");
        let xdp = links[0].get("xdp")?;
        let mode = match xdp["mode"].as_u64() {
            Some(1) => Mode::Native,
            Some(2) => Mode::Generic,
            _ => panic!("an XDP mode of another kind: {xdp}"),
        };
        let id = xdp["prog"]["id"]
            .as_u64()
            .and_then(|id| u32::try_from(id).ok());
        Some(Program {
            id: id.expect("a program's number"),
            mode,
        })
    }

    /// Attaches the first program of section `xdp` in a file, as an administrator does.
    pub fn ip_link_attach(&self, object: &Path, mode: Mode) -> Program {
        self.ip_link_attach_section(object, mode, "xdp")
    }

    /// Attaches the first program of such a section.
    pub fn ip_link_attach_section(&self, object: &Path, mode: Mode, section: &str) -> Program {
        let (word, file) = (mode.ip_word(), object.display());
        self.ip(&format!(
            "link set dev {DEV} {word} obj {file} sec {section}"
        ));
        let program = self.program().expect("ip link has attached it");
        assert_eq!(program.mode, mode);
        program
    }

    /// Detaches whatever is attached in this mode.
    pub fn ip_link_detach(&self, mode: Mode) {
        self.ip(&format!("link set dev {DEV} {} off", mode.ip_word()));
    }
}

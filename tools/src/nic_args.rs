//! Options of opening an interface: XDP mode, copies, capture.

use std::path::PathBuf;

use clap::Args;
use xwarp::config::{NicConfig, ZeroCopy};

use crate::interface::ModeArg;

/// How a command opens its interface.
#[derive(Args)]
pub(crate) struct NicArgs {
    /// Demand this XDP mode; without it, what is attached, or native before generic
    #[arg(long)]
    mode: Option<ModeArg>,
    /// Demand zero copy; without it, it is used where the driver has it
    #[arg(long)]
    zero_copy: bool,
    /// Copy frames between kernel and program, even if the driver has zero copy
    #[arg(long, conflicts_with = "zero_copy")]
    copy: bool,
    /// Write every frame to this pcapng file
    #[arg(long)]
    capture: Option<PathBuf>,
}

impl NicArgs {
    pub(crate) fn config(&self, region_bytes: usize) -> NicConfig {
        let zero_copy = match (self.zero_copy, self.copy) {
            (true, _) => ZeroCopy::Demand,
            (false, true) => ZeroCopy::Never,
            (false, false) => ZeroCopy::Try,
        };
        NicConfig::default()
            .mode(self.mode.map(Into::into))
            .zero_copy(zero_copy)
            .region_bytes(region_bytes)
            .capture(self.capture.clone())
    }
}

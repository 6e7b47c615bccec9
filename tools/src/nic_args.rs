//! Options for opening a device: the switch that has it; XDP mode, copies, capture.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum};
use xwarp::config::{NicConfig, Polling, Queues, TxChecksum, ZeroCopy};

use crate::device::Devices;
use crate::guard::{self, Change};
use crate::interface::ModeArg;

/// How a command opens its device.
#[derive(Args)]
pub(crate) struct NicArgs {
    /// Use the device of the software switch (`xwarp serve`) with this socket, and no interface; by
    /// default that of `XWARP_SERVICE`, if it is set
    #[arg(long, value_name = "SOCKET")]
    service: Option<PathBuf>,
    /// Require this XDP mode; by default the attached one is used, or native before generic
    #[arg(long)]
    mode: Option<ModeArg>,
    /// Require zero copy; by default it is used if the driver has it
    #[arg(long)]
    zero_copy: bool,
    /// Copy frames between kernel and program, even if the driver has zero copy
    #[arg(long, conflicts_with_all = ["zero_copy", "busy_poll"])]
    copy: bool,
    /// Serve this many receive queues, or those from A to B; by default all of the interface
    #[arg(long, value_name = "N|A-B", value_parser = parse_queues)]
    queues: Option<Queues>,
    /// Share the queues among at most this many engines with a thread each; by default as many as
    /// there are queues and processors
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    engines: Option<u16>,
    /// Leave checksums of sent segments to the NIC, on connections whose peer proves that the NIC
    /// computes them [default: auto]
    #[arg(long, value_enum)]
    tx_checksum: Option<TxChecksumArg>,
    #[command(flatten)]
    change: Change,
    /// Write every frame to this pcapng file
    #[arg(long)]
    capture: Option<PathBuf>,
}

/// Where connections try to leave checksums to the NIC.
#[derive(Clone, Copy, ValueEnum)]
enum TxChecksumArg {
    /// Where the NIC's driver reports the offload
    Auto,
    /// Nowhere
    Off,
    /// Whatever the driver reports
    Always,
    /// As with always, and the kernel computes them where it copies frames: to test the path
    InKernel,
}

impl From<TxChecksumArg> for TxChecksum {
    fn from(arg: TxChecksumArg) -> Self {
        match arg {
            TxChecksumArg::Auto => Self::Auto,
            TxChecksumArg::Off => Self::Off,
            TxChecksumArg::Always => Self::Always,
            TxChecksumArg::InKernel => Self::InKernel,
        }
    }
}

impl NicArgs {
    /// Where the device is. Fails if a switch has it, and an option is given that only an interface
    /// has.
    pub(crate) fn devices(&self) -> anyhow::Result<Devices> {
        let devices = Devices::asked(self.service.as_deref())?;
        if let (Devices::OfSwitch(_), Some(option)) = (&devices, self.of_interface()) {
            bail!(
                "{option} is for interfaces, and a software switch has the device: leave it out, or do without --service and XWARP_SERVICE"
            );
        }
        Ok(devices)
    }

    /// An option that only an interface has.
    fn of_interface(&self) -> Option<&'static str> {
        let each = [
            (self.mode.is_some(), "--mode"),
            (self.zero_copy, "--zero-copy"),
            (self.copy, "--copy"),
            (self.queues.is_some(), "--queues"),
            (self.engines.is_some(), "--engines"),
            (self.tx_checksum.is_some(), "--tx-checksum"),
        ];
        let given = each
            .into_iter()
            .find_map(|(is_given, it)| is_given.then_some(it));
        given.or_else(|| self.change.options().next())
    }

    /// Changes to the interface before it is opened.
    pub(crate) fn prepare(&self, dev: &str) -> anyhow::Result<()> {
        guard::begin(dev, self.change)
    }

    pub(crate) fn config(&self, region_bytes: usize) -> NicConfig {
        let zero_copy = match (self.zero_copy, self.copy) {
            (true, _) => ZeroCopy::Demand,
            (false, true) => ZeroCopy::Never,
            (false, false) => ZeroCopy::Try,
        };
        let polling = if self.change.busy_poll {
            Polling::Busy
        } else {
            Polling::Interrupts
        };
        NicConfig::default()
            .mode(self.mode.map(Into::into))
            .zero_copy(zero_copy)
            .queues(self.queues.unwrap_or(Queues::All))
            .engines(self.engines.map(usize::from))
            .polling(polling)
            .tx_checksum(self.tx_checksum.map_or(TxChecksum::Auto, Into::into))
            .region_bytes(region_bytes)
            .capture(self.capture.clone())
    }
}

/// `4` are the first four queues, `2-5` four others.
fn parse_queues(text: &str) -> Result<Queues, String> {
    if text == "all" {
        return Ok(Queues::All);
    }
    let number = |text: &str| text.parse::<u32>().ok();
    let range = match text.split_once('-') {
        None => number(text).map(|count| (0, count)),
        Some((first, last)) => number(first).zip(number(last)).and_then(|(first, last)| {
            let count = last.checked_sub(first)?.checked_add(1)?;
            Some((first, count))
        }),
    };
    let some = range.filter(|(_, count)| *count > 0);
    some.map(|(first, count)| Queues::Some { first, count })
        .ok_or_else(|| {
            "give how many receive queues are to be served (4), or the first and the last one (2-5)"
                .to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_a_number_or_a_range() {
        let some = |first, count| Ok(Queues::Some { first, count });
        assert_eq!(parse_queues("all"), Ok(Queues::All));
        assert_eq!(parse_queues("4"), some(0, 4));
        assert_eq!(parse_queues("2-5"), some(2, 4));
        assert_eq!(parse_queues("3-3"), some(3, 1));
        for wrong in ["", "0", "-1", "5-2", "1-", "a", "0-4294967295"] {
            assert!(parse_queues(wrong).is_err(), "{wrong}");
        }
    }
}

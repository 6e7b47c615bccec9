//! Preferred busy polling: the engine polls the NIC's driver, which takes no interrupts in the
//! meantime.
//!
//! The sockets request it, and it ends with them. The device has to defer its interrupts, by two
//! settings that xwarp restores.

use std::fmt;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::net::{self, Interface};

/// Settings of a device, and their values while it is polled. Two polls may find nothing before
/// interrupts are on again. If no thread polls for 200 us, the kernel does: enough for the longest
/// step of an engine.
const DEFERRAL: [(&str, &str); 2] = [
    ("napi_defer_hard_irqs", "2"),
    ("gro_flush_timeout", "200000"),
];

/// How an engine is notified of received frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Polling {
    /// Interrupts of the NIC make its driver fill the rings.
    #[default]
    Interrupts,
    /// The engine polls the driver as long as it does not sleep (preferred busy polling). If that
    /// is not possible, opening the interface fails.
    Busy,
}

impl fmt::Display for Polling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interrupts => "interrupts",
            Self::Busy => "busy polling",
        })
    }
}

/// Why an interface cannot be polled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BusyPollError {
    /// One of the directions is driven by interrupts.
    #[error(
        "busy polling needs a NAPI instance that receives and sends, and queue {queue} of {interface} has none that the kernel names: do without, or try another number of queues (`ethtool -L {interface}`)"
    )]
    NoSharedNapi {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
    },
    /// Frames are copied.
    #[error(
        "busy polling needs zero copy, which {interface} does not have here: do without either"
    )]
    NoZeroCopy {
        /// The interface.
        interface: String,
    },
    /// The kernel refused.
    #[error("the kernel would not have {interface} polled: {reason}; do without busy polling")]
    Refused {
        /// The interface.
        interface: String,
        /// Error from the kernel.
        reason: String,
    },
}

impl BusyPollError {
    pub(crate) fn refused(interface: &str, error: &dyn std::error::Error) -> Self {
        Self::Refused {
            interface: interface.to_owned(),
            reason: super::error_chain(error),
        }
    }
}

/// Refuses an interface whose queues cannot be polled: then frames would arrive or leave by
/// interrupts that no engine waits for.
pub(crate) fn check(interface: &Interface, mut queues: Range<u32>) -> Result<(), BusyPollError> {
    let shared = net::queues_of_one_napi(interface)
        .map_err(|error| BusyPollError::refused(&interface.name, &error))?;
    match queues.find(|queue| !shared.contains(queue)) {
        None => Ok(()),
        Some(queue) => Err(BusyPollError::NoSharedNapi {
            interface: interface.name.clone(),
            queue,
        }),
    }
}

/// Interrupt deferral of a device, with the former settings to restore.
#[derive(Debug)]
pub struct InterruptDeferral {
    settings: Vec<Setting>,
}

#[derive(Debug)]
struct Setting {
    file: PathBuf,
    before: String,
    ours: &'static str,
}

impl InterruptDeferral {
    /// Reads the settings, and changes nothing yet.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: sysfs does not show the interface, or the kernel is older than Linux 5.8.
    pub fn of(interface: &Interface) -> io::Result<Self> {
        let directory = net::directory(interface).ok_or_else(|| {
            let why = "/sys shows no such interface of this network namespace";
            io::Error::new(io::ErrorKind::NotFound, why)
        })?;
        Self::at(directory)
    }

    /// For a device that has no such settings.
    #[cfg(test)]
    pub(crate) fn of_nothing() -> Self {
        Self {
            settings: Vec::new(),
        }
    }

    fn at(directory: impl Into<PathBuf>) -> io::Result<Self> {
        let directory = directory.into();
        let setting = |(name, ours)| {
            let file = directory.join(name);
            let before = value(&file)?;
            Ok(Setting { file, before, ours })
        };
        let settings = DEFERRAL.into_iter().map(setting);
        Ok(Self {
            settings: settings.collect::<io::Result<_>>()?,
        })
    }

    /// Makes the device defer its interrupts, until the value is dropped.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses.
    pub fn begin(&self) -> io::Result<()> {
        let set = |setting: &Setting| fs::write(&setting.file, setting.ours);
        self.settings.iter().try_for_each(set)
    }

    /// Restores the former settings. Values that another process has changed since stay.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: the kernel refuses. All settings are tried.
    pub fn put_back(&self) -> io::Result<()> {
        let each = self.settings.iter().map(Setting::put_back);
        // All of them, before the first error is returned.
        each.collect::<Vec<_>>().into_iter().collect()
    }
}

impl Setting {
    fn put_back(&self) -> io::Result<()> {
        match value(&self.file) {
            Ok(now) if now == self.ours && now != self.before => {
                fs::write(&self.file, &self.before)
            }
            Ok(_) => Ok(()),
            // The interface has gone, and its settings with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Drop for InterruptDeferral {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            let files: Vec<_> = (self.settings.iter())
                .map(|setting| format!("{} (was {})", setting.file.display(), setting.before))
                .collect();
            log::error!(
                "interrupts stay deferred: {error}; write the former values back: {}",
                files.join(", ")
            );
        }
    }
}

fn value(file: &Path) -> io::Result<String> {
    Ok(fs::read_to_string(file)?.trim().to_owned())
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A directory with both files, as sysfs has one for each interface. It goes with the value.
    struct Device(PathBuf);

    impl Device {
        fn new(name: &str, values: [&str; 2]) -> Self {
            let own = format!("xwarp-busy-poll-{}-{name}", std::process::id());
            let device = Self(std::env::temp_dir().join(own));
            fs::create_dir(&device.0).unwrap();
            device.set(values);
            device
        }

        fn set(&self, values: [&str; 2]) {
            for ((name, _), value) in DEFERRAL.into_iter().zip(values) {
                fs::write(self.0.join(name), format!("{value}\n")).unwrap();
            }
        }

        fn values(&self) -> [String; 2] {
            DEFERRAL.map(|(name, _)| value(&self.0.join(name)).unwrap())
        }

        fn deferral(&self) -> InterruptDeferral {
            InterruptDeferral::at(&self.0).unwrap()
        }
    }

    impl Drop for Device {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn settings_are_in_force_until_the_value_is_dropped() {
        let device = Device::new("force", ["0", "20000"]);
        let deferral = device.deferral();
        assert_eq!(device.values(), ["0", "20000"], "it only looks");
        deferral.begin().unwrap();
        assert_eq!(device.values(), ["2", "200000"]);
        drop(deferral);
        assert_eq!(device.values(), ["0", "20000"]);
    }

    /// As the guard of a process does, which only looks at first.
    #[test]
    fn whoever_looked_before_puts_back_what_a_killed_process_left() {
        let device = Device::new("killed", ["0", "0"]);
        let guard = device.deferral();
        let killed = device.deferral();
        killed.begin().unwrap();
        std::mem::forget(killed);
        drop(guard);
        assert_eq!(device.values(), ["0", "0"]);
    }

    #[test]
    fn what_others_set_meanwhile_stays() {
        let device = Device::new("others", ["0", "0"]);
        let deferral = device.deferral();
        deferral.begin().unwrap();
        device.set(["2", "50000"]);
        drop(deferral);
        assert_eq!(device.values(), ["0", "50000"]);
    }

    #[test]
    fn second_that_polls_leaves_to_the_first_what_is_put_back() {
        let device = Device::new("second", ["1", "0"]);
        let first = device.deferral();
        first.begin().unwrap();
        let second = device.deferral();
        second.begin().unwrap();
        drop(second);
        assert_eq!(device.values(), ["2", "200000"], "the first still polls");
        drop(first);
        assert_eq!(device.values(), ["1", "0"]);
    }

    #[test]
    fn setting_that_cannot_be_written_is_told_and_the_other_one_put_back() {
        let device = Device::new("refused", ["0", "0"]);
        let deferral = device.deferral();
        let second = device.0.join(DEFERRAL[1].0);
        fs::remove_file(&second).unwrap();
        fs::create_dir(&second).unwrap();
        assert!(deferral.begin().is_err());
        assert!(deferral.put_back().is_err());
        let first = value(&device.0.join(DEFERRAL[0].0)).unwrap();
        assert_eq!(first, "0");
    }

    #[test]
    fn device_that_has_gone_needs_nothing() {
        let device = Device::new("gone", ["0", "0"]);
        let deferral = device.deferral();
        deferral.begin().unwrap();
        for (name, _) in DEFERRAL {
            fs::remove_file(device.0.join(name)).unwrap();
        }
        deferral.put_back().unwrap();
    }

    #[test]
    fn kernel_without_the_settings_is_told() {
        let device = Device::new("old", ["0", "0"]);
        fs::remove_file(device.0.join(DEFERRAL[0].0)).unwrap();
        let error = InterruptDeferral::at(&device.0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}

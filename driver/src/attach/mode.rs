//! XDP mode: where in the receive path the program runs.

use std::fmt;

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, before the kernel makes a socket buffer of the frame.
    Native,
    /// In the kernel's generic receive path, with any driver.
    Generic,
}

impl XdpMode {
    /// The word in `ip link set dev DEV <word> off`: plain `xdp off` leaves a generic one there.
    pub(super) fn ip_link_word(self) -> &'static str {
        match self {
            Self::Native => "xdp",
            Self::Generic => "xdpgeneric",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Native => "native",
            Self::Generic => "generic",
        })
    }
}

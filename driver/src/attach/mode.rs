//! XDP mode: where in the receive path the program runs.

use std::fmt;

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum XdpMode {
    /// In the driver, before the kernel allocates a socket buffer for the frame.
    Native,
    /// In the kernel's generic receive path, with any driver.
    Generic,
}

impl XdpMode {
    /// The word in `ip link set dev DEV <word> off`: plain `xdp off` does not detach a generic
    /// program.
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

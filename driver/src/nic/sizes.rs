//! Sizes of a queue's rings, and number of its frames.
//!
//! With zero copy the driver's receive ring holds xwarp's chunks: in addition to the usual 320 it
//! gets one chunk for each of its ring's entries, 8192 at most. Otherwise the fill ring would be
//! empty whenever the driver has filled its ring. In copy mode more chunks would only waste cache
//! (`xdp/depth.rs`).

use crate::net::DriverRings;
use crate::xdp::LENT_LEAST;

/// Maximum number of entries of a driver's receive ring to fill: 32 MB per queue. A larger ring is
/// only partly filled.
const POSTED_MOST: u32 = 8192;
/// Chunks that the kernel has at least beside those.
const LENT: u32 = 320;
const _: () = assert!(LENT as usize == LENT_LEAST, "one number in two types");
/// Connections may keep half of the chunks to receive into.
const RECEIVE_OF_LENT: u32 = 2;

/// How many entries and chunks a queue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Entries of each ring.
    pub(crate) ring: u32,
    /// Chunks to receive into.
    pub(crate) receive: u32,
    /// Chunks that the driver's receive ring takes in zero copy.
    pub(crate) posted: u32,
}

impl Sizes {
    /// `ring` entries and `receive` chunks to receive into. A driver with zero copy gets as many as
    /// fill its receive ring and leave the usual number beside.
    pub(crate) fn new(ring: u32, receive: u32, driver: Option<DriverRings>) -> Self {
        let posted = driver.map_or(0, |rings| rings.rx.now.min(POSTED_MOST));
        if posted == 0 {
            return Self {
                ring,
                receive,
                posted,
            };
        }
        let lent = posted + LENT;
        Self {
            ring: ring.max(lent.next_power_of_two()),
            receive: receive.max(lent * RECEIVE_OF_LENT),
            posted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Setting;

    fn sizes(rx: u32) -> (u32, u32, u32) {
        let rx = Setting { now: rx, max: 8192 };
        let driver = DriverRings {
            rx,
            ..DriverRings::default()
        };
        let Sizes {
            ring,
            receive,
            posted,
        } = Sizes::new(2048, 2048, Some(driver));
        (ring, receive, posted)
    }

    #[test]
    fn driver_without_zero_copy_changes_nothing() {
        let sizes = Sizes::new(64, 128, None);
        assert_eq!((sizes.ring, sizes.receive, sizes.posted), (64, 128, 0));
    }

    #[test]
    fn rings_of_usual_size_fit_into_what_there_is() {
        for rx in [0, 256, 512, 704] {
            assert_eq!(sizes(rx), (2048, 2048, rx));
        }
    }

    /// Also while connections keep all that they may.
    #[test]
    fn large_ring_is_filled_with_the_usual_number_beside() {
        for rx in [705, 1024, 2048, 4096, 8192] {
            let (ring, receive, posted) = sizes(rx);
            let lent = rx + LENT;
            assert!(ring >= lent && ring.is_power_of_two(), "{rx}: {ring}");
            assert!(receive / 2 >= lent, "{rx}: {receive}");
            assert_eq!(posted, rx);
        }
    }

    #[test]
    fn ring_without_measure_is_filled_in_part() {
        assert_eq!(sizes(u32::MAX), sizes(8192));
    }
}

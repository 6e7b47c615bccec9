//! Access rights and their valid combinations (verbs draft §7.4, figures 18 and 20).

use bitflags::bitflags;

bitflags! {
    /// Access rights of a region (verbs draft §7.4, figure 18). A remote right needs the local
    /// right of the same kind.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u8 {
        /// Sends and Writes may read the region.
        const LOCAL_READ = 1;
        /// Receives may write the region.
        const LOCAL_WRITE = 2;
        /// The peer may read the region.
        const REMOTE_READ = 4;
        /// The peer may write the region. This includes Responses to Reads of this side.
        const REMOTE_WRITE = 8;
        /// The peer may execute Atomic Operations on the region (RFC 7306 §5), which read and
        /// write: the right needs both local rights, but neither needs nor implies a remote one.
        const REMOTE_ATOMIC = 16;
        /// Memory windows may be bound to the region (verbs draft §7.3.2). The right needs and
        /// implies no remote right.
        const BIND_WINDOWS = 32;
    }
}

impl Access {
    /// Rights of the peer.
    pub(crate) const REMOTE: Self = Self::REMOTE_READ
        .union(Self::REMOTE_WRITE)
        .union(Self::REMOTE_ATOMIC);
    /// Rights of scatter/gather lists.
    pub(crate) const LOCAL: Self = Self::LOCAL_READ.union(Self::LOCAL_WRITE);

    /// Whether the rights allow writes: each remote right to write needs the local one.
    pub(crate) fn writes(self) -> bool {
        self.contains(Self::LOCAL_WRITE)
    }

    /// Figure 18: at least one local right, and the local right of each remote one; both local
    /// rights for atomics.
    pub(crate) fn suits_region(self) -> bool {
        self.intersects(Self::LOCAL) && self.contains(self.local_needed())
    }

    /// Figure 20: whether a window with these rights may be bound to a region with `region`'s. It
    /// has one or both of the draft's remote rights, whatever remote rights the region itself has.
    pub(crate) fn suits_window_on(self, region: Self) -> bool {
        let window = Self::REMOTE_READ | Self::REMOTE_WRITE;
        !self.is_empty() && window.contains(self) && region.contains(self.local_needed())
    }

    /// The local rights that the remote ones need.
    fn local_needed(self) -> Self {
        let needs = [
            (Self::REMOTE_READ, Self::LOCAL_READ),
            (Self::REMOTE_WRITE, Self::LOCAL_WRITE),
            (Self::REMOTE_ATOMIC, Self::LOCAL),
        ];
        let needed = needs.into_iter().filter(|(right, _)| self.contains(*right));
        needed.fold(Self::empty(), |all, (_, local)| all | local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(all: impl Iterator<Item = u8>) -> Vec<u8> {
        all.filter(|&bits| Access::from_bits_retain(bits).suits_region())
            .collect()
    }

    #[test]
    fn rights_follow_figure_18() {
        // LR=1 LW=2 RR=4 RW=8: R; W; RW; R+RR; RW+RR; W+RW; RW+RW; all.
        assert_eq!(allowed(0..16), [1, 2, 3, 5, 7, 10, 11, 15]);
    }

    #[test]
    fn atomics_need_both_local_rights_and_no_remote_one() {
        assert_eq!(allowed(16..32), [19, 23, 27, 31]);
    }

    #[test]
    fn windows_may_be_bound_to_any_region_if_it_says_so() {
        let without = allowed(0..32);
        let with: Vec<u8> = without.iter().map(|bits| bits | 32).collect();
        assert_eq!(allowed(32..64), with);
    }

    /// Rows: rights of the region: none, R, W, both. Columns: rights of the window: none, R, W,
    /// both.
    #[test]
    fn rights_of_windows_follow_figure_20() {
        let (r, w) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
        let regions = [
            Access::empty(),
            Access::LOCAL_READ,
            Access::LOCAL_WRITE,
            Access::LOCAL,
        ];
        let windows = [Access::empty(), r, w, r | w];
        let matrix = regions.map(|region| windows.map(|window| window.suits_window_on(region)));
        assert_eq!(
            matrix,
            [
                [false, false, false, false],
                [false, true, false, false],
                [false, false, true, false],
                [false, true, true, true],
            ]
        );
        for other in [
            Access::REMOTE_ATOMIC,
            Access::LOCAL_READ,
            Access::BIND_WINDOWS,
        ] {
            assert!(!(r | other).suits_window_on(Access::all()), "{other:?}");
        }
    }
}

//! Direction of a frame on a link.

/// Which way a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first end to the second.
    AToB,
    /// From the second end to the first.
    BToA,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::AToB, Self::BToA];
}

//! Counters of a switch.

/// Defines the counters with their names, in the order of the protocol.
macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Frames, by what became of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])+ pub $name: u64,)+
        }

        impl Counters {
            /// The names of all of them.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),+];

            /// Their values, in the order of the names.
            pub fn values(&self) -> [u64; Self::NAMES.len()] {
                let Self { $($name),+ } = *self;
                [$($name),+]
            }
        }

        impl From<[u64; Counters::NAMES.len()]> for Counters {
            fn from([$($name),+]: [u64; Self::NAMES.len()]) -> Self {
                Self { $($name),+ }
            }
        }
    };
}

counters! {
    /// Delivered to another client.
    delivered,
    /// The receiver had lent no memory.
    drop_no_room,
    /// No client has the destination.
    drop_no_port,
    /// From an address and port that the sender has not reserved.
    drop_spoofed,
    /// No whole TCP segment.
    drop_not_tcp,
    /// To the sender itself.
    drop_to_itself,
    /// Entries of a ring that named no frame.
    drop_no_frame,
    /// RSTs that the switch has sent.
    resets,
    /// RSTs that were withheld: too many in a second, or too soon after the start.
    resets_withheld,
}

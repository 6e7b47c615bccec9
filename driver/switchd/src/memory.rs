//! Memory that a client and the switch share, as far as the switch may ask it.

/// Bytes of a frame that the switch copies before it judges them: Ethernet, IPv6 without extension
/// headers or IPv4 with all its options, and TCP with all its options.
pub const HEAD: usize = 14 + 60 + 60;

/// The first bytes of a frame, copied.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    bytes: [u8; HEAD],
    /// How many of them there are.
    len: usize,
    /// Bytes of the whole frame.
    frame: usize,
}

impl Head {
    /// A copy of a frame's first bytes: `fill` writes them into a buffer as long as the frame, or
    /// of [`HEAD`] bytes.
    pub fn copied(frame: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let len = frame.min(HEAD);
        let mut bytes = [0; HEAD];
        fill(&mut bytes[..len]);
        Self { bytes, len, frame }
    }

    /// The bytes that were copied.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The same bytes, which the switch readdresses.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// Bytes of the whole frame.
    pub fn frame_len(&self) -> usize {
        self.frame
    }
}

/// A client has broken the rules of its rings, such as by a running number that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has broken the rules of its rings")]
pub struct Hostile;

/// What became of a frame for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The client has it.
    Delivered,
    /// The client has lent no memory that it fits into, and it is dropped.
    NoRoom,
}

/// A client's rings and frames. The switch asks nothing else of a client's memory. After
/// [`Hostile`], every further call that can fail does.
pub trait ClientMemory {
    /// A frame that the client sends, until [`complete`](Self::complete).
    type Sent: Copy;

    /// Takes the next frame that the client sends, with a copy of its first bytes. An entry that
    /// does not name a frame of the client's memory is skipped, and counted by
    /// [`refused`](Self::refused).
    ///
    /// # Errors
    ///
    /// [`Hostile`]: the ring is not as a client may leave it.
    fn take_sent(&mut self) -> Result<Option<(Self::Sent, Head)>, Hostile>;

    /// Entries of the ring that named no frame of the client's, since this was called last.
    fn refused(&mut self) -> u64;

    /// Gives the client all frames back that were taken.
    fn complete(&mut self);

    /// Delivers a frame of `head`, and of the bytes behind it of the frame that `from` sends.
    ///
    /// # Errors
    ///
    /// [`Hostile`]: the ring is not as a client may leave it.
    fn deliver(
        &mut self,
        head: &Head,
        from: Option<(&Self, Self::Sent)>,
    ) -> Result<Delivery, Hostile>;

    /// Shows the client what was delivered, and wakes it if it sleeps.
    fn publish(&mut self);

    /// The first bytes of every frame that the client has ever sent and not overwritten, in any
    /// order. The client may be dead.
    fn frames(&self) -> Vec<Head>;
}

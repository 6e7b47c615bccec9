//! Completions, as tests compare them.

use xwarp::{CompletionStatus, Opcode, WorkCompletion, WrId};

/// What a test expects of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The work request's name.
    pub wr_id: u64,
    /// Its kind.
    pub opcode: Opcode,
    /// Bytes of the message, or why it was not done.
    pub outcome: Result<u32, CompletionStatus>,
}

impl Done {
    /// A Write that was done.
    pub fn write(wr_id: u64, len: usize) -> Self {
        Self::success(wr_id, Opcode::Write, len)
    }

    /// A Send that was done.
    pub fn send(wr_id: u64, len: usize) -> Self {
        Self::success(wr_id, Opcode::Send, len)
    }

    /// A Read that was done.
    pub fn read(wr_id: u64, len: usize) -> Self {
        Self::success(wr_id, Opcode::Read, len)
    }

    /// Immediate Data that was sent.
    pub fn immediate(wr_id: u64) -> Self {
        Self::success(wr_id, Opcode::Immediate, 0)
    }

    /// An addition that was made.
    pub fn fetch_add(wr_id: u64) -> Self {
        Self::success(wr_id, Opcode::FetchAdd, 8)
    }

    /// A window that was bound.
    pub fn bind(wr_id: u64) -> Self {
        Self::success(wr_id, Opcode::Bind, 0)
    }

    /// An `STag` that was invalidated.
    pub fn invalidate(wr_id: u64) -> Self {
        Self::success(wr_id, Opcode::Invalidate, 0)
    }

    /// Memory that was registered by a work request.
    pub fn fast_register(wr_id: u64) -> Self {
        Self::success(wr_id, Opcode::FastRegister, 0)
    }

    /// A message of `len` bytes that was received.
    pub fn receive(wr_id: u64, len: usize) -> Self {
        Self::success(wr_id, Opcode::Receive, len)
    }

    /// Work that the end of the connection has overtaken.
    pub fn flushed(wr_id: u64, opcode: Opcode) -> Self {
        Self::failed(wr_id, opcode, CompletionStatus::Flushed)
    }

    /// Work that the peer has found an error in.
    pub fn refused(wr_id: u64, opcode: Opcode) -> Self {
        Self::failed(wr_id, opcode, CompletionStatus::RemoteTermination)
    }

    /// Work that failed.
    pub fn failed(wr_id: u64, opcode: Opcode, status: CompletionStatus) -> Self {
        Self {
            wr_id,
            opcode,
            outcome: Err(status),
        }
    }

    /// Work of any kind that was done.
    pub fn success(wr_id: u64, opcode: Opcode, len: usize) -> Self {
        Self {
            wr_id,
            opcode,
            outcome: Ok(u32::try_from(len).unwrap()),
        }
    }
}

impl From<WorkCompletion> for Done {
    fn from(completion: WorkCompletion) -> Self {
        let WrId(wr_id) = completion.wr_id;
        Self {
            wr_id,
            opcode: completion.opcode,
            outcome: match completion.status {
                CompletionStatus::Success => Ok(completion.byte_len),
                status => Err(status),
            },
        }
    }
}

//! Connections in streaming mode for tasks.

use std::io;

use xwarp_rnic::model::{StreamError, StreamState};

use super::Async;
use crate::cm::streaming::LlpStream;
use crate::error::WaitError;

impl LlpStream {
    /// Registers the stream with the runtime. Takes a file descriptor, and one more with an inline
    /// engine.
    ///
    /// # Errors
    ///
    /// [`io::Error`]: no file descriptor is left.
    pub fn into_async(self) -> io::Result<Async<Self>> {
        Async::new(self, Self::control)
    }
}

impl Async<LlpStream> {
    /// Waits until the connection is established. Cancel-safe.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub async fn established(&self) -> Result<(), StreamError> {
        let look = || match self.object.state()? {
            StreamState::Connecting => Ok(None),
            StreamState::Established | StreamState::PeerClosed => Ok(Some(())),
            StreamState::Gone => Err(StreamError::Gone),
        };
        self.waiter.until_or(look, refused).await
    }

    /// Copies received bytes into `into`, and waits until there are some. Returns their number: 0
    /// if `into` is empty.
    ///
    /// Cancel-safe: bytes that were not returned wait for the next call.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::PeerClosed`]: the peer has closed, and all that it sent has been read.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, StreamError> {
        let stream = &mut self.object;
        let look = || {
            let len = stream.read(into)?;
            Ok((len > 0 || into.is_empty()).then_some(len))
        };
        self.waiter.until_or(look, refused).await
    }

    /// Sends as many of `bytes` as TCP accepts, and waits until TCP accepts some. Returns their
    /// number: 0 if `bytes` is empty.
    ///
    /// Cancel-safe: bytes were sent only if it returns.
    ///
    /// # Errors
    ///
    /// - [`StreamError::Gone`]: the connection has ended, or belongs to a queue pair.
    /// - [`StreamError::System`]: the kernel refuses the sleep.
    /// - [`StreamError::Unavailable`]: the RNIC was closed, or its handler made the call.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        let stream = &mut self.object;
        let look = || {
            let len = stream.write(bytes)?;
            Ok((len > 0 || bytes.is_empty()).then_some(len))
        };
        self.waiter.until_or(look, refused).await
    }
}

fn refused(error: WaitError) -> StreamError {
    match error {
        WaitError::Unavailable(why) => why.into(),
        WaitError::System(error) => StreamError::System(error.kind()),
    }
}

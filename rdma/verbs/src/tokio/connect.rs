//! Connections being made, as futures.

use std::future::{Future, IntoFuture};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;

use xwarp_rnic::model::ConnectError;

use super::waiter::Waiter;
use crate::cm::attempt::no_descriptor;
use crate::cm::connecting::Connecting;
use crate::cm::private_data::PrivateData;
use crate::cm::streaming::{ConnectingStream, LlpStream};
use crate::error::WaitError;
use crate::runtime::control::Control;

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl IntoFuture for Connecting {
    type Output = Result<PrivateData, ConnectError>;
    type IntoFuture = BoxFuture<Self::Output>;

    /// Awaits the result: the private data of the peer's answer. Dropping the future cancels the
    /// attempt, as dropping this handle does.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finished(self, Self::control, Self::try_finish))
    }
}

impl IntoFuture for ConnectingStream {
    type Output = Result<LlpStream, ConnectError>;
    type IntoFuture = BoxFuture<Self::Output>;

    /// Awaits the path to the peer, and returns a stream that TCP is connecting. Dropping the
    /// future cancels the attempt, as dropping this handle does.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(finished(self, Self::control, Self::try_finish))
    }
}

/// Awaits the outcome of an attempt.
async fn finished<A: AsFd, T>(
    mut attempt: A,
    control: impl FnOnce(&A) -> &Arc<Control>,
    mut try_finish: impl FnMut(&mut A) -> Option<Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let waiter = Waiter::new(&attempt, control(&attempt)).map_err(no_descriptor)?;
    let look = || try_finish(&mut attempt).transpose();
    waiter.until_or(look, connect_error).await
}

fn connect_error(error: WaitError) -> ConnectError {
    match error {
        WaitError::Unavailable(why) => why.into(),
        WaitError::System(error) => no_descriptor(error),
    }
}

//! Errors of xwarp as error numbers.

use std::error::Error;
use std::iter;

use nix::errno::Errno;
use xwarp::error::{
    AttachError, CreateError, DeallocateError, DestroyError, ModifyError, ModifySrqError, NicError,
    OpenError, OpenQueueError, PostError, RawPartsError, RegisterError, ResizeError,
    RnicUnavailable, UmemError,
};

/// An error with an error number of C.
pub(super) trait Numbered {
    fn errno(&self) -> Errno;
}

impl Numbered for RnicUnavailable {
    fn errno(&self) -> Errno {
        match self {
            Self::InHandler => Errno::EDEADLK,
            _ => Errno::EIO,
        }
    }
}

impl Numbered for CreateError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            // Sizes were checked before, so there are as many objects as there can be.
            Self::Capability(_) | Self::Memory(_) | Self::Handler(_) => Errno::ENOMEM,
            Self::System(error) => system(error),
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for DestroyError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            _ => Errno::EBUSY,
        }
    }
}

impl Numbered for DeallocateError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::WindowsBound => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for RegisterError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::WindowsBound => Errno::EBUSY,
            Self::Full(_) | Self::Memory(_) | Self::TooManyStags => Errno::ENOMEM,
            Self::NoRandomness => Errno::EAGAIN,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for RawPartsError {
    fn errno(&self) -> Errno {
        match self {
            Self::ReadOnly { .. } | Self::NotAccessible { .. } => Errno::EACCES,
            Self::Refused { errno, .. } => Errno::from_raw(*errno),
            _ => Errno::EFAULT,
        }
    }
}

impl Numbered for ResizeError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::Memory(_) => Errno::ENOMEM,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for ModifySrqError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::Resize(error) => error.errno(),
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for ModifyError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::Memory(_) => Errno::ENOMEM,
            Self::Connecting => Errno::EBUSY,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for PostError {
    fn errno(&self) -> Errno {
        match self {
            Self::Unavailable(error) => error.errno(),
            Self::TooManyWorkRequests(_) => Errno::ENOMEM,
            Self::ExtensionsDisabled | Self::SendImmediatesDisabled => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}

impl Numbered for OpenError {
    fn errno(&self) -> Errno {
        match self {
            Self::System(error) => system(error),
            Self::Nic(error) => error.errno(),
            Self::Switch(_) => Errno::ENODEV,
            _ => Errno::EIO,
        }
    }
}

impl Numbered for NicError {
    fn errno(&self) -> Errno {
        match self {
            Self::Interface(_) | Self::Loopback(_) | Self::NoEthernet(_) => Errno::ENODEV,
            Self::Down(_) => Errno::ENETDOWN,
            Self::InUse(_)
            | Self::Served(_)
            | Self::Queue(OpenQueueError::Busy { .. })
            | Self::Attach(
                AttachError::Foreign { .. }
                | AttachError::Taken(_)
                | AttachError::Beneath(_)
                | AttachError::HeldByProcess(..),
            ) => Errno::EBUSY,
            Self::Attach(AttachError::NotPrivileged)
            | Self::Queue(OpenQueueError::NotPermitted { .. }) => Errno::EPERM,
            Self::NoSuchQueues(_) => Errno::EINVAL,
            Self::Descriptors(error) => system(error),
            Self::Umem(UmemError::Register { .. }) => Errno::ENOMEM,
            _ => Errno::EIO,
        }
    }
}

/// An error and its causes, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let causes = iter::successors(error.source(), |&error| error.source());
    let causes = causes.map(|cause| format!(": {cause}"));
    error.to_string() + &causes.collect::<String>()
}

fn system(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

//! Link of a device: news about it, and the events that they become.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};

use crate::backend::{EventTarget, Happening};
use crate::devices::{Devices, LinkWatch};
use crate::entry::{Result, lock};

/// A watch on a device's link, which reports changes.
pub(super) struct Link {
    watch: Box<dyn LinkWatch>,
    name: String,
    was_up: Mutex<bool>,
    device: Arc<dyn EventTarget>,
}

impl Link {
    /// Watches the link of the device `name` from now on. Its changes are events of `device`.
    pub(super) fn watch(
        devices: &dyn Devices,
        name: &str,
        device: Arc<dyn EventTarget>,
    ) -> Result<Self> {
        let watch = devices.watch(name)?;
        let is_up = watch.look()?;
        Ok(Self {
            watch,
            name: name.to_owned(),
            was_up: Mutex::new(is_up),
            device,
        })
    }

    /// Takes the waiting news. Reports a change of the link as an event of the device.
    pub(super) fn look(&self) {
        match self.watch.look() {
            Ok(is_up) => self.report(is_up),
            Err(errno) => log::warn!("cannot tell whether {} is up: {errno}", self.name),
        }
    }

    fn report(&self, is_up: bool) {
        let was_up = std::mem::replace(&mut *lock(&self.was_up), is_up);
        if was_up != is_up {
            let happening = if is_up {
                Happening::PortActive
            } else {
                Happening::PortError
            };
            self.device.notify(happening);
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::fixed::Fixed;

    #[derive(Default)]
    struct Noted(Mutex<Vec<Happening>>);

    impl EventTarget for Noted {
        fn notify(&self, happening: Happening) {
            lock(&self.0).push(happening);
        }
    }

    #[test]
    fn change_is_reported_once() {
        let devices = Fixed::new(&[], &[]);
        let noted = Arc::new(Noted::default());
        let device: Arc<dyn EventTarget> = Arc::<Noted>::clone(&noted);
        let link = Link::watch(&devices, Fixed::NAME, device).expect("a descriptor");
        for is_up in [true, false, false, true, true] {
            devices.set_link(is_up);
            link.look();
        }
        let reported = [Happening::PortError, Happening::PortActive];
        assert_eq!(*lock(&noted.0), reported);
    }
}

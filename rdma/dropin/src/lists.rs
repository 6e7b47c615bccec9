//! Lists of handles as C has them: an array that ends in a null pointer, and that the program
//! frees.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::entry::{Result, always, lock, sets};

/// The lists of one kind that programs have, by their addresses.
pub(crate) struct Lists<T>(Mutex<BTreeMap<usize, Box<[AtomicPtr<T>]>>>);

impl<T> Lists<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Gives a program a list of the handles that `verb` finds, and writes their number into
    /// `number`. Sets errno.
    pub(crate) fn publish(
        &self,
        number: Option<&mut c_int>,
        verb: impl FnOnce() -> Result<Vec<*mut T>>,
    ) -> *mut *mut T {
        let mut found = 0;
        let list = sets(|| {
            let handles = verb()?;
            found = c_int::try_from(handles.len()).unwrap_or(c_int::MAX);
            let handles = handles.into_iter().chain([ptr::null_mut()]);
            let mut list: Box<[_]> = handles.map(AtomicPtr::new).collect();
            let start = list.as_mut_ptr().cast::<*mut T>();
            lock(&self.0).insert(start.addr(), list);
            GIVEN.fetch_add(1, Ordering::Relaxed);
            Ok(start)
        });
        if let Some(number) = number {
            *number = found;
        }
        list
    }

    /// Frees a list, if the address is that of one.
    pub(crate) fn take_back(&self, list: *mut *mut T) {
        always((), || {
            if lock(&self.0).remove(&list.addr()).is_some() {
                GIVEN.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
}

/// Lists that programs have not freed yet.
static GIVEN: AtomicUsize = AtomicUsize::new(0);

/// Lists of devices that programs have not freed.
pub(crate) fn never_freed() -> usize {
    GIVEN.load(Ordering::Relaxed)
}

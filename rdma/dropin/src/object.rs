//! Objects as C holds them: a struct that programs read, followed by the library's part. //! A
//! handle of C is the address of that struct. A table has all live objects by their address and
//! kind, so that null pointers, wrong handles and handles of destroyed objects are detected. The
//! data path does not look them up: it reads the object's tag. So that the tag of a destroyed
//! object can be read, the memory of the last [`KEPT`] destroyed objects is kept. The use of a
//! handle that was destroyed earlier is undefined, as with any library.
//!
//! A lookup on the data path would cost a lock that all threads share. Tags alone would not do: the
//! memory behind a handle of another kind may be shorter.

use std::any::Any;
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};

use nix::errno::Errno;
use rustc_hash::FxHashMap;

use crate::entry::{Result, lock};

/// Destroyed objects whose memory is kept.
const KEPT: usize = 256;
/// Tag of a destroyed object.
const DESTROYED: u32 = 0xdead;

/// A kind of object: the library's part of it.
pub(crate) trait Kind: Any + Send + Sync {
    /// The struct of C.
    type Abi;
    /// The struct whose address is the program's handle: [`Abi`](Self::Abi), or a part of it.
    type C;
    /// The offset of that part.
    const OFFSET: usize = 0;
    /// Its name in the manual pages.
    const NAME: &'static str;
    /// Descriptors that the object keeps until it is destroyed, and that the program may see.
    const DESCRIPTORS: usize = 0;
    /// The tag that the data path checks.
    const TAG: u32;
}

/// An object. The struct of C comes first.
#[repr(C)]
pub(crate) struct Object<K: Kind> {
    abi: UnsafeCell<K::Abi>,
    tag: AtomicU32,
    body: K,
}

// SAFETY: the struct of C is shared with the program, which may touch it from any thread as its
// manual allows. We look at it for a few instructions at a time, and keep no reference to it.
unsafe impl<K: Kind> Send for Object<K> {}
// SAFETY: as above.
unsafe impl<K: Kind> Sync for Object<K> {}

type Table = FxHashMap<usize, Living>;

/// A live object.
struct Living {
    object: Arc<dyn Any + Send + Sync>,
    name: &'static str,
    descriptors: usize,
    /// The library made the object for itself, and does not destroy it.
    is_of_library: bool,
}

static LIVING: LazyLock<RwLock<Table>> = LazyLock::new(RwLock::default);
static BURIED: Mutex<VecDeque<Arc<dyn Any + Send + Sync>>> = Mutex::new(VecDeque::new());

impl<K: Kind> Object<K> {
    /// Makes an object without a handle yet.
    pub(crate) fn new(abi: K::Abi, body: K) -> Arc<Self> {
        Arc::new(Self {
            abi: UnsafeCell::new(abi),
            tag: AtomicU32::new(K::TAG),
            body,
        })
    }

    /// Enters the object into the table: from now on its handle is valid.
    pub(crate) fn publish(self: Arc<Self>) -> *mut K::C {
        let handle = Self::handle(&self);
        let mut living = LIVING.write().unwrap_or_else(PoisonError::into_inner);
        let entry = Living {
            object: self,
            name: K::NAME,
            descriptors: K::DESCRIPTORS,
            is_of_library: false,
        };
        living.insert(handle.addr(), entry);
        handle
    }

    fn address(&self) -> usize {
        self.abi.get().addr() + K::OFFSET
    }

    /// Marks the object as the library's own, which no program is asked to destroy.
    pub(crate) fn keep(&self) {
        let mut living = LIVING.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = living.get_mut(&self.address()) {
            entry.is_of_library = true;
        }
    }

    /// The handle that programs have.
    pub(crate) fn handle(this: &Arc<Self>) -> *mut K::C {
        let start = Arc::as_ptr(this).cast_mut();
        start.wrapping_byte_add(K::OFFSET).cast()
    }

    /// The struct of C.
    pub(crate) fn abi(&self) -> *mut K::Abi {
        self.abi.get()
    }

    /// Reads or changes the struct of C, where the manual pages say that the library does.
    #[inline]
    pub(crate) fn with_abi<R>(&self, change: impl FnOnce(&mut K::Abi) -> R) -> R {
        // SAFETY: the struct is ours, and `change` cannot keep the reference. By the manual pages,
        // the program leaves alone what we change.
        change(unsafe { &mut *self.abi.get() })
    }

    /// The library's part.
    #[inline]
    pub(crate) fn body(&self) -> &K {
        &self.body
    }

    /// The object with that handle.
    pub(crate) fn find(handle: *mut K::C) -> Result<Arc<Self>> {
        let living = LIVING.read().unwrap_or_else(PoisonError::into_inner);
        let found = living.get(&handle.addr()).ok_or(Errno::EINVAL)?;
        Arc::clone(&found.object)
            .downcast()
            .map_err(|_another_kind| Errno::EINVAL)
    }

    /// The object that had this handle, if it is one of the last that were destroyed.
    pub(crate) fn destroyed(handle: *mut K::C) -> Option<Arc<Self>> {
        let buried = lock(&BURIED);
        let mut latest_first = buried.iter().rev();
        latest_first.find_map(|object| {
            let object: Arc<Self> = Arc::clone(object).downcast().ok()?;
            (object.address() == handle.addr()).then_some(object)
        })
    }

    /// The object with that handle, for the data path: by its tag alone.
    ///
    /// # Safety
    ///
    /// The handle is null, or was given out by [`publish`](Self::publish) and its object is among
    /// the last [`KEPT`] that were destroyed.
    #[inline]
    pub(crate) unsafe fn living<'a>(handle: *mut K::C) -> Result<&'a Self> {
        if handle.is_null() {
            return Err(Errno::EINVAL);
        }
        let start = handle.wrapping_byte_sub(K::OFFSET).cast_const();
        // SAFETY: the caller vouches that the memory is an object's still, of which this is the
        // beginning.
        let object: &Self = unsafe { &*start.cast() };
        if object.tag.load(Ordering::Relaxed) == K::TAG {
            Ok(object)
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// Removes the object from the table: its handle is no longer valid. Of two threads that
    /// destroy an object, one succeeds.
    pub(crate) fn destroy(&self) -> Result<()> {
        let mut living = LIVING.write().unwrap_or_else(PoisonError::into_inner);
        let object = living.remove(&self.address()).ok_or(Errno::EINVAL)?.object;
        drop(living);
        self.tag.store(DESTROYED, Ordering::Relaxed);
        let mut buried = lock(&BURIED);
        buried.push_back(object);
        let oldest = (buried.len() > KEPT).then(|| buried.pop_front());
        drop(buried);
        drop(oldest);
        Ok(())
    }
}

/// The number in the next object's struct, which programs can read. No function takes it.
pub(crate) fn next_handle() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Objects that programs have made and not destroyed, by their names.
pub(crate) fn never_destroyed() -> BTreeMap<&'static str, usize> {
    let living = LIVING.read().unwrap_or_else(PoisonError::into_inner);
    let mut counts = BTreeMap::new();
    for entry in living.values().filter(|it| !it.is_of_library) {
        *counts.entry(entry.name).or_default() += 1;
    }
    counts
}

/// Descriptors of live objects.
pub(crate) fn descriptors() -> usize {
    let living = LIVING.read().unwrap_or_else(PoisonError::into_inner);
    living.values().map(|entry| entry.descriptors).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    struct Cat(u32);
    struct Dog;

    impl Kind for Cat {
        type Abi = [u64; 2];
        type C = u64;
        const OFFSET: usize = 8;
        const NAME: &'static str = "cat";
        const TAG: u32 = 1;
    }
    impl Kind for Dog {
        type Abi = u64;
        type C = u64;
        const NAME: &'static str = "dog";
        const TAG: u32 = 2;
    }

    #[test]
    fn handle_finds_its_object_and_no_other_kind() {
        let handle = Object::new([5, 6], Cat(7)).publish();
        // SAFETY: the handle is that of an object that lives.
        assert_eq!(unsafe { *handle }, 6);
        let cat = Object::<Cat>::find(handle).expect("it lives");
        assert_eq!(cat.body().0, 7);
        assert_eq!(Object::<Dog>::find(handle).err(), Some(Errno::EINVAL));
        assert_eq!(
            Object::<Cat>::find(ptr::null_mut()).err(),
            Some(Errno::EINVAL)
        );
        cat.destroy().expect("once");
    }

    #[test]
    fn destroyed_object_is_found_out() {
        let handle = Object::new(5, Dog).publish();
        let dog = Object::<Dog>::find(handle).expect("it lives");
        // SAFETY: it lives.
        assert!(unsafe { Object::<Dog>::living(handle) }.is_ok());
        dog.destroy().expect("once");
        assert_eq!(dog.destroy(), Err(Errno::EINVAL));
        drop(dog);
        assert_eq!(Object::<Dog>::find(handle).err(), Some(Errno::EINVAL));
        assert!(Object::<Dog>::destroyed(handle).is_some());
        assert!(Object::<Cat>::destroyed(handle).is_none());
        // SAFETY: it was the last one that was destroyed in this kind, or one of the last few.
        let stale = unsafe { Object::<Dog>::living(handle) };
        assert_eq!(stale.err(), Some(Errno::EINVAL));
        // SAFETY: null is allowed.
        assert!(unsafe { Object::<Dog>::living(ptr::null_mut()) }.is_err());
    }
}

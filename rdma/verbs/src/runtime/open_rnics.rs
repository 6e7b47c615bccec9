//! Open RNICs: all of the process, so that a test that has waited in vain can show their state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What shows its state.
pub(crate) trait Diagnosed: Send + Sync {
    /// What can be seen without waking an engine.
    fn diagnosis_without_asking(self: Arc<Self>) -> Vec<String>;

    /// State of the engines, as they report it, which wakes them.
    fn diagnosis(self: Arc<Self>) -> Vec<String>;
}

/// Every RNIC of the process, and some that are closed.
static RNICS: Mutex<Vec<Weak<dyn Diagnosed>>> = Mutex::new(Vec::new());

fn rnics() -> MutexGuard<'static, Vec<Weak<dyn Diagnosed>>> {
    RNICS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds an RNIC that is opened.
pub(crate) fn add(rnic: Weak<dyn Diagnosed>) {
    let mut all = rnics();
    all.retain(|rnic| rnic.strong_count() > 0);
    all.push(rnic);
}

/// Those that are open.
pub(crate) fn all() -> Vec<Arc<dyn Diagnosed>> {
    rnics().iter().filter_map(Weak::upgrade).collect()
}

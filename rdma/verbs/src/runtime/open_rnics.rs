//! Open RNICs of the process, so that a test that has timed out can print their state.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An object that reports its state for diagnosis.
pub(crate) trait Diagnosed: Send + Sync {
    /// State that can be read without waking an engine.
    fn diagnosis_without_asking(self: Arc<Self>) -> Vec<String>;

    /// State of the engines, as they report it. Reporting wakes them.
    fn diagnosis(self: Arc<Self>) -> Vec<String>;
}

/// All RNICs of the process. Closed ones may still be in the list.
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

/// The open RNICs.
pub(crate) fn all() -> Vec<Arc<dyn Diagnosed>> {
    rnics().iter().filter_map(Weak::upgrade).collect()
}

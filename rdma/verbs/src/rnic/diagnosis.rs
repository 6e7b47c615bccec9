//! Diagnosis: the state of all RNICs of a process and of their engines, for a test that has timed
//! out.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::Rnic;
use crate::runtime::control::Control;
use crate::runtime::open_rnics::{self, Diagnosed};

/// Time limit for an engine's answer. A live engine answers within a millisecond.
const PATIENCE: Duration = Duration::from_secs(2);

#[doc(hidden)]
impl Rnic {
    /// State of all RNICs of the process: engines with their queue pairs, connections, rings, sleep
    /// flags and counters, one a line.
    ///
    /// State that can be read without waking an engine comes first, as asking an engine wakes it.
    pub fn diagnosis_of_all() -> String {
        let all = open_rnics::all();
        let asleep = all
            .iter()
            .cloned()
            .flat_map(Diagnosed::diagnosis_without_asking);
        let mut lines: Vec<String> = asleep.collect();
        lines.extend(all.into_iter().flat_map(Diagnosed::diagnosis));
        lines.join("\n")
    }
}

impl Diagnosed for Control {
    fn diagnosis_without_asking(self: Arc<Self>) -> Vec<String> {
        let mut lines = vec![who_runs(&self)];
        let doorbells = self.shared_tables().doorbells().iter().enumerate();
        lines.extend(
            doorbells.map(|(engine, doorbell)| format!("  engine {engine} has {doorbell:?}")),
        );
        lines
    }

    fn diagnosis(self: Arc<Self>) -> Vec<String> {
        let engines = 0..self.shared_tables().engines();
        let each = engines.flat_map(|engine| diagnosis_of(&self, engine));
        let lines = each.map(|line| format!("  {line}"));
        let name = format!("{:?}:", self.id());
        [name].into_iter().chain(lines).collect()
    }
}

/// The threads that run the engines. For an engine without a thread, the threads that sleep on it.
fn who_runs(control: &Control) -> String {
    let (id, mode) = (control.id(), control.mode());
    let (closed, ended) = (control.is_closed(), control.ended());
    format!("{id:?}: {mode:?}, closed {closed}, ended {ended:?}")
}

/// State of an engine, as the engine reports it. If the engine does not answer, a line says so.
fn diagnosis_of(control: &Arc<Control>, engine: usize) -> Vec<String> {
    let (answer, reply) = mpsc::channel();
    let control = Arc::clone(control);
    thread::spawn(move || {
        let told = control.call_on(engine, |engine| engine.diagnosis());
        // The asking thread may have timed out.
        let _ = answer.send(told);
    });
    match reply.recv_timeout(PATIENCE) {
        Ok(Ok(lines)) => lines,
        Ok(Err(error)) => vec![format!("engine {engine}: {error}")],
        Err(_) => vec![format!("engine {engine} has not answered for {PATIENCE:?}")],
    }
}

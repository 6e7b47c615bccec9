//! Diagnosis: the state that explains why a test has waited in vain.

use std::fs;
use std::path::Path;

use crate::threads::state_of;

/// All RNICs of the process, its threads and the load of the machine.
pub fn diagnosis() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!(
        "{}\nthreads of this process:\n{}\nload {load}",
        rnics(),
        threads()
    )
}

#[cfg(feature = "rnic")]
fn rnics() -> String {
    xwarp::Rnic::diagnosis_of_all()
}

#[cfg(not(feature = "rnic"))]
fn rnics() -> String {
    String::new()
}

/// What each thread is called and does, where it sleeps in the kernel, and for how long it had to
/// wait for a processor.
fn threads() -> String {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else {
        return "  /proc is not there".to_owned();
    };
    let lines = tasks.flatten().map(|task| thread(&task.path()));
    lines.collect::<Vec<_>>().join("\n")
}

fn thread(task: &Path) -> String {
    let read = |file| fs::read_to_string(task.join(file)).unwrap_or_default();
    let (name, stat, sleeps_in, times) =
        (read("comm"), read("stat"), read("wchan"), read("schedstat"));
    let id = task.file_name().unwrap_or_default().display();
    format!(
        "  {id} {}: {} in {sleeps_in}, nanoseconds run, waited for a processor, and turns: {}",
        name.trim_end(),
        state_of(&stat),
        times.trim_end()
    )
}

//! State board: state that engines publish to other processes, in a map of the XDP program on their
//! interface.

use std::fs;
use std::io;

use xwarp_bpf::{Board, MapError, Shown};

/// The board could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub struct BoardError(#[from] MapError);

/// The board of an interface, as this process writes it.
#[derive(Debug)]
pub struct StateBoard {
    board: Board,
    process: Process,
    /// The number of each engine's first queue, which identifies its entry.
    queues: Vec<u32>,
}

impl StateBoard {
    /// Removes entries of killed processes, which stay with a permanent program.
    pub(crate) fn begin(board: &Board, queues: Vec<u32>) -> Result<Self, MapError> {
        for (queue, shown) in board.read()? {
            if !is_alive(&shown) {
                board.wipe(queue)?;
            }
        }
        Ok(Self {
            board: board.try_clone()?,
            process: Process::of("self").unwrap_or_default(),
            queues,
        })
    }

    /// The first queue of an engine; an invalid number if there is no such engine.
    fn queue_of(&self, engine: usize) -> u32 {
        self.queues.get(engine).copied().unwrap_or(u32::MAX)
    }

    /// Publishes the state of an engine: words whose meaning `key` identifies. It takes a system
    /// call.
    ///
    /// # Errors
    ///
    /// [`BoardError`]: there is no such engine, or the kernel refuses.
    pub fn show(&self, engine: usize, key: u64, words: Vec<u64>) -> Result<(), BoardError> {
        let shown = Shown {
            key,
            process: self.process.id,
            begun: self.process.begun,
            words,
        };
        Ok(self.board.show(self.queue_of(engine), &shown)?)
    }

    /// Removes the state of an engine.
    ///
    /// # Errors
    ///
    /// [`BoardError`]: there is no such engine, or the kernel refuses.
    pub fn wipe(&self, engine: usize) -> Result<(), BoardError> {
        Ok(self.board.wipe(self.queue_of(engine))?)
    }
}

/// The entries of a board whose processes exist. `held`: the program ends with the process that
/// holds it, so all of them do.
pub(crate) fn live_entries(board: &Board, held: bool) -> Result<Vec<(u32, Shown)>, MapError> {
    let mut entries = board.read()?;
    entries.retain(|(_, shown)| held || is_alive(shown));
    Ok(entries)
}

/// A process, distinguished from earlier ones with the same number.
#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    id: u32,
    /// Start time in ticks since boot.
    begun: u64,
}

impl Process {
    /// The process of this name in /proc.
    fn of(name: &str) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{name}/stat"))?;
        Self::parse(&stat).ok_or_else(|| io::Error::other("/proc/PID/stat has no time of start"))
    }

    /// The command is in brackets and may contain any bytes. The start time is field 22, which is
    /// the twentieth after the command.
    fn parse(stat: &str) -> Option<Self> {
        let (id, rest) = stat.split_once(' ')?;
        let (_, fields) = rest.rsplit_once(") ")?;
        Some(Self {
            id: id.parse().ok()?,
            begun: fields.split(' ').nth(19)?.parse().ok()?,
        })
    }
}

fn is_alive(shown: &Shown) -> bool {
    let now = Process::of(&shown.process.to_string());
    now.is_ok_and(|now| now.begun == shown.begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_start_is_found_behind_any_command() {
        let stat = "12 (a) b (c) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        let process = Process { id: 12, begun: 777 };
        assert_eq!(Process::parse(stat), Some(process));
        for cut in ["", "12", "12 (a", "12 (a) R 1", "x (a) R"] {
            assert_eq!(Process::parse(cut), None, "{cut}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs /proc")]
    fn process_is_alive_as_long_as_its_number_is_its_own() {
        let ours = Process::of("self").unwrap();
        assert_eq!(ours.id, std::process::id());
        let mut shown = Shown {
            key: 1,
            process: ours.id,
            begun: ours.begun,
            words: vec![],
        };
        assert!(is_alive(&shown));
        shown.begun += 1;
        assert!(!is_alive(&shown), "another process had the number");
    }
}

//! Status of an interface: its program, and the state that its engines publish.

use xwarp_bpf::{Counters, Maps, is_bound};

use super::board::live_entries;
use super::error::AttachError;
use super::interface::{Interface, name_of_program};
use super::kernel::{self, Running};
use super::mode::XdpMode;

/// XDP program of an interface.
#[derive(Debug)]
pub enum Status {
    /// No XDP program.
    NotAttached,
    /// xwarp's program.
    Ours {
        /// Mode in which it runs.
        mode: XdpMode,
        /// Its id.
        program_id: u32,
        /// Frames so far, by verdict.
        counters: Counters,
        /// Whether it ends with the process that attached it.
        held_by_link: bool,
        /// Whether it asks the driver for VLAN tags that were stripped before it runs. Few drivers
        /// report them.
        asks_for_tags: bool,
    },
    /// A foreign program.
    Foreign {
        /// Mode in which it runs.
        mode: XdpMode,
        /// Its id.
        program_id: u32,
        /// The name that it was loaded with.
        name: String,
    },
}

/// Returns the program of an interface, and changes nothing.
///
/// # Errors
///
/// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`], [`AttachError::NoInterface`]:
///   the process lacks capabilities, or there is no such interface.
/// - [`AttachError::Program`], [`AttachError::Kernel`]: maps or counters could not be read, or the
///   kernel refuses.
pub fn status(ifindex: u32) -> Result<Status, AttachError> {
    let interface = Interface::new(ifindex, &kernel::interface_name(ifindex));
    let Some(Running { program_id, mode }) = interface.program()? else {
        return Ok(Status::NotAttached);
    };
    let Some(maps) = Maps::of_program(program_id)? else {
        return Ok(Status::Foreign {
            mode,
            program_id,
            name: name_of_program(program_id)?,
        });
    };
    let counters = maps.verdicts.counters()?;
    Ok(Status::Ours {
        mode,
        program_id,
        counters,
        held_by_link: kernel::held_by_link(program_id),
        asks_for_tags: is_bound(program_id)?,
    })
}

/// State that an engine of an interface publishes, and the verdicts of xwarp's program there.
#[derive(Clone, Debug)]
pub struct Shown {
    /// First queue of the engine.
    pub queue: u32,
    /// Meaning of the words: see [`StateBoard::show`](crate::StateBoard::show).
    pub key: u64,
    /// Process ID of the engine.
    pub process: u32,
    /// The engine's state.
    pub words: Vec<u64>,
    /// Verdicts on frames that arrived on the engine's queues, and on those after them up to the
    /// next engine's. For the first engine also on those before its own.
    pub verdicts: Counters,
}

/// The engines that use an interface, in the order of their queues. A permanent program has none
/// while no process uses it.
///
/// # Errors
///
/// - [`AttachError::NotAttached`], [`AttachError::Foreign`]: there is no program, or a foreign one.
/// - [`AttachError::NotPrivileged`], [`AttachError::UserNamespace`], [`AttachError::NoInterface`]:
///   the process lacks capabilities, or there is no such interface.
/// - [`AttachError::Program`], [`AttachError::Kernel`]: maps could not be read, or the kernel
///   refuses.
pub fn shown(ifindex: u32) -> Result<Vec<Shown>, AttachError> {
    let interface = Interface::new(ifindex, &kernel::interface_name(ifindex));
    let Some((Running { program_id, .. }, maps)) = interface.our_program()? else {
        return Err(AttachError::NotAttached(interface.ifname));
    };
    let entries = live_entries(&maps.board, kernel::held_by_link(program_id))?;
    let mut bounds: Vec<u32> = entries.iter().skip(1).map(|(queue, _)| *queue).collect();
    bounds.push(u32::MAX);
    let (mut shown, mut begin) = (Vec::new(), 0);
    for ((queue, entry), end) in entries.into_iter().zip(bounds) {
        shown.push(Shown {
            queue,
            key: entry.key,
            process: entry.process,
            words: entry.words,
            verdicts: maps.verdicts.of_queues(begin..end)?,
        });
        begin = end;
    }
    Ok(shown)
}

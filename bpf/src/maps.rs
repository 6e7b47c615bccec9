//! The program's maps, found in the loaded object or through the program's id.

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};
use libbpf_rs::{ErrorKind, MapCore, MapHandle, Object, Program};

use crate::board::{self, Board};
use crate::flows::{self, Flows};
use crate::layout::Layout;
use crate::ports::{self, Ports};
use crate::sockets::{self, Sockets};
use crate::verdicts::{self, Verdicts};

/// Why the maps of a program could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenMapsError {
    /// The process lacks the capabilities.
    #[error("opening the maps of an XDP program needs root, or CAP_BPF and CAP_SYS_ADMIN")]
    NotPrivileged,
    /// It is our program, but this crate was built for another layout of its maps.
    #[error(
        "the map {map} is missing or has another layout than this version expects: the XDP \
         program is of another version of xwarp, detach it and attach this one"
    )]
    OtherVersion {
        /// The first map that is missing or differs.
        map: &'static str,
    },
    /// The kernel refused for another reason.
    #[error("the kernel did not open the maps of the XDP program: {0:#}")]
    Kernel(libbpf_rs::Error),
}

/// The controls of one loaded program.
#[derive(Debug)]
pub struct Maps {
    /// Which TCP flows are ours.
    pub flows: Flows,
    /// Where their frames go.
    pub sockets: Sockets,
    /// What became of the frames so far.
    pub verdicts: Verdicts,
    /// What the engine of each queue has shown last.
    pub board: Board,
}

impl Maps {
    /// The maps of the loaded program with that id; None when it is not ours.
    ///
    /// By id and not by pin path, as `ip link` pins into a mount that it throws away.
    pub fn of_program(program_id: u32) -> Result<Option<Self>, OpenMapsError> {
        let Some(program) = program_info(program_id)? else {
            return Ok(None);
        };
        let opened: Result<Vec<_>, _> = program
            .map_ids
            .into_iter()
            .map(MapHandle::from_map_id)
            .collect();
        Self::among(opened.map_err(not_opened)?)
    }

    /// The maps of an object that was just loaded.
    pub(crate) fn of_object(object: &Object) -> Result<Self, OpenMapsError> {
        let opened: Result<Vec<_>, _> =
            object.maps().map(|map| MapHandle::try_from(&map)).collect();
        let maps = Self::among(opened.map_err(not_opened)?)?;
        maps.ok_or(OpenMapsError::OtherVersion {
            map: flows::LAYOUT.name,
        })
    }

    /// Picks ours; None when there are no flows among them.
    fn among(mut maps: Vec<MapHandle>) -> Result<Option<Self>, OpenMapsError> {
        let mut pick = |layout: &Layout| {
            let found = maps.iter().position(|map| map.name() == layout.name);
            let map = found.map(|index| maps.swap_remove(index));
            map.map(|map| checked(map, layout)).transpose()
        };
        let Some(flows) = pick(&flows::LAYOUT)? else {
            return Ok(None);
        };
        let mut need =
            |layout: &Layout| pick(layout)?.ok_or(OpenMapsError::OtherVersion { map: layout.name });
        let ports = Ports::new(need(&ports::LAYOUT)?);
        Ok(Some(Self {
            flows: Flows::new(flows, ports),
            sockets: Sockets::new(need(&sockets::LAYOUT)?),
            verdicts: Verdicts::new(need(&verdicts::LAYOUT)?),
            board: Board::new(need(&board::LAYOUT)?),
        }))
    }
}

/// The name that a loaded program was given; None when there is none with that id.
pub fn program_name(program_id: u32) -> Result<Option<String>, OpenMapsError> {
    let program = program_info(program_id)?;
    Ok(program.map(|program| program.name.to_string_lossy().into_owned()))
}

fn program_info(program_id: u32) -> Result<Option<ProgramInfo>, OpenMapsError> {
    // Asked first because the iterator takes any error for the end of the list.
    let _still_there = match Program::fd_from_id(program_id) {
        Ok(program) => program,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(not_opened(error)),
    };
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    Ok(ProgInfoIter::with_query_opts(options).find(|program| program.id == program_id))
}

fn checked(map: MapHandle, layout: &Layout) -> Result<MapHandle, OpenMapsError> {
    let same = map.map_type() == layout.map_type
        && map.key_size() == layout.key_size
        && map.value_size() == layout.value_size
        && map.max_entries() == layout.max_entries;
    if same {
        Ok(map)
    } else {
        Err(OpenMapsError::OtherVersion { map: layout.name })
    }
}

fn not_opened(error: libbpf_rs::Error) -> OpenMapsError {
    match error.kind() {
        ErrorKind::PermissionDenied => OpenMapsError::NotPrivileged,
        _ => OpenMapsError::Kernel(error),
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::MapType;
    use libbpf_rs::libbpf_sys::bpf_map_create_opts;
    use xwarp_test_kit::needs_root;

    use super::*;

    fn create(layout: &Layout, max_entries: u32) -> MapHandle {
        let options = bpf_map_create_opts {
            sz: size_of::<bpf_map_create_opts>() as u64,
            // BPF_F_NO_PREALLOC, which only hash tables take.
            map_flags: u32::from(layout.map_type == MapType::Hash),
            ..Default::default()
        };
        let (kind, name) = (layout.map_type, Some(layout.name));
        let (key, value) = (layout.key_size, layout.value_size);
        MapHandle::create(kind, name, key, value, max_entries, &options).unwrap()
    }

    #[test]
    fn program_of_another_version_is_told_from_somebody_elses() {
        needs_root!();
        let whole = |layout: &Layout| create(layout, layout.max_entries);
        let others = vec![whole(&ports::LAYOUT), whole(&verdicts::LAYOUT)];
        assert!(Maps::among(others).unwrap().is_none());
        let refused = |maps| Maps::among(maps).unwrap_err().to_string();
        let before_ports = refused(vec![whole(&flows::LAYOUT), whole(&sockets::LAYOUT)]);
        assert!(
            before_ports.starts_with("the map xwarp_ports is missing"),
            "{before_ports}"
        );
        let fewer_queues = vec![
            whole(&flows::LAYOUT),
            whole(&ports::LAYOUT),
            create(&sockets::LAYOUT, 3),
        ];
        let fewer_queues = refused(fewer_queues);
        assert!(
            fewer_queues.starts_with("the map xwarp_xsks"),
            "{fewer_queues}"
        );
    }
}

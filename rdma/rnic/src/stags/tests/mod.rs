//! Tests of the table alone, without engine or wire.

mod bind;
mod fast;
mod invalidation;
mod model;
mod reregister;
mod shared;
mod table;

use xwarp_driver::SharedBytes;
use xwarp_iwarp::{AccessError, Stag};

use super::table::StagTable;
use crate::model::{
    Access, Addressing, Bind, FastRegister, PblMode, PdId, PhysicalList, QpAccess, QpIdentity,
    RegionMemory, RegionSpec, StagScope,
};

const PD: PdId = PdId(1);
const OTHER_PD: PdId = PdId(2);
const LOCAL: Access = Access::LOCAL;
const ALL: Access = Access::all();
/// Bytes of the region area.
const AREA: usize = if cfg!(miri) { 1 << 15 } else { 1 << 20 };
const PAGE: u64 = 4096;
/// Tagged Offset of the first byte of VA-based regions.
const VA: u64 = 0x7000_0123;

fn memory() -> SharedBytes {
    SharedBytes::anonymous(4096).unwrap()
}

fn new_table() -> StagTable {
    StagTable::new(SharedBytes::anonymous(AREA).unwrap(), PblMode::Page, random)
}

/// Random bits, as the crate `xwarp` provides them.
fn random() -> Option<u32> {
    getrandom::u32().ok()
}

/// A table, and a factory for its users.
struct Fixture {
    table: StagTable,
}

impl Fixture {
    fn new() -> Self {
        Self { table: new_table() }
    }

    /// A queue pair with all access flags.
    fn user(&mut self, pd: PdId) -> QpIdentity {
        self.table.join(pd, QpAccess::all())
    }

    /// A zero-based region of 4096 bytes of the domain [`PD`].
    fn region(&mut self, access: Access) -> Stag {
        self.region_of(StagScope::Domain(PD), &memory(), &RegionSpec::new(access))
    }

    /// A region that begins at [`VA`].
    fn va_region(&mut self, access: Access) -> Stag {
        let spec = RegionSpec::new(access).at(VA);
        self.region_of(StagScope::Domain(PD), &memory(), &spec)
    }

    fn region_of(&mut self, scope: StagScope, memory: &SharedBytes, spec: &RegionSpec) -> Stag {
        let memory = RegionMemory::Whole(memory.clone());
        self.table.register(scope, &memory, spec).unwrap()
    }

    fn window(&mut self) -> Stag {
        self.table.allocate_window(StagScope::Domain(PD)).unwrap()
    }

    /// A window that is bound to all of a VA-based region.
    fn bound(&mut self, user: QpIdentity, region: Stag) -> Stag {
        let window = self.window();
        let bind = bind(window, region);
        assert_eq!(self.table.bind(user, &bind), Ok(()));
        window
    }

    /// Whether one byte can be accessed.
    fn access(
        &self,
        user: QpIdentity,
        stag: Stag,
        to: u64,
        right: Access,
    ) -> Result<(), AccessError> {
        let access = self.table.access(user, stag, to, 1, right);
        access.map(|_| ())
    }
}

/// A Bind to all of a VA-based region, with both rights.
fn bind(window: Stag, region: Stag) -> Bind {
    Bind {
        window,
        region,
        to: VA,
        len: 4096,
        zero_based: false,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
    }
}

fn pages(addresses: &[u64]) -> PhysicalList {
    PhysicalList {
        entry_size: PAGE,
        addresses: addresses.into(),
        first_byte_offset: 0,
        len: PAGE * addresses.len() as u64,
    }
}

fn other_key(stag: Stag) -> Stag {
    Stag(stag.0 ^ 1)
}

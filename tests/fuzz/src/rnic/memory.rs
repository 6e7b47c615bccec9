//! The RNIC's memory: pages next to each other with different rights, and what each may hold in the
//! end.

use xwarp::memory::{Bind, RegionSpec, SharedBytes};
use xwarp::sim::RegionPool;
use xwarp::{Access, MemoryRegion, MemoryWindow, ProtectionDomain, Sge, Stag};

/// Bytes of a region: the pages have no slack between them, so that one byte too many lies in the
/// next one.
pub(super) const PAGE: usize = 4096;
/// Bytes of a receive buffer, and from one to the next.
const BUFFER: u8 = 64;
const BUFFER_STRIDE: usize = 96;
/// Receive buffers.
pub(super) const BUFFERS: usize = PAGE / BUFFER_STRIDE;
/// What memory holds that a peer may not read, again and again: a leak of 15 bytes contains all of
/// it.
const SECRET: [u8; 8] = [0x9d, 0x1e, 0x7b, 0xc4, 0x03, 0xf8, 0x66, 0xa1];

/// Tagged Offset of the memory that windows are bound to.
const VA: u64 = 0x1234_5678;

/// Regions by their number in a program. Every other one is out of the peer's reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All rights.
    Target = 1,
    /// The window on the target, once it was to be bound; before that out of the peer's reach.
    Window = 2,
    /// The peer may read it.
    Readable = 3,
    /// The peer may write it, and not read it.
    Writable = 4,
    /// All rights, in another protection domain.
    Foreign = 5,
    /// Buffers for messages.
    Buffers = 6,
    /// What the application sends from.
    Source = 7,
}

pub(super) struct Memory {
    regions: [Option<MemoryRegion>; 8],
    bytes: [SharedBytes; 8],
    stags: [Stag; 8],
    /// The target's memory once more, for the window.
    windowed: MemoryRegion,
    window: MemoryWindow,
    /// Receive buffers that were posted.
    posted: usize,
}

impl Memory {
    /// Bytes of the area that it needs, and a page for a well-behaved peer.
    pub(super) const AREA: usize = 9 * PAGE;

    pub(super) fn new(pool: &RegionPool, pd: &ProtectionDomain, other: &ProtectionDomain) -> Self {
        let bytes: [SharedBytes; 8] = std::array::from_fn(|_| pool.allocate(PAGE).expect("room"));
        let regions: [MemoryRegion; 8] = std::array::from_fn(|n| {
            let pd = if n == Place::Foreign as usize {
                other
            } else {
                pd
            };
            pd.register(bytes[n].clone(), rights(n))
                .expect("rights that go together")
        });
        for (n, bytes) in bytes.iter().enumerate() {
            bytes.write(0, &contents(n)).expect("a page");
        }
        let target = bytes[Place::Target as usize].clone();
        let for_window = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::BIND_WINDOWS;
        let spec = RegionSpec::new(for_window).at(VA);
        Self {
            windowed: pd.register_with(target, &spec).expect("room"),
            window: pd.allocate_window().expect("room"),
            stags: std::array::from_fn(|n| regions[n].stag()),
            regions: regions.map(Some),
            bytes,
            posted: 0,
        }
    }

    /// What names a region, or once did.
    pub(super) fn stag(&self, n: u8) -> Stag {
        self.stags[usize::from(n % 8)]
    }

    /// The application no longer lets anybody use a region.
    pub(super) fn deregister(&mut self, n: u8) {
        self.regions[usize::from(n % 8)] = None;
    }

    /// Binds the window to all of the target.
    pub(super) fn bind(&mut self) -> Bind {
        let first = self.windowed.remote(0);
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let bind = self.window.bind(first, PAGE as u64, rights).zero_based();
        self.stags[Place::Window as usize] = bind.window;
        bind
    }

    /// What names the region that windows are bound to.
    pub(super) fn windowed(&self) -> Stag {
        self.windowed.stag()
    }

    /// Part of a region for a scatter/gather list.
    pub(super) fn local(&self, place: Place, len: u32) -> Sge {
        Sge {
            stag: self.stags[place as usize],
            to: 0,
            len,
        }
    }

    /// A receive buffer that was not posted before; `None` when all were.
    pub(super) fn buffer(&mut self, len: u8) -> Option<Sge> {
        if self.posted == BUFFERS {
            return None;
        }
        let to = (self.posted * BUFFER_STRIDE) as u64;
        self.posted += 1;
        let len = u32::from(len.min(BUFFER));
        Some(Sge {
            stag: self.stags[Place::Buffers as usize],
            to,
            len,
        })
    }

    /// Bytes were placed where everybody may write.
    pub(super) fn target_was_written(&self) -> bool {
        self.bytes[Place::Target as usize].to_vec() != contents(Place::Target as usize)
    }

    /// Asserts that memory which the peer may not write is unchanged.
    pub(super) fn check(&self) {
        for (n, bytes) in self.bytes.iter().enumerate() {
            let mut bytes = bytes.to_vec();
            let expected = contents(n);
            if n == Place::Buffers as usize {
                for buffer in 0..self.posted {
                    let range =
                        buffer * BUFFER_STRIDE..buffer * BUFFER_STRIDE + usize::from(BUFFER);
                    bytes[range.clone()].copy_from_slice(&expected[range]);
                }
            }
            let may_change = n == Place::Target as usize || n == Place::Writable as usize;
            if !may_change && bytes != expected {
                let at = (0..PAGE).find(|&at| bytes[at] != expected[at]);
                panic!("region {n} was written at byte {at:?}");
            }
        }
    }

    /// Nothing that the peer may not read is among what it received.
    pub(super) fn check_secret(received: &[u8]) {
        let leak = received
            .windows(SECRET.len())
            .position(|bytes| bytes == SECRET);
        assert_eq!(leak, None, "the peer received what it may not read");
    }
}

/// What a region holds at first. Where the peer may look there is no secret.
fn contents(n: usize) -> Vec<u8> {
    let shown = [Place::Target, Place::Readable, Place::Source];
    if shown.into_iter().any(|place| place as usize == n) {
        vec![0; PAGE]
    } else {
        SECRET.repeat(PAGE / SECRET.len())
    }
}

fn rights(n: usize) -> Access {
    let local = Access::LOCAL_READ | Access::LOCAL_WRITE;
    match n {
        n if n == Place::Target as usize || n == Place::Foreign as usize => Access::all(),
        n if n == Place::Readable as usize => Access::LOCAL_READ | Access::REMOTE_READ,
        n if n == Place::Writable as usize => local | Access::REMOTE_WRITE,
        n if n == Place::Buffers as usize => Access::LOCAL_WRITE,
        n if n == Place::Source as usize => Access::LOCAL_READ,
        _ => local,
    }
}

//! An AF_XDP socket: its options, its rings, binding it to a queue and waking the kernel.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::libc::{self, c_int, socklen_t};

use super::ring::{Consumer, Descriptor, Offsets, Producer};
use crate::memory::Arena;

/// The option that says how many descriptors a call of `sendto` takes (`XDP_MAX_TX_SKB_BUDGET`).
const MAX_TX_SKB_BUDGET: c_int = 9;
/// The kernel's default.
const TX_BATCH_SIZE: u32 = 32;

/// Microseconds that a blocking call would poll (`SO_BUSY_POLL`). xwarp's calls never block, and
/// poll once; 0 would switch that off.
const BUSY_POLL_TIME: c_int = 20;
/// Frames of one poll at most (`SO_BUSY_POLL_BUDGET`): as many as when the kernel polls for itself.
const BUSY_POLL_BUDGET: c_int = 64;

/// Bytes of a chunk, which holds a frame or a piece of one: a page, the most that the kernel takes.
pub(crate) const CHUNK_BYTES: u32 = 4096;

/// Memory that a base has to map and to register, for a queue that is bound later.
pub(crate) struct MemoryRequest {
    /// A multiple of [`CHUNK_BYTES`].
    pub(crate) bytes: usize,
    /// Entries of each ring.
    pub(crate) ring: u32,
    /// The memory node of the NIC, where there are several.
    pub(crate) node: Option<u32>,
    /// Metadata in front of frames to send, if there can be any.
    pub(crate) metadata: Option<TxMetadata>,
}

/// Memory that is registered with a socket.
pub(crate) struct Registered<B> {
    pub(crate) arena: Arena,
    pub(crate) unbound: B,
    /// The kernel takes requests in front of frames to send.
    pub(crate) takes_requests: bool,
}

/// Metadata in front of frames to send (Linux 6.8).
#[derive(Clone, Copy)]
pub(crate) struct TxMetadata {
    /// Bytes of it. With them, no piece of a frame may begin at the begin of a chunk.
    pub(crate) bytes: u32,
    /// Who computes a requested checksum.
    pub(crate) computes: Computes,
}

/// Who computes checksums that are left to the kernel or the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computes {
    /// The NIC.
    Nic,
    /// The kernel, where it copies frames (`XDP_UMEM_TX_SW_CSUM`).
    Kernel,
}

/// The four rings of a socket. The kernel frees the socket's queue only when all of them are gone,
/// as a mapping keeps its socket open.
pub(crate) struct RingSet {
    pub(crate) rx: Consumer<Descriptor>,
    pub(crate) tx: Producer<Descriptor>,
    pub(crate) fill: Producer<u64>,
    pub(crate) completion: Consumer<u64>,
}

/// The queue that a socket is bound to, and how (`XDP_COPY` and others).
pub(crate) struct Queue {
    /// Index of the interface.
    pub(crate) interface: u32,
    pub(crate) number: u32,
    pub(crate) flags: u16,
}

/// An AF_XDP socket.
pub(crate) struct Socket {
    fd: OwnedFd,
}

/// Type of an option's value that the kernel returns.
///
/// # Safety
///
/// Any bytes are a value of the type.
unsafe trait OptionValue: Copy {}

// SAFETY: it is made of numbers.
unsafe impl OptionValue for libc::xdp_mmap_offsets {}
// SAFETY: it is made of numbers.
unsafe impl OptionValue for libc::xdp_statistics {}
// SAFETY: it is made of numbers.
unsafe impl OptionValue for libc::xdp_options {}
// SAFETY: it is a number.
unsafe impl OptionValue for u32 {}

impl Socket {
    /// Maps the four rings, of `entries` each, that the kernel has made.
    pub(crate) fn map_rings(&self, entries: u32) -> io::Result<RingSet> {
        let lies: libc::xdp_mmap_offsets = self.get(libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)?;
        let rx = Place::new(libc::XDP_PGOFF_RX_RING.cast_unsigned(), &lies.rx)?;
        let tx = Place::new(libc::XDP_PGOFF_TX_RING.cast_unsigned(), &lies.tx)?;
        let fill = Place::new(libc::XDP_UMEM_PGOFF_FILL_RING, &lies.fr)?;
        let completion = Place::new(libc::XDP_UMEM_PGOFF_COMPLETION_RING, &lies.cr)?;
        Ok(RingSet {
            rx: Consumer::new(self.map::<Descriptor>(&rx, entries)?, &rx.parts, entries)?,
            tx: Producer::new(self.map::<Descriptor>(&tx, entries)?, &tx.parts, entries)?,
            fill: Producer::new(self.map::<u64>(&fill, entries)?, &fill.parts, entries)?,
            completion: Consumer::new(
                self.map::<u64>(&completion, entries)?,
                &completion.parts,
                entries,
            )?,
        })
    }

    /// Maps a ring of entries of a type. A forked child does not have it: it would keep the socket
    /// open after this process has ended.
    fn map<E>(&self, place: &Place, entries: u32) -> io::Result<Arc<MmapRaw>> {
        let mapping = MmapOptions::new()
            .offset(place.at)
            .len(place.parts.entries + entries as usize * size_of::<E>())
            .populate()
            .map_raw(&self.fd)?;
        mapping.advise(Advice::DontFork)?;
        Ok(Arc::new(mapping))
    }

    /// Makes a call of [`transmit`](Self::transmit) take a whole transmit ring with `entries`
    /// entries. Linux supports that since 6.17; before, a call takes 32 descriptors, which are less
    /// than two frames at an MTU of 65535, and the driver calls again for the rest.
    pub(crate) fn take_all_at_once(&self, entries: u32) -> io::Result<()> {
        if entries < TX_BATCH_SIZE {
            return Ok(());
        }
        match self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &entries) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            set => set,
        }
    }

    pub(super) fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
        let (start, len) = (ptr::from_ref(value).cast(), len_of(value));
        let fd = self.fd.as_raw_fd();
        // SAFETY: the kernel reads `len` bytes, which are the value's own.
        let set = unsafe { libc::setsockopt(fd, level, option, start, len) };
        Ok(Errno::result(set).map(drop)?)
    }

    fn get<T: OptionValue>(&self, level: c_int, option: c_int) -> io::Result<T> {
        let mut value = MaybeUninit::<T>::zeroed();
        let mut len = len_of(&value);
        let (fd, start) = (self.fd.as_raw_fd(), value.as_mut_ptr().cast());
        // SAFETY: the kernel writes at most `len` bytes, which are the value's own, and the length.
        let got = unsafe { libc::getsockopt(fd, level, option, start, &raw mut len) };
        Errno::result(got)?;
        if len < len_of(&value) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the kernel is older than Linux 5.9",
            ));
        }
        // SAFETY: all bytes were zeroed, and any bytes are a value.
        Ok(unsafe { value.assume_init() })
    }
}

/// A socket that is not bound to a queue, with its memory.
pub(crate) trait Bind: Sized {
    /// The socket when it is bound.
    type Socket: Calls;

    /// Binds the socket to a queue. After an error it can be tried again.
    fn bind(self, queue: &Queue) -> Result<(Self::Socket, RingSet), (Self, io::Error)>;
}

/// System calls of an open queue on its socket. Tests use a double of the kernel instead.
pub(crate) trait Calls: AsFd + Send {
    /// Makes the kernel send the frames in the transmit ring. Another call sends those that it
    /// cannot take now.
    fn transmit(&self) -> io::Result<()>;

    /// Makes the driver fetch chunks to receive into.
    fn receive(&self) -> io::Result<()>;

    /// Whether the bound socket's frames are the driver's own buffers (`XDP_OPTIONS_ZEROCOPY`).
    fn has_zero_copy(&self) -> io::Result<bool>;

    /// The kernel's counters since the socket was opened.
    fn statistics(&self) -> io::Result<libc::xdp_statistics>;

    /// Makes each call of [`transmit`](Self::transmit) and [`receive`](Self::receive) poll the NAPI
    /// instance of the bound queue, which takes no interrupts meanwhile (preferred busy polling,
    /// Linux 5.11). Returns `false` if the kernel has no instance to poll.
    fn poll_busily(&self) -> io::Result<bool>;

    /// The time.
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl Calls for Socket {
    fn transmit(&self) -> io::Result<()> {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        // SAFETY: a message of no bytes has no memory of ours, and no address.
        let sent = unsafe { libc::sendto(fd, ptr::null(), 0, flags, ptr::null(), 0) };
        match Errno::result(sent) {
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EBUSY | Errno::ENETDOWN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn receive(&self) -> io::Result<()> {
        let (fd, flags) = (self.fd.as_raw_fd(), libc::MSG_DONTWAIT);
        let nowhere = ptr::null_mut();
        // SAFETY: a buffer of no bytes is no memory of ours, and no address is asked for.
        let got =
            unsafe { libc::recvfrom(fd, nowhere, 0, flags, ptr::null_mut(), ptr::null_mut()) };
        match Errno::result(got) {
            Ok(_) | Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EBUSY | Errno::ENETDOWN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn has_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = self.get(libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        self.get(libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    fn poll_busily(&self) -> io::Result<bool> {
        for (option, value) in [
            (libc::SO_PREFER_BUSY_POLL, 1),
            (libc::SO_BUSY_POLL, BUSY_POLL_TIME),
            (libc::SO_BUSY_POLL_BUDGET, BUSY_POLL_BUDGET),
        ] {
            self.set(libc::SOL_SOCKET, option, &value)?;
        }
        // Older kernels give the socket its instance when it sends.
        self.transmit()?;
        let instance: u32 = self.get(libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)?;
        Ok(instance != 0)
    }
}

/// Takes over a descriptor that is a socket of `AF_XDP`.
impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Where a ring lies in the socket, and its parts in the ring.
struct Place {
    at: u64,
    parts: Offsets,
}

impl Place {
    fn new(at: u64, lies: &libc::xdp_ring_offset) -> io::Result<Self> {
        let offset = |bytes| usize::try_from(bytes).map_err(io::Error::other);
        Ok(Self {
            at,
            parts: Offsets {
                producer: offset(lies.producer)?,
                consumer: offset(lies.consumer)?,
                flags: offset(lies.flags)?,
                entries: offset(lies.desc)?,
            },
        })
    }
}

/// Bytes of a value, as socket calls want it.
pub(super) fn len_of<T>(value: &T) -> socklen_t {
    socklen_t::try_from(size_of_val(value)).unwrap_or(socklen_t::MAX)
}

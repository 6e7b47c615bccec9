//! An AF_XDP socket: its options, its rings, binding it to a queue and waking the kernel.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::libc::{self, c_int, socklen_t};

use super::ring::{Consumer, Descriptor, Offsets, Producer};

/// The option that says how many descriptors a call of `sendto` takes (`XDP_MAX_TX_SKB_BUDGET`).
const MAX_TX_SKB_BUDGET: c_int = 9;
/// The kernel's default.
const TX_BATCH_SIZE: u32 = 32;

/// Microseconds that a blocking call would poll (`SO_BUSY_POLL`). xwarp's calls never block, and
/// poll once; 0 would switch that off.
const BUSY_POLL_TIME: c_int = 20;
/// Frames of one poll at most (`SO_BUSY_POLL_BUDGET`): as many as when the kernel polls for itself.
const BUSY_POLL_BUDGET: c_int = 64;

/// Memory that is to be registered as UMEM.
pub(crate) struct UmemArea {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// Bytes of a chunk; each chunk holds a frame, or a piece of one.
    pub(crate) chunk: u32,
    /// Metadata in front of frames to send, if there can be any.
    pub(crate) metadata: Option<TxMetadata>,
}

impl UmemArea {
    /// The same memory, with such metadata.
    pub(crate) fn with(&self, metadata: TxMetadata) -> Self {
        Self {
            metadata: Some(metadata),
            ..*self
        }
    }
}

/// Metadata in front of frames to send (Linux 6.8).
#[derive(Clone, Copy)]
pub(crate) struct TxMetadata {
    /// Bytes of it. With them, no piece of a frame may begin at the begin of a chunk.
    pub(crate) bytes: u32,
    /// What computes a requested checksum.
    pub(crate) computes: Computes,
}

/// What computes checksums that are left to the kernel or the NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Computes {
    /// The NIC.
    Nic,
    /// The kernel, where it copies frames (`XDP_UMEM_TX_SW_CSUM`).
    Kernel,
}

impl TxMetadata {
    fn flags(self) -> u32 {
        let by_kernel = match self.computes {
            Computes::Nic => 0,
            Computes::Kernel => libc::XDP_UMEM_TX_SW_CSUM,
        };
        libc::XDP_UMEM_TX_METADATA_LEN | by_kernel
    }
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

/// What the kernel gives out as the value of an option.
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
    pub(crate) fn open() -> io::Result<Self> {
        // SAFETY: the call has no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let fd = Errno::result(fd)?;
        // SAFETY: the kernel has just given us this descriptor, and no other code knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd })
    }

    /// Registers the memory that frames lie in. The kernel pins it, and reads and writes only what
    /// the rings name.
    pub(crate) fn register(&self, area: &UmemArea) -> io::Result<()> {
        let registration = libc::xdp_umem_reg {
            addr: area.address,
            len: area.bytes,
            chunk_size: area.chunk,
            headroom: 0,
            flags: area.metadata.map_or(0, TxMetadata::flags),
            tx_metadata_len: area.metadata.map_or(0, |metadata| metadata.bytes),
        };
        self.set(libc::SOL_XDP, libc::XDP_UMEM_REG, &registration)
    }

    /// Makes the four rings, of `entries` each, and maps them.
    pub(crate) fn rings(&self, entries: u32) -> io::Result<RingSet> {
        for ring in [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ] {
            self.set(libc::SOL_XDP, ring, &entries)?;
        }
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

    /// Has a call of [`transmit`](Self::transmit) take all of a transmit ring with `entries`
    /// entries. Linux has that since 6.17; before, a call takes 32 descriptors, which are not two
    /// frames at an MTU of 65535, and the driver calls again for the rest.
    pub(crate) fn take_all_at_once(&self, entries: u32) -> io::Result<()> {
        if entries < TX_BATCH_SIZE {
            return Ok(());
        }
        match self.set(libc::SOL_XDP, MAX_TX_SKB_BUDGET, &entries) {
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(()),
            set => set,
        }
    }

    fn set<T>(&self, level: c_int, option: c_int, value: &T) -> io::Result<()> {
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

/// What an open queue asks of its socket. Tests have a double of the kernel instead of one.
pub(crate) trait Calls: AsFd + Send {
    /// Binds the socket to a queue. After an error it can be tried again.
    fn bind(&self, queue: &Queue) -> io::Result<()>;

    /// Has the kernel send what is in the transmit ring. What it cannot take now it takes at
    /// another call.
    fn transmit(&self) -> io::Result<()>;

    /// Has the driver look for chunks to receive into.
    fn receive(&self) -> io::Result<()>;

    /// Whether the bound socket's frames are the driver's own buffers (`XDP_OPTIONS_ZEROCOPY`).
    fn has_zero_copy(&self) -> io::Result<bool>;

    /// What the kernel has counted since the socket was opened.
    fn statistics(&self) -> io::Result<libc::xdp_statistics>;

    /// Has each call of [`transmit`](Self::transmit) and [`receive`](Self::receive) poll the NAPI
    /// instance of the bound queue, which takes no interrupts meanwhile (preferred busy polling,
    /// Linux 5.11). `false`: the kernel knows of no instance to poll.
    fn poll_busily(&self) -> io::Result<bool>;

    /// The time.
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

impl Calls for Socket {
    fn bind(&self, queue: &Queue) -> io::Result<()> {
        let address = libc::sockaddr_xdp {
            sxdp_family: u16::try_from(libc::AF_XDP).map_err(io::Error::other)?,
            sxdp_flags: queue.flags,
            sxdp_ifindex: queue.interface,
            sxdp_queue_id: queue.number,
            sxdp_shared_umem_fd: 0,
        };
        let (start, len) = (ptr::from_ref(&address).cast(), len_of(&address));
        // SAFETY: the kernel reads `len` bytes, which are the address's own.
        let bound = unsafe { libc::bind(self.fd.as_raw_fd(), start, len) };
        Ok(Errno::result(bound).map(drop)?)
    }

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
fn len_of<T>(value: &T) -> socklen_t {
    socklen_t::try_from(size_of_val(value)).unwrap_or(socklen_t::MAX)
}

//! Capture of a queue's frames. Packet sniffers do not see steered traffic, so the stack writes its
//! own file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};
use xwarp_bpf::RxMetadata;

use super::forward::forward;
use super::frame::{RxFrame, SentFrame, TxFrame};
use super::levels::QueueLevels;
use super::{Icmp, IoCounters, IoError, PacketIo};

/// Nanoseconds, the unit in which the writer stores times (`if_tsresol`: 10^-9).
const NANOSECONDS: u8 = 9;

/// A queue whose frames, in both directions, are written to a pcapng file.
///
/// Times are by the host's clock. The NIC's receive timestamp of a frame is in its comment, as the
/// NIC may have another clock.
pub struct Tap {
    inner: Box<dyn PacketIo>,
    capture: Capture,
}

/// The capture file could not be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {path}: {reason}")]
#[non_exhaustive]
pub struct TapError {
    /// The file.
    pub path: PathBuf,
    /// Error from the system.
    pub reason: String,
}

/// A capture file lacks frames that the queue has carried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the capture {path} is not complete: {reason}; make room there or capture into another file"
)]
#[non_exhaustive]
pub struct CaptureError {
    /// The file.
    pub path: PathBuf,
    /// Error from the system.
    pub reason: String,
}

/// The file that a [`Tap`] writes. Clones are handles of the same file.
#[derive(Clone, Debug)]
pub struct Capture(Arc<Mutex<CaptureFile>>);

impl Capture {
    /// Begins a new file at `path`, which names `interface`.
    ///
    /// # Errors
    ///
    /// [`TapError`]: the file cannot be created or written.
    pub fn begin(path: impl Into<PathBuf>, interface: &str) -> Result<Self, TapError> {
        let path = path.into();
        Self::create(&path, interface).map_err(|error| TapError {
            path,
            reason: reason_of(error),
        })
    }

    fn create(path: &Path, interface: &str) -> Result<Self, PcapError> {
        let file = File::create(path).map_err(PcapError::IoError)?;
        let mut writer = PcapNgWriter::new(BufWriter::new(file))?;
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        block.options = vec![
            InterfaceDescriptionOption::IfName(interface.into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        writer.write_pcapng_block(block)?;
        Ok(Self(Arc::new(Mutex::new(CaptureFile {
            writer: Some(writer),
            lost: None,
            is_told: false,
            path: path.to_owned(),
        }))))
    }

    /// Ends the file: buffered frames are written, and later ones are not. Fails if any frame is
    /// missing in it. If this is never called, the error is logged.
    ///
    /// # Errors
    ///
    /// [`CaptureError`]: the file lacks frames, and why.
    pub fn finish(&self) -> Result<(), CaptureError> {
        let mut file = self.file();
        file.end();
        file.is_told = true;
        file.lost.clone().map_or(Ok(()), Err)
    }

    /// Whether all frames so far have been written or buffered.
    ///
    /// # Errors
    ///
    /// [`CaptureError`]: the file lacks frames, and why.
    pub fn check(&self) -> Result<(), CaptureError> {
        self.file().lost.clone().map_or(Ok(()), Err)
    }

    fn file(&self) -> MutexGuard<'_, CaptureFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct CaptureFile {
    /// `None` once it was ended or writing has failed: the queue continues without it.
    writer: Option<PcapNgWriter<BufWriter<File>>>,
    lost: Option<CaptureError>,
    /// The result was returned to the caller.
    is_told: bool,
    path: PathBuf,
}

impl CaptureFile {
    fn record(&mut self, frame: &[u8], now: Duration, metadata: Option<RxMetadata>) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: now,
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: frame.into(),
            options: (metadata.iter())
                .map(|metadata| EnhancedPacketOption::Comment(metadata.to_string().into()))
                .collect(),
        };
        if let Err(error) = writer.write_pcapng_block(block) {
            self.writer = None;
            self.lose(reason_of(error));
        }
    }

    fn end(&mut self) {
        if let Some(mut writer) = self.writer.take()
            && let Err(error) = writer.get_mut().flush()
        {
            self.lose(error.to_string());
        }
    }

    fn lose(&mut self, reason: String) {
        self.lost = Some(CaptureError {
            path: self.path.clone(),
            reason,
        });
    }
}

impl std::fmt::Debug for CaptureFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CaptureFile({})", self.path.display())
    }
}

impl Drop for CaptureFile {
    fn drop(&mut self) {
        self.end();
        if let Some(lost) = self.lost.as_ref().filter(|_| !self.is_told) {
            log::error!("{lost}");
        }
    }
}

/// The system's error, without the writer's own text.
fn reason_of(error: PcapError) -> String {
    match error {
        PcapError::IoError(error) => error.to_string(),
        error => error.to_string(),
    }
}

impl Tap {
    /// Captures what `inner` carries into a file, which other queues may write to as well.
    pub fn new(inner: Box<dyn PacketIo>, capture: &Capture) -> Self {
        let capture = capture.clone();
        Self { inner, capture }
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl PacketIo for Tap {
    forward!(inner: recycle, owns, tx_frame, reclaim, release, tx_free, rx_frames, discard, flush, backlog, set_up, too_big, offers_checksums, has_looped, is_looped, stays_on_host, mtu_towards, trusts, needs_no_checksum, has_crossed, readiness, levels, diagnosis, counters);

    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let before = out.len();
        self.inner.receive(budget, out);
        let (time, mut file) = (now(), self.capture.file());
        for frame in &out[before..] {
            file.record(frame, time, frame.metadata());
        }
    }

    fn send(&mut self, frame: TxFrame) {
        self.capture.file().record(&frame, now(), None);
        self.inner.send(frame);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.capture.file().record(&frame, now(), None);
        self.inner.send_kept(frame)
    }

    fn keep(&mut self, frame: TxFrame) -> SentFrame {
        self.capture.file().record(&frame, now(), None);
        self.inner.keep(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryIo;

    /// A tap into this file.
    fn tap(path: &Path) -> Tap {
        let (io, _wire) = MemoryIo::new(8).unwrap();
        Tap::new(Box::new(io), &Capture::begin(path, "eth0").unwrap())
    }

    fn send(tap: &mut Tap, content: &[u8]) {
        let mut frame = tap.tx_frame().unwrap();
        frame.set_len(content.len());
        frame.copy_from_slice(content);
        tap.send(frame);
        tap.flush().unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs files")]
    fn what_was_captured_is_in_the_file_once_it_is_ended() {
        let path = std::env::temp_dir().join(format!("xwarp-tap-{}", std::process::id()));
        let mut tap = tap(&path);
        send(&mut tap, b"a frame that is easily found");
        tap.capture.finish().unwrap();
        let written = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let found = |text: &[u8]| written.windows(text.len()).any(|at| at == text);
        assert!(found(b"a frame that is easily found") && found(b"eth0"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs files")]
    fn frames_that_a_full_disk_has_lost_are_told_at_the_end() {
        let mut tap = tap(Path::new("/dev/full"));
        let capture = tap.capture.clone();
        send(&mut tap, &[1; 60]);
        assert_eq!(capture.check(), Ok(()), "it is only buffered");
        let lost = capture.finish().unwrap_err();
        assert_eq!(
            lost.to_string(),
            "the capture /dev/full is not complete: No space left on device (os error 28); \
             make room there or capture into another file"
        );
        assert_eq!(capture.finish(), Err(lost), "a second call");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs files")]
    fn disk_that_is_full_in_the_middle_is_told_at_once_to_whoever_asks() {
        let mut tap = tap(Path::new("/dev/full"));
        for _ in 0..1000 {
            send(&mut tap, &[2; 1000]);
        }
        assert!(tap.capture.check().is_err());
        assert!(tap.capture.finish().is_err());
    }
}

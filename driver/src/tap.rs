//! A capture of what a queue carries. Packet sniffers see nothing of steered traffic, so the stack writes its own.

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

use crate::frame::{RxFrame, SentFrame, TxFrame};
use crate::packet_io::{Icmp, IoCounters, IoError, PacketIo};

/// Nanoseconds, the unit in which the writer stores times (`if_tsresol`: 10^-9).
const NANOSECONDS: u8 = 9;

/// A queue whose frames, both ways, are written to a pcapng file.
pub struct Tap {
    inner: Box<dyn PacketIo>,
    /// `None` once writing has failed: the queue goes on without it.
    writer: Option<PcapNgWriter<BufWriter<File>>>,
    path: PathBuf,
}

/// The capture file could not be begun.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture {path}: {reason}")]
pub struct TapError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub reason: String,
}

impl Tap {
    /// Captures what `inner` carries into a new file at `path`, which names `interface`.
    pub fn new(inner: Box<dyn PacketIo>, path: &Path, interface: &str) -> Result<Self, TapError> {
        let failed = |reason: String| TapError {
            path: path.to_owned(),
            reason,
        };
        let file = File::create(path).map_err(|error| failed(error.to_string()))?;
        let mut writer =
            PcapNgWriter::new(BufWriter::new(file)).map_err(|error| failed(error.to_string()))?;
        let mut block = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        block.options = vec![
            InterfaceDescriptionOption::IfName(interface.into()),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        writer
            .write_pcapng_block(block)
            .map_err(|error| failed(error.to_string()))?;
        Ok(Self {
            inner,
            writer: Some(writer),
            path: path.to_owned(),
        })
    }

    fn record(&mut self, frame: &[u8], now: Duration) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: now,
            original_len: u32::try_from(frame.len()).unwrap_or(u32::MAX),
            data: frame.into(),
            options: Vec::new(),
        };
        if let Err(error) = writer.write_pcapng_block(block) {
            log::warn!("the capture {} ends here: {error}", self.path.display());
            self.writer = None;
        }
    }
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

impl PacketIo for Tap {
    fn receive(&mut self, budget: usize, out: &mut Vec<RxFrame>) {
        let before = out.len();
        self.inner.receive(budget, out);
        let time = now();
        for frame in &out[before..] {
            self.record(frame, time);
        }
    }

    fn recycle(&mut self, frame: RxFrame) {
        self.inner.recycle(frame);
    }

    fn tx_frame(&mut self) -> Option<TxFrame> {
        self.inner.tx_frame()
    }

    fn send(&mut self, frame: TxFrame) {
        self.record(&frame, now());
        self.inner.send(frame);
    }

    fn send_kept(&mut self, frame: TxFrame) -> SentFrame {
        self.record(&frame, now());
        self.inner.send_kept(frame)
    }

    fn reclaim(&mut self, sent: SentFrame) -> Result<TxFrame, SentFrame> {
        self.inner.reclaim(sent)
    }

    fn release(&mut self, sent: SentFrame) {
        self.inner.release(sent);
    }

    fn tx_free(&self) -> usize {
        self.inner.tx_free()
    }

    fn rx_frames(&self) -> usize {
        self.inner.rx_frames()
    }

    fn discard(&mut self, frame: TxFrame) {
        self.inner.discard(frame);
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.inner.flush()
    }

    fn backlog(&self) -> bool {
        self.inner.backlog()
    }

    fn too_big(&mut self) -> Option<Icmp> {
        self.inner.too_big()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness()
    }

    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

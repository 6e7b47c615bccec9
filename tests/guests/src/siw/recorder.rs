//! Recorder of the frames that pass a cable, in a file.

use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, poll};
use pcap_file::pcap::{PcapPacket, PcapWriter};

use crate::siw::packet_socket::drain;

/// How often a recorder looks whether it is to stop, in milliseconds.
const LOOK: u16 = 20;

/// Writes frames to a pcap file until it is stopped. A sniffer would do the same, but need not have
/// written all it saw when it ends.
pub struct Recorder {
    file: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    pub(crate) fn start(frames: OwnedFd, file: PathBuf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, to) = (
            Arc::clone(&stop),
            File::create(&file).expect("our own directory"),
        );
        let thread = thread::spawn(move || record(&frames, to, &asked));
        Self {
            file,
            stop,
            thread: Some(thread),
        }
    }

    /// The file, with all that passed until now.
    pub fn finish(mut self) -> PathBuf {
        self.stop();
        self.file.clone()
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the recorder");
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop();
        }
    }
}

fn record(frames: &OwnedFd, to: File, asked: &AtomicBool) {
    let mut writer = PcapWriter::new(BufWriter::new(to)).expect("our own file");
    // Asked first: what came before the question is written.
    let mut last = false;
    while !last {
        last = asked.load(Ordering::Relaxed);
        let mut wanted = [PollFd::new(frames.as_fd(), PollFlags::POLLIN)];
        if !last {
            poll(&mut wanted, LOOK).expect("our own socket");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("a clock");
        drain(frames, |frame| {
            let length = u32::try_from(frame.len()).expect("a frame");
            let packet = PcapPacket::new(now, length, frame);
            writer.write_packet(&packet).expect("our own file");
        });
    }
}

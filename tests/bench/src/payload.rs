//! Payload on its way out, in nanoseconds: copied, summed and its CRC computed in three passes and
//! in one, by turns in one run.

use std::hint::black_box;
use std::time::Instant;

use xwarp_driver::{Digest, SharedBytes, checksum_sum};
use xwarp_iwarp::crc::crc32c;

/// Bytes of payload of full segments at an MTU of 1500, 9000 and 65535.
const LENS: [usize; 3] = [1448, 8948, 65_483];
/// Bytes that are in no cache when they are used again: those of the source, and as many of the
/// frames.
const COLD: usize = 64 << 20;
/// Bytes that are in the first cache, or the second.
const HOT: usize = 1;
/// Rounds, by turns.
const ROUNDS: usize = 101;
/// Bytes of a round at least.
const ROUND_BYTES: usize = 4 << 20;
/// Frames begin on a cache line, and payloads behind headers.
const LINE: usize = 64;
const HEADERS: usize = 82;

/// A way to do all three; what is known then.
type Passes = fn(&SharedBytes, usize, &mut [u8]) -> (u32, u64);

#[inline(never)]
fn three(memory: &SharedBytes, at: usize, frame: &mut [u8]) -> (u32, u64) {
    memory.read(at, frame).expect("memory that is there");
    (crc32c(frame), checksum_sum(frame).into())
}

#[inline(never)]
fn one(memory: &SharedBytes, at: usize, frame: &mut [u8]) -> (u32, u64) {
    let mut digest = Digest::default();
    let read = digest.read(memory, at, frame);
    read.expect("memory that is there");
    (digest.crc32c(), digest.checksum().words())
}

/// Payloads of one length, in memory of their own each.
struct Payloads {
    memory: SharedBytes,
    frames: Vec<u8>,
    len: usize,
    /// Bytes from one to the next.
    stride: usize,
    /// The next one.
    next: usize,
}

impl Payloads {
    fn new(len: usize, bytes: usize) -> Self {
        let stride = (HEADERS + len).next_multiple_of(LINE);
        let bytes = bytes.next_multiple_of(stride);
        let memory = SharedBytes::anonymous(bytes).expect("memory");
        memory.fill(0..bytes, 0x5a).expect("memory that is there");
        Self {
            memory,
            frames: vec![0; bytes],
            len,
            stride,
            next: 0,
        }
    }

    /// Nanoseconds for each payload.
    fn round(&mut self, passes: Passes) -> u128 {
        let rounds = ROUND_BYTES.div_ceil(self.len);
        let begin = Instant::now();
        for _ in 0..rounds {
            let at = self.next;
            let frame = &mut self.frames[at + HEADERS..][..self.len];
            black_box(passes(&self.memory, at, frame));
            let next = at + self.stride;
            self.next = if next < self.frames.len() { next } else { 0 };
        }
        begin.elapsed().as_nanos() / rounds as u128
    }
}

/// Minimum and median.
fn summary(mut times: Vec<u128>) -> (u128, u128) {
    times.sort_unstable();
    (times[0], times[times.len() / 2])
}

/// Measures all.
pub(crate) fn measure() {
    println!("                    three passes [ns]       one pass [ns]");
    println!("cache     bytes      min    median        min    median");
    for (cache, bytes) in [("hot", HOT), ("cold", COLD)] {
        for len in LENS {
            let mut payloads = Payloads::new(len, bytes);
            let mut times = [Vec::new(), Vec::new()];
            for _ in 0..ROUNDS {
                for (times, passes) in times.iter_mut().zip([three as Passes, one]) {
                    times.push(payloads.round(passes));
                }
            }
            let [three, one] = times.map(summary);
            println!(
                "{cache:<5} {len:>9} {:>8} {:>9}   {:>8} {:>9}",
                three.0, three.1, one.0, one.1
            );
        }
    }
}

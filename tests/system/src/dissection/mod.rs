//! Captures of iWARP, and what tshark says of them.
//!
//! Frames come from two RNICs in the simulator, or from two plain TCP stacks that say what the wire
//! types make: a [`Cable`]. The project's own tap writes them, so nothing here needs root.

mod cable;
mod tshark;

pub use cable::Cable;
pub use tshark::{Capture, Dissected, OPTIONS, dissect};

use xwarp_iwarp::Framer;

/// An FPDU around `ulpdu`, with CRC.
pub fn fpdu(framer: &mut Framer, ulpdu: &[u8]) -> Vec<u8> {
    let mut fpdu = vec![0; framer.fpdu_len(ulpdu.len())];
    fpdu[Framer::ulpdu_at(ulpdu.len())].copy_from_slice(ulpdu);
    framer.seal(&mut fpdu, ulpdu.len());
    fpdu
}

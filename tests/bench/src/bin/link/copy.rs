//! Copies by one thread, as `memcpy` makes them.

use std::hint::black_box;
use std::time::{Duration, Instant};

const PIECE: usize = 64 << 10;
const AREA: usize = 4 << 20;
const TIME: Duration = Duration::from_secs(1);

pub(crate) fn run() {
    let (from, mut to) = (vec![0x5a_u8; AREA], vec![0_u8; AREA]);
    let (began, mut pieces) = (Instant::now(), 0_u32);
    while began.elapsed() < TIME {
        for (from, to) in from.chunks(PIECE).zip(to.chunks_mut(PIECE)) {
            black_box(to).copy_from_slice(black_box(from));
            pieces += 1;
        }
    }
    let bits = f64::from(pieces) * 8.0 * f64::from(u32::try_from(PIECE).unwrap_or(u32::MAX));
    println!("{:.2}", bits / began.elapsed().as_secs_f64() / 1e9);
}

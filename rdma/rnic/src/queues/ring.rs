//! Rings between an application and the engine, whose memory may not be there.

use std::hint::black_box;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::model::OutOfMemory;

/// A ring for so many entries.
pub fn ring<T>(entries: usize) -> Result<(Producer<T>, Consumer<T>), OutOfMemory> {
    // `rtrb` ends the process where there is no memory. So as much is asked for here first, and given back.
    let mut probe: Vec<T> = Vec::new();
    probe.try_reserve_exact(entries)?;
    drop(black_box(probe)); // an allocation that nobody sees is none
    Ok(RingBuffer::new(entries))
}

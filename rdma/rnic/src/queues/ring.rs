//! Rings between an application and the engine, allocated fallibly.
//!
//! A verb first allocates everything whose size its caller chooses: rings, the table of `STag`s,
//! the backlog of a resize. If that fails it returns `OutOfMemory` and changes nothing
//! (Insufficient Resources, verbs draft §9.5.1). Small allocations of fixed size abort the process,
//! as usual in Rust.

use std::hint::black_box;

use rtrb::{Consumer, Producer, RingBuffer};

use crate::model::OutOfMemory;

/// Ring for this number of entries.
pub fn ring<T>(entries: usize) -> Result<(Producer<T>, Consumer<T>), OutOfMemory> {
    // `rtrb` aborts the process if there is no memory. So the same amount is allocated here first,
    // and freed.
    let mut probe: Vec<T> = Vec::new();
    probe.try_reserve_exact(entries)?;
    drop(black_box(probe)); // the optimizer removes an unused allocation
    Ok(RingBuffer::new(entries))
}

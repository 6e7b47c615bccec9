//! Stacks on a seeded link that loses, repeats, reorders and delays, in virtual time: against each
//! other, and against smoltcp's socket as an independent peer.

mod ecn;
mod goodput;
mod kept;
mod large;
mod measure;
mod pacing;
mod pair;
mod robust;
mod seeds;
mod smol;
mod tail;

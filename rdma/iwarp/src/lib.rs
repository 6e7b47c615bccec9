//! MPA, DDP and RDMAP as pure state machines: every byte and rule of iWARP, and nothing else.
//!
//! Slices go in, slices and decisions come out (decision record iwarp/0001). There is no socket,
//! clock, thread, lock, log line or region memory here, and no allocation after a stream's
//! construction.
//!
//! Of the two iWARPs, this is the IETF's: DDP and RDMAP version 1 (RFC 5040, RFC 5041). MPA begins
//! with revision 2 (RFC 6581), and falls back to revision 1 for a peer without it. The CRC is on
//! unless both sides turn it off, and markers are sent if the peer requests them (RFC 5044). A
//! permissive mode accepts peers of the RDMA Consortium: MPA revision 0, DDP and RDMAP version 0.
//!
//! Names are the RFCs' names. Identifiers such as R5044-4.4-10 name requirements
//! (`tests/house/requirements.tsv`). D1 to D23 are decisions where the RFCs are silent
//! (`protocol/wire.md` §10, wire.md in comments); `protocol/vectors.md` has byte-exact examples.
//!
//! | layer | module | RFC |
//! |---|---|---|
//! | start-up frames, FPDUs, markers, CRC-32C | [`mpa`], [`crc`] | 5044, 6581 |
//! | tagged and untagged segments | [`ddp`] | 5041 |
//! | operations, their checks, Terminate | [`rdmap`] | 5040, 7306 |
//!
//! A received byte travels [`Deframer`] -> `Receiver::on_ulpdu` -> [`Inbound`]; a work request
//! travels `Sender` -> [`Message`] -> [`Segment`] -> [`Framer`].
#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod crc;
pub mod ddp;
pub mod mpa;
pub mod rdmap;
mod stag;

pub use mpa::{
    Deframer, Framer, Initiator, MpaError, Negotiated, PrivateData, Responder, StartupError,
    StartupParams,
};
pub use rdmap::{
    AccessError, AccessKind, AtomicOperation, AtomicRequest, FastReadSegment, FastSegment, Inbound,
    InboundAtomic, InboundRead, InvalidateError, Message, Opcode, Placement, ReadRequest,
    ReadResponse, ReceivedTerminate, Receiver, Resources, Segment, SendKind, Sender, StreamConfig,
    TermCode, Terminate, Violation, ViolationCause,
};
pub use stag::Stag;

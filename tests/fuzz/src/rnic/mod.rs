//! A whole RNIC whose peer is played by the input.
//!
//! The first two bytes set the scene, the rest is a program. One byte says what happens next in its
//! low four bits. Its high four bits and the bytes behind it say how. What is missing at the end
//! counts as 0, so every input is a program.
//!
//! | byte | bits |
//! |---|---|
//! | 0 | 0 the RNIC connects to the peer, not the peer to it; 1 FPDUs have no CRC; 2 FPDUs have markers; 3 IPv6; 4 small completion queue; 5 the application answers no request, 6 or rejects it; 7 the peer goes without a word |
//! | 1 | 0-1 IRD 32, 1, 0, 4; 2-3 ORD alike; 4 no RFC 7306; 5-7 the peer-to-peer model: none, by Send, Write, Read, any, or if the peer knows it by Send, Read, any |
//!
//! | low bits | what happens | bytes behind it |
//! |---|---|---|
//! | 0 | all that can happen at this instant | |
//! | 1 | a start-up frame of the role: high bits R, S, C off, M | revision, bytes of private data, and those |
//! | 2 | an FPDU: high bits 0-1 number of changes, 2 wrong CRC, 3 not the last segment | opcode, bytes of payload, place, then for each change: where, XOR |
//! | 3 | an FPDU around any bytes | how many, and those |
//! | 4 | any bytes in the stream | how many, and those |
//! | 5 | what is not sent yet is changed | where, counted from the end; XOR |
//! | 6 | what is not sent yet is sent in segments | bytes of a segment, 0: 1024 |
//! | 7 | time passes: [`PAUSES`] | |
//! | 8 | time jumps, as for a process that was stopped | |
//! | 9 | the application posts: [`Application::post`] | length |
//! | a | the application does something else: [`Application::act`] | which |
//! | b | the peer does something else: [`Exchange::peer_acts`] | |
//! | c | a later frame of the peer's is changed: [`Edit`] | how many frames later; where; XOR |
//! | d | a raw frame: high bit 0 with an Ethernet header for the RNIC, 1 IPv6, 2 with checksums | how many bytes, and those |
//! | e | a forged segment of the connection, high bits: 32-bit words of options | flags, sequence number and acknowledgement (differences, two bytes each), window (two), bytes of payload, options, payload |
//! | f | a frame of the peer's comes again, high bits: how old | |

mod application;
mod exchange;
mod frame;
mod hostile;
mod memory;
mod program;
mod sides;

use std::time::Duration;

use crate::Behaviour;
use exchange::Exchange;
use program::Bytes;

/// Pauses by the high bits of operations 7 and 8.
const PAUSES: [Duration; 16] = [
    Duration::from_micros(1),
    Duration::from_micros(10),
    Duration::from_micros(100),
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_secs(1000),
];
/// Operations of one input.
const MAX_OPERATIONS: usize = 300;

/// Runs a program. Whatever the peer does, nothing panics, and everything comes to rest. Memory
/// that the peer may not write keeps its bytes, and none that it may not read reaches it. Every
/// work request completes once, and a well-behaved peer is served afterwards.
pub fn rnic(input: &[u8]) -> Behaviour {
    let mut exchange = run(input);
    exchange.serve_a_good_peer();
    exchange.behaviour()
}

/// Runs a program until everything is at rest.
fn run(input: &[u8]) -> Exchange {
    let mut bytes = Bytes::new(input);
    let mut exchange = Exchange::new(bytes.scene());
    for _ in 0..MAX_OPERATIONS {
        let Some(code) = bytes.next() else {
            break;
        };
        exchange.perform(code, &mut bytes);
    }
    exchange.end();
    exchange
}

#[cfg(test)]
mod tests {
    use super::application::TARGET_WRITTEN;
    use super::*;
    use crate::from_hex;

    /// An RNIC does not tell which way a segment took. Unless an RTR is due, it places all bytes of
    /// Writes the short way. The same goes for a Send of one segment that fits a buffer of the
    /// queue pair's own.
    #[test]
    fn corpus_has_writes_and_sends_that_go_the_short_way() {
        for (input, seen) in [
            (include_str!("../../corpus/rnic/write.hex"), TARGET_WRITTEN),
            (
                include_str!("../../corpus/rnic/send.hex"),
                "Receive Success",
            ),
        ] {
            let exchange = run(&from_hex(input).expect("hex"));
            assert!(exchange.saw(seen), "{seen}");
        }
    }
}

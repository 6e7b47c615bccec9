//! Every opcode and every Terminate, in the eyes of tshark, which knows iWARP from elsewhere. Its
//! own flaws are listed in `support.rs`; a flaw that is gone fails the tests, too.

mod engines;
mod opcodes;
mod support;
mod terminates;

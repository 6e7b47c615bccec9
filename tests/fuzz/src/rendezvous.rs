//! Private data that names queue pairs.

use xwarp_dropin::rendezvous::hello::{HELLO_BYTES, Hello, MAX_24};

/// Private data of a Request or a Reply. What was understood is understood again when it is
/// written.
pub fn rendezvous(input: &[u8]) {
    let Some(hello) = Hello::parse(input) else {
        return;
    };
    assert!(input.len() >= HELLO_BYTES);
    let numbers = [
        hello.from,
        hello.to,
        hello.recv_psn,
        hello.send_psn.unwrap_or(0),
    ];
    assert!(numbers.iter().all(|number| *number <= MAX_24));
    assert_eq!(Hello::parse(&hello.to_bytes()), Some(hello));
}

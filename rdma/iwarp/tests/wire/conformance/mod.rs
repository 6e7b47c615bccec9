//! Requirements without a test in vectors.md or in the rows of wire.md §9, by specification.

mod ddp;
mod extensions;
mod mpa;
mod rdmap;
mod registries;
mod startup;

use crate::support::hex;

/// Key of a Request and of a Reply.
const REQUEST: &str = "4d504120494420526571204672616d65";
const REPLY: &str = "4d504120494420526570204672616d65";

fn request(rest: &str) -> Vec<u8> {
    hex(&format!("{REQUEST}{rest}"))
}

fn reply(rest: &str) -> Vec<u8> {
    hex(&format!("{REPLY}{rest}"))
}

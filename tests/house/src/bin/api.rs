//! Prints the public interface of a crate from rustdoc's JSON: `api FACE.json [INNER.json...]`.
//! Items that the crate re-exports from the inner crates are part of it.

use std::env;

use anyhow::Context;
use xwarp_house_tests::Interface;

fn main() -> anyhow::Result<()> {
    let mut files = env::args_os().skip(1);
    let face = files
        .next()
        .context("usage: api FACE.json [INNER.json...]")?;
    print!("{}", Interface::read(face.as_ref(), files)?);
    Ok(())
}

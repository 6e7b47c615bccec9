//! Prints how the repository's style could be better: in short, or each place in the files and
//! folders that are named.

use std::env;
use std::fs;
use std::io;

use xwarp_house_tests::{Report, below_root, markdown_files, remarks, source_files};

fn main() -> io::Result<()> {
    let wanted: Vec<String> = env::args().skip(1).collect();
    let mut files = source_files()?;
    files.extend(markdown_files()?);
    let mut found = Vec::new();
    for path in files {
        found.extend(remarks(&below_root(&path), &fs::read_to_string(&path)?));
    }
    if wanted.is_empty() {
        println!("{}", Report::new(&found));
        println!("\nThis is advice. The arguments FILE or FOLDER list each place in them.");
        return Ok(());
    }
    found.retain(|it| wanted.iter().any(|path| it.file.starts_with(&**path)));
    for it in found {
        println!("{}:{}: {}: {}", it.file, it.line, it.rule.title(), it.what);
    }
    Ok(())
}

//! Coverage of the conformance ledger, or the text and evidence of one requirement, printed.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use xwarp_house_tests::ledger::{
    Catalogue, Coverage, Evidence, Ledger, Requirement, Row, repository,
};

/// Print what the conformance ledger covers, by specification and level.
#[derive(Parser)]
#[command(name = "ledger")]
struct Cli {
    /// Print the text and evidence of one requirement instead, such as R5044-4.3-5
    #[arg(long)]
    id: Option<String>,
}

/// Exit code for a ledger that cannot be read.
const FAILURE: u8 = 1;
/// Exit code for wrong arguments.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match report(&cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ledger: {error}");
            ExitCode::from(FAILURE)
        }
    }
}

/// Help where it was asked for, and one sentence for anything else.
fn usage(error: &clap::Error) -> ExitCode {
    if error.kind() == ErrorKind::DisplayHelp {
        print!("{error}");
        return ExitCode::SUCCESS;
    }
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default();
    eprintln!(
        "ledger: {}; try --help.",
        sentence.trim_start_matches("error: ")
    );
    ExitCode::from(USAGE)
}

fn report(cli: &Cli) -> Result<ExitCode, Box<dyn Error>> {
    let catalogue = Catalogue::own()?;
    let ledger = Ledger::load(&repository())?;
    let Some(id) = &cli.id else {
        print!("{}", Coverage::new(&catalogue, &ledger));
        return Ok(ExitCode::SUCCESS);
    };
    let Some(requirement) = catalogue.find(id) else {
        eprintln!("ledger: {id:?} is no requirement of the catalogue.");
        return Ok(ExitCode::from(USAGE));
    };
    print_row(requirement, ledger.find(id));
    Ok(ExitCode::SUCCESS)
}

fn print_row(requirement: &Requirement, row: Option<&Row>) {
    let status = row.map_or("without a row", |row| row.evidence.status());
    println!("{}  {}  {status}", requirement.id, requirement.level);
    println!("  {}", requirement.text);
    match row.map(|row| &row.evidence) {
        Some(Evidence::Excused(reason) | Evidence::Deviation(reason)) => println!("  {reason}"),
        Some(Evidence::Open(text)) => println!("  {text}"),
        Some(Evidence::Proved(_)) | None => {}
    }
    for citation in row.into_iter().flat_map(|row| row.evidence.citations()) {
        println!("  {citation}");
    }
}

//! A bad ledger is found to be one, each fault by its name.

use xwarp_house_tests::ledger::{Catalogue, Citation, Finding, Ledger, Sources, Table, check};

const CATALOGUE: &str =
    "id\tlevel\trequirement\nR5044-1\tMUST\tone\nR5044-2\tMAY\ttwo\nR6581-1\tinfo\tthree\n";
const EXCUSE: &str = "R5044-2\texcused\tis a choice that this implementation does not make";

/// What is found in files of these rows.
fn found(mpa: &[&str], enhanced: &[&str]) -> Vec<Finding> {
    let table = |file, rows: &[&str]| {
        let text = format!("id\tstatus\tevidence\n{}", rows.join("\n"));
        Table::parse(file, &text).expect("rows")
    };
    let ledger = Ledger {
        tables: vec![table("rfc5044.tsv", mpa), table("rfc6581.tsv", enhanced)],
    };
    let sources = Sources::default().with("a.rs", &["shows_it"]);
    let catalogue = Catalogue::parse(CATALOGUE).expect("requirements");
    check(&catalogue, &ledger, &sources)
}

const FIRST: &str = "R5044-1\tproved\ta.rs::shows_it";
const THIRD: &str = "R6581-1\tproved\ta.rs::shows_it";

fn cited(path: &str, function: &str) -> Citation {
    Citation {
        path: path.to_owned(),
        function: function.to_owned(),
    }
}

#[test]
fn nothing_is_found_in_a_good_ledger() {
    assert_eq!(found(&[FIRST, EXCUSE], &[THIRD]), []);
    let reason = "is met in another way, for which there is a reason";
    for row in [
        format!("R6581-1\tdeviation\t{reason}"),
        format!("R6581-1\tdeviation\t{reason} (see a.rs::shows_it)"),
    ] {
        assert_eq!(found(&[FIRST, EXCUSE], &[&row]), []);
    }
}

#[test]
fn requirement_without_a_row_is_missing() {
    let missing = Finding::Missing("R5044-2".to_owned());
    assert_eq!(found(&[FIRST], &[THIRD]), [missing]);
}

#[test]
fn second_row_is_a_duplicate() {
    let duplicate = Finding::Duplicate("R5044-1".to_owned());
    assert_eq!(found(&[FIRST, FIRST, EXCUSE], &[THIRD]), [duplicate]);
}

#[test]
fn row_without_a_requirement_is_unknown() {
    let unknown = Finding::Unknown {
        file: "rfc5044.tsv".to_owned(),
        id: "R5044-9".to_owned(),
    };
    let row = "R5044-9\tproved\ta.rs::shows_it";
    assert_eq!(found(&[FIRST, EXCUSE, row], &[THIRD]), [unknown]);
}

#[test]
fn row_in_the_file_of_another_specification_is_misfiled() {
    let misfiled = Finding::Misfiled {
        file: "rfc5044.tsv".to_owned(),
        id: "R6581-1".to_owned(),
    };
    assert_eq!(found(&[FIRST, EXCUSE, THIRD], &[]), [misfiled]);
}

#[test]
fn row_before_its_turn_is_out_of_order() {
    let disorder = Finding::OutOfOrder("R5044-1".to_owned());
    assert_eq!(found(&[EXCUSE, FIRST], &[THIRD]), [disorder]);
}

#[test]
fn open_row_is_found() {
    let open = Finding::Open {
        id: "R6581-1".to_owned(),
        missing: "a test".to_owned(),
    };
    let row = "R6581-1\topen\ta test";
    assert_eq!(found(&[FIRST, EXCUSE], &[row]), [open]);
}

#[test]
fn reason_without_substance_is_found() {
    for reason in ["", "n/a", "does not apply to us here"] {
        let thin = Finding::ThinReason {
            id: "R6581-1".to_owned(),
            reason: reason.to_owned(),
        };
        for row in [
            format!("R6581-1\texcused\t{reason}"),
            format!("R6581-1\texcused\t{reason} (see a.rs::shows_it)"),
            format!("R6581-1\tdeviation\t{reason}"),
            format!("R6581-1\tdeviation\t{reason} (see a.rs::shows_it)"),
        ] {
            let found = found(&[FIRST, EXCUSE], &[&row]);
            assert_eq!(found, std::slice::from_ref(&thin), "{row}");
        }
    }
}

#[test]
fn test_in_a_file_that_is_not_there_is_found() {
    let id = "R6581-1".to_owned();
    let citation = cited("b.rs", "shows_it");
    let finding = Finding::NotBuilt { id, citation };
    for row in [
        "R6581-1\tproved\ta.rs::shows_it b.rs::shows_it",
        "R6581-1\texcused\tis a case that cannot arise, as a test shows (see b.rs::shows_it)",
        "R6581-1\tdeviation\tis met in another way that a test shows (see b.rs::shows_it)",
    ] {
        let found = found(&[FIRST, EXCUSE], &[row]);
        assert_eq!(found, std::slice::from_ref(&finding), "{row}");
    }
}

#[test]
fn function_that_is_no_test_is_found() {
    let id = "R6581-1".to_owned();
    let citation = cited("a.rs", "shows");
    let finding = Finding::NoSuchTest { id, citation };
    for row in [
        "R6581-1\tproved\ta.rs::shows",
        "R6581-1\texcused\tis a case that cannot arise, as a test shows (see a.rs::shows)",
        "R6581-1\tdeviation\tis met in another way that a test shows (see a.rs::shows_it a.rs::shows)",
    ] {
        let found = found(&[FIRST, EXCUSE], &[row]);
        assert_eq!(found, std::slice::from_ref(&finding), "{row}");
    }
}

//! References of comments and documents: the repository has no dead one, and each kind of dead one
//! is found.

use xwarp_house_tests::ledger::{Catalogue, DeadReference, Tree, dead_references, repository};

const WIRE: &str =
    "# Wire\n\n## 9. Input\n\n| 37 | a | b |\n\n## 10. Decisions\n\n| D7 | a | b |\n";
const VERBS: &str = "# Verbs\n\n### 4.3 Flushing\n\n| A3 | a | b |\n";
const VECTORS: &str = "# Vectors\n\n- `F-4 Send` (32 B)\n\n**T-2 Write** -> 1/1/01\n";
const CATALOGUE: &str = "id\tlevel\trequirement\nR5044-4.3-5\tMUST\tbe so\nV-6.2-1\tMUST\tbe so\n";

/// What is dead in a file of this text, beside the documents of the protocol.
fn dead(path: &str, text: &str) -> Vec<(String, &'static str)> {
    let tree = Tree::default()
        .with("rdma/iwarp/protocol/wire.md", WIRE)
        .with("rdma/rnic/protocol/verbs.md", VERBS)
        .with("rdma/iwarp/protocol/vectors.md", VECTORS)
        .with(path, text);
    let catalogue = Catalogue::parse(CATALOGUE).expect("requirements");
    let found = dead_references(&tree, &catalogue);
    let cited = |it: DeadReference| {
        assert_eq!(it.file, path);
        (it.cited, it.missing)
    };
    found.into_iter().map(cited).collect()
}

#[test]
fn repository_has_no_dead_reference() {
    let tree = Tree::read(&repository()).expect("the files can be read");
    let catalogue = Catalogue::own().expect("requirements.tsv can be read");
    let dead = dead_references(&tree, &catalogue);
    let lines: Vec<String> = dead.iter().map(ToString::to_string).collect();
    assert!(
        lines.is_empty(),
        "{} dead:\n{}",
        lines.len(),
        lines.join("\n")
    );
}

#[test]
fn living_references_are_left_alone() {
    for kept in [
        "// wire.md §9, §10 and `verbs.md` §4.3; D7, A3, row 37, R5044-4.3-5, V-6.2-1, F-4, T-2 of vectors.md",
        "//! As in wire.md\n//! §9, row 37.",
        "const D99: &str = \"D99\"; // a name and a string are no references",
        "// write decisions/NNNN-title.md",
        "// a digest of RFC 3720 is a word, https://example.org/none.md an address",
    ] {
        assert_eq!(dead("src/a.rs", kept), [], "{kept}");
    }
    let document =
        "See [the table](../rdma/iwarp/protocol/wire.md#9-input), and row 99 of another page.";
    assert_eq!(dead("docs/a.md", document), []);
}

#[test]
fn dead_references_in_comments_are_found() {
    let (row, number) = (format!("row {}", 38), 99);
    let decision = |letter| format!("decision {letter}{number}");
    let (d, a) = (decision('D'), decision('A'));
    let (no_decision, no_name) = (
        "no decision of wire.md or verbs.md",
        "the name of no document",
    );
    #[rustfmt::skip]
    let cases = [
        ("as DESIGN.md says", "DESIGN.md", "no document of the tree"),
        ("verbs.md §4.3, §4.4", "verbs.md §4.3, §4.4", "no section of it"),
        (&*row, &*row, "no row of wire.md §9"),
        (&*d, "D99", no_decision),
        (&*a, "A99", no_decision),
        ("R5044-4.3-6", "R5044-4.3-6", "no requirement"),
        ("F-5 of vectors.md", "F-5", "no vector of vectors.md"),
        ("as the digest has it", "the digest", no_name),
        ("(digest 4.3)", "digest 4", no_name),
        ("one of the vectors", "the vectors", no_name),
        ("the catalogue's first", "catalogue", no_name),
    ];
    for (comment, cited, missing) in cases {
        let source = format!("/// {comment}\nfn f() {{}}\n");
        assert_eq!(
            dead("src/a.rs", &source),
            [(cited.to_owned(), missing)],
            "{comment}"
        );
    }
}

#[test]
fn dead_rows_in_labels_of_cases_are_found() {
    let label = format!("row {}", 38);
    let source = format!("const LABEL: &str = \"{label}: without L\";\n");
    assert_eq!(dead("src/a.rs", &source), [(label, "no row of wire.md §9")]);
}

#[test]
fn dead_rows_in_documents_are_found() {
    let row = format!("wire.md row {}", 38);
    assert_eq!(
        dead("docs/a.md", &row),
        [(row.clone(), "no row of wire.md §9")]
    );
}

//! Tests of a source file that run, and the files of its modules.
//!
//! A test is a function with `#[test]`, or an item whose documentation has an example that must not
//! compile.

use std::env::consts;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Ident, ImplItem, Item, ItemMod, Lit, Meta, MetaList, Token};

/// What `cargo test` makes of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// A program of its functions with `#[test]`.
    Tests,
    /// One program for each example of its documentation.
    Docs,
}

/// How the first line of an example that must not compile goes on.
const MUST_NOT_COMPILE: &str = "```compile_fail";

/// What one source file has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Names of the items that are tests and run.
    pub(crate) tests: Vec<String>,
    /// For each module elsewhere, the files that it can be.
    pub(crate) modules: Vec<Vec<PathBuf>>,
}

/// Reads the file at `path`; `is_root` if it is a target's, so that its modules lie beside it.
pub(crate) fn contents(
    path: &Path,
    source: &str,
    is_root: bool,
    build: Build,
) -> Result<Contents, syn::Error> {
    let file = syn::parse_file(source)?;
    let mut contents = Contents::default();
    if is_on(&file.attrs, build) {
        let beside = path.parent().unwrap_or(Path::new(""));
        let below = if is_root || path.file_name().is_some_and(|name| name == "mod.rs") {
            beside.to_owned()
        } else {
            path.with_extension("")
        };
        let place = Place {
            beside,
            below,
            build,
        };
        contents.read(&file.items, &place);
    }
    Ok(contents)
}

/// Where the files of modules are, and what they are built for.
struct Place<'a> {
    /// To which a `#[path]` is relative.
    beside: &'a Path,
    /// The directory of all others.
    below: PathBuf,
    build: Build,
}

impl Contents {
    fn read(&mut self, items: &[Item], place: &Place<'_>) {
        let build = place.build;
        for item in items {
            if build == Build::Docs {
                self.tests.extend(refused_by_the_compiler(item));
            }
            match item {
                Item::Mod(module) if is_on(&module.attrs, build) => self.module(module, place),
                _ if build == Build::Docs => {}
                Item::Fn(function) if runs(&metas(&function.attrs)) => {
                    self.tests.push(function.sig.ident.to_string());
                }
                Item::Macro(call)
                    if is_on(&call.attrs, build) && call.mac.path.is_ident("proptest") =>
                {
                    self.properties(call.mac.tokens.clone());
                }
                _ => {}
            }
        }
    }

    fn module(&mut self, module: &ItemMod, place: &Place<'_>) {
        let name = module.ident.to_string();
        if let Some((_, items)) = &module.content {
            let below = place.below.join(name);
            let beside = &below.clone();
            let build = place.build;
            let place = Place {
                beside,
                below,
                build,
            };
            return self.read(items, &place);
        }
        let candidates = match module.attrs.iter().find_map(path_of) {
            Some(path) => vec![place.beside.join(path)],
            None => vec![
                place.below.join(format!("{name}.rs")),
                place.below.join(name).join("mod.rs"),
            ],
        };
        self.modules.push(candidates);
    }

    /// The tests of a `proptest!` block. Its functions take `pattern in strategy`, so that they are
    /// no items yet.
    fn properties(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        let mut attributes = Vec::new();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => {
                    if let Some(TokenTree::Group(group)) = tokens.peek()
                        && group.delimiter() == Delimiter::Bracket
                        && let Ok(meta) = syn::parse2::<Meta>(group.stream())
                    {
                        attributes.push(meta);
                    }
                }
                TokenTree::Ident(word) if word == "fn" => {
                    if let Some(TokenTree::Ident(name)) = tokens.next()
                        && runs(&attributes.iter())
                    {
                        self.tests.push(name.to_string());
                    }
                    attributes.clear();
                }
                _ => {}
            }
        }
    }
}

/// The names of an item, or of the functions of an `impl`, that are documented by an example which
/// must not compile.
fn refused_by_the_compiler(item: &Item) -> Vec<String> {
    let named: Vec<(&Ident, &[Attribute])> = match item {
        Item::Impl(block) if is_on(&block.attrs, Build::Docs) => {
            block.items.iter().filter_map(function_of).collect()
        }
        item => name_of(item).into_iter().collect(),
    };
    let refused = |attributes: &[Attribute]| {
        let mut lines = attributes.iter().filter_map(doc_of);
        lines.any(|line| line.trim_start().starts_with(MUST_NOT_COMPILE))
    };
    named
        .into_iter()
        .filter(|(_, attributes)| refused(attributes) && is_on(attributes, Build::Docs))
        .map(|(name, _)| name.to_string())
        .collect()
}

fn function_of(item: &ImplItem) -> Option<(&Ident, &[Attribute])> {
    match item {
        ImplItem::Fn(function) => Some((&function.sig.ident, &function.attrs)),
        _ => None,
    }
}

fn name_of(item: &Item) -> Option<(&Ident, &[Attribute])> {
    match item {
        Item::Const(it) => Some((&it.ident, &it.attrs)),
        Item::Enum(it) => Some((&it.ident, &it.attrs)),
        Item::Fn(it) => Some((&it.sig.ident, &it.attrs)),
        Item::Mod(it) => Some((&it.ident, &it.attrs)),
        Item::Struct(it) => Some((&it.ident, &it.attrs)),
        Item::Trait(it) => Some((&it.ident, &it.attrs)),
        Item::Type(it) => Some((&it.ident, &it.attrs)),
        _ => None,
    }
}

/// A function with these attributes is a test that is built and not ignored.
fn runs<'a>(attributes: &(impl Iterator<Item = &'a Meta> + Clone)) -> bool {
    let has = |name: &str| attributes.clone().any(|meta| meta.path().is_ident(name));
    let is_ignored = has("ignore") || attributes.clone().any(ignores);
    has("test") && !is_ignored && are_on(attributes.clone(), Build::Tests)
}

/// `cfg_attr(predicate, ignore)` where the predicate holds; one that cannot be read counts.
fn ignores(attribute: &Meta) -> bool {
    let Meta::List(list) = attribute else {
        return false;
    };
    if !list.path.is_ident("cfg_attr") {
        return false;
    }
    let Some((predicate, added)) = parts_of(list).and_then(|parts| {
        let mut parts = parts.into_iter();
        Some((parts.next()?, parts))
    }) else {
        return true;
    };
    holds(&predicate, Build::Tests) && added.into_iter().any(|it| it.path().is_ident("ignore"))
}

fn parts_of(list: &MetaList) -> Option<Punctuated<Meta, Token![,]>> {
    list.parse_args_with(Punctuated::parse_terminated).ok()
}

/// An item with these attributes is built.
fn is_on(attributes: &[Attribute], build: Build) -> bool {
    are_on(metas(attributes), build)
}

fn metas(attributes: &[Attribute]) -> impl Iterator<Item = &Meta> + Clone {
    attributes.iter().map(|attribute| &attribute.meta)
}

fn are_on<'a>(mut attributes: impl Iterator<Item = &'a Meta>, build: Build) -> bool {
    attributes.all(|meta| match meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|it| holds(&it, build))
        }
        _ => true,
    })
}

/// Whether a predicate of `cfg` holds where `tools/test` runs. What is not known here does not:
/// features, `loom`, `miri`.
fn holds(predicate: &Meta, build: Build) -> bool {
    let of_build = match build {
        Build::Tests => "test",
        Build::Docs => "doctest",
    };
    match predicate {
        Meta::Path(path) => [of_build, "unix", "debug_assertions"]
            .iter()
            .any(|name| path.is_ident(name)),
        Meta::NameValue(pair) => {
            let value = text_of(&pair.value).unwrap_or_default();
            pair.path.is_ident("target_os") && value == consts::OS
                || pair.path.is_ident("target_arch") && value == consts::ARCH
        }
        Meta::List(list) => {
            let Some(parts) = parts_of(list) else {
                return false;
            };
            let mut parts = parts.iter();
            if list.path.is_ident("not") {
                parts.all(|part| !holds(part, build))
            } else if list.path.is_ident("all") {
                parts.all(|part| holds(part, build))
            } else {
                list.path.is_ident("any") && parts.any(|part| holds(part, build))
            }
        }
    }
}

/// The file that `#[path = "..."]` names.
fn path_of(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => text_of(&pair.value),
        _ => None,
    }
}

/// One line, or several, of documentation.
fn doc_of(attribute: &Attribute) -> Option<String> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => text_of(&pair.value),
        _ => None,
    }
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Build, Contents, contents};

    fn read(path: &str, source: &str, is_root: bool) -> Contents {
        contents(Path::new(path), source, is_root, Build::Tests).unwrap()
    }

    fn tests_of(source: &str) -> Vec<String> {
        read("a.rs", source, true).tests
    }

    const SOURCE: &str = r##"
fn helper() {}

#[test]
fn plain() {}

/// Row 3.
#[test]
#[should_panic(expected = "x")]
pub fn with_attributes() {
    #[test]
    fn inner() {}
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a table"
)]
// and a remark
fn with_a_long_attribute() {}

#[test]
#[ignore = "slow"]
fn ignored() {}

#[test]
#[cfg_attr(not(miri), ignore)]
fn ignored_here() {}

#[test]
#[cfg_attr(all(unix, test), ignore = "slow")]
fn ignored_here_as_well() {}

#[test]
#[cfg_attr(miri, ignore = "slow")]
#[cfg_attr(test, should_panic)]
fn ignored_elsewhere() {}

// #[test]
fn commented() {}

/*
#[test]
fn commented_as_well() {}
*/

const TEXT: &str = r#"
#[test]
fn quoted() {}
"#;

#[cfg(test)]
fn no_test() {}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    #[test]
    fn property(a: u8) {
    }

    #[test]
    #[ignore]
    fn ignored_property(a in 0..3) {
    }

    /// Not a test.
    fn no_property(a in 0..3) {
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn nested() {}
}
"##;

    #[test]
    fn tests_are_told_from_other_functions() {
        assert_eq!(
            tests_of(SOURCE),
            [
                "plain",
                "with_attributes",
                "with_a_long_attribute",
                "ignored_elsewhere",
                "property",
                "nested"
            ]
        );
    }

    #[test]
    fn tests_behind_a_cfg_that_is_off_do_not_run() {
        for (cfg, runs) in [
            ("test", true),
            ("not(test)", false),
            ("loom", false),
            ("not(loom)", true),
            ("feature = \"more\"", false),
            ("target_os = \"linux\"", true),
            ("target_os = \"windows\"", false),
            ("all(test, unix)", true),
            ("all(test, loom)", false),
            ("any(test, loom)", true),
            ("any(miri, loom)", false),
        ] {
            for source in [
                format!("#[cfg({cfg})] #[test] fn it() {{}}"),
                format!("#[cfg({cfg})] mod tests {{ #[test] fn it() {{}} }}"),
                format!("#![cfg({cfg})]\n#[test] fn it() {{}}"),
                format!("#[cfg({cfg})] proptest! {{ #[test] fn it(a: u8) {{}} }}"),
                format!("proptest! {{ #[cfg({cfg})] #[test] fn it(a: u8) {{}} }}"),
            ] {
                assert_eq!(tests_of(&source).len(), usize::from(runs), "{source}");
            }
        }
    }

    /// Items with examples of all kinds.
    const EXAMPLES: &str = r"
/// Not made by others.
/// ```compile_fail,E0451
/// let it = Private {};
/// ```
#[cfg(doctest)]
struct HasNoConstructor;

/// ```compile_fail
/// one();
/// ```
fn one() {}

/// ```
/// let it = 1;
/// ```
fn compiles() {}

impl HasNoConstructor {
    /// ```compile_fail
    /// HasNoConstructor::of(1);
    /// ```
    fn of(it: &str) {}

    fn other() {}
}

#[cfg(test)]
mod tests {
    /// ```compile_fail
    /// two();
    /// ```
    fn two() {}

    #[test]
    fn plain() {}
}

#[cfg(doctest)]
mod refused;
";

    #[test]
    fn items_with_an_example_that_must_not_compile_are_tests_of_the_documentation() {
        let read = |build| contents(Path::new("lib.rs"), EXAMPLES, true, build).unwrap();
        let docs = read(Build::Docs);
        assert_eq!(docs.tests, ["HasNoConstructor", "one", "of"]);
        assert_eq!(docs.modules[0][0], Path::new("refused.rs"));
        let tests = read(Build::Tests);
        assert_eq!(
            (&*tests.tests, &*tests.modules),
            (&["plain".to_owned()][..], &[][..])
        );
    }

    #[test]
    fn modules_are_sought_where_rust_seeks_them() {
        let source = "mod a; #[cfg(loom)] mod off; mod b { mod c; } #[path = \"../d/e.rs\"] mod f;";
        let modules = |path, is_root| read(path, source, is_root).modules;
        let expected = |below: &str| {
            [
                vec![format!("{below}/a.rs"), format!("{below}/a/mod.rs")],
                vec![format!("{below}/b/c.rs"), format!("{below}/b/c/mod.rs")],
                vec!["src/../d/e.rs".to_owned()],
            ]
            .map(|paths| paths.into_iter().map(PathBuf::from).collect::<Vec<_>>())
        };
        assert_eq!(modules("src/lib.rs", true), expected("src"));
        assert_eq!(modules("src/mod.rs", false), expected("src"));
        assert_eq!(modules("src/x.rs", false), expected("src/x"));
    }

    #[test]
    fn what_is_no_rust_is_an_error() {
        assert!(contents(Path::new("a.rs"), "fn", true, Build::Tests).is_err());
    }
}

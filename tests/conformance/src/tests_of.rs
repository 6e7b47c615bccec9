//! Which tests of a source file run, and which files belong to it.

use std::env::consts;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, ExprLit, Item, ItemMod, Lit, Meta, Token};

/// What one source file has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// Names of the functions that a test program of it runs.
    pub(crate) tests: Vec<String>,
    /// For each module elsewhere, the files that it can be.
    pub(crate) modules: Vec<Vec<PathBuf>>,
}

/// Reads the file at `path`; `is_root` if it is a target's, so that its modules lie beside it.
pub(crate) fn contents(path: &Path, source: &str, is_root: bool) -> Result<Contents, syn::Error> {
    let file = syn::parse_file(source)?;
    let mut contents = Contents::default();
    if is_on(&file.attrs) {
        let beside = path.parent().unwrap_or(Path::new(""));
        let below = if is_root || path.file_name().is_some_and(|name| name == "mod.rs") {
            beside.to_owned()
        } else {
            path.with_extension("")
        };
        contents.read(&file.items, &Place { beside, below });
    }
    Ok(contents)
}

/// Where the files of modules are.
struct Place<'a> {
    /// To which a `#[path]` is relative.
    beside: &'a Path,
    /// The directory of all others.
    below: PathBuf,
}

impl Contents {
    fn read(&mut self, items: &[Item], place: &Place<'_>) {
        for item in items {
            match item {
                Item::Fn(function) if runs(&metas(&function.attrs)) => {
                    self.tests.push(function.sig.ident.to_string());
                }
                Item::Mod(module) if is_on(&module.attrs) => self.module(module, place),
                Item::Macro(call) if is_on(&call.attrs) && call.mac.path.is_ident("proptest") => {
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
            return self.read(items, &Place { beside, below });
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

    /// The tests of a `proptest!` block. Its functions take `pattern in strategy`, so that they are no items yet.
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

/// A function with these attributes is a test that is built and not ignored.
fn runs<'a>(attributes: &(impl Iterator<Item = &'a Meta> + Clone)) -> bool {
    let has = |name: &str| attributes.clone().any(|meta| meta.path().is_ident(name));
    has("test") && !has("ignore") && !has("cfg_attr") && are_on(attributes.clone())
}

/// An item with these attributes is built into a test program.
fn is_on(attributes: &[Attribute]) -> bool {
    are_on(metas(attributes))
}

fn metas(attributes: &[Attribute]) -> impl Iterator<Item = &Meta> + Clone {
    attributes.iter().map(|attribute| &attribute.meta)
}

fn are_on<'a>(mut attributes: impl Iterator<Item = &'a Meta>) -> bool {
    attributes.all(|meta| match meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().is_ok_and(|it| holds(&it))
        }
        _ => true,
    })
}

/// Whether a predicate of `cfg` holds where `tools/test` runs. What is not known here does not: features, `loom`, `miri`.
fn holds(predicate: &Meta) -> bool {
    match predicate {
        Meta::Path(path) => ["test", "unix", "debug_assertions"]
            .iter()
            .any(|name| path.is_ident(name)),
        Meta::NameValue(pair) => {
            let value = text_of(&pair.value).unwrap_or_default();
            pair.path.is_ident("target_os") && value == consts::OS
                || pair.path.is_ident("target_arch") && value == consts::ARCH
        }
        Meta::List(list) => {
            let parts = Punctuated::<Meta, Token![,]>::parse_terminated;
            let Ok(parts) = list.parse_args_with(parts) else {
                return false;
            };
            let mut parts = parts.iter();
            if list.path.is_ident("not") {
                parts.all(|part| !holds(part))
            } else if list.path.is_ident("all") {
                parts.all(holds)
            } else {
                list.path.is_ident("any") && parts.any(holds)
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

    use super::{Contents, contents};

    fn read(path: &str, source: &str, is_root: bool) -> Contents {
        contents(Path::new(path), source, is_root).unwrap()
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
fn ignored_at_times() {}

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
        assert!(contents(Path::new("a.rs"), "fn", true).is_err());
    }
}

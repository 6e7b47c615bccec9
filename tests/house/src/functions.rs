//! Functions of a source file: their names, kinds and lengths.

use proc_macro2::{Delimiter, Group, LexError, TokenStream, TokenTree};

/// What a function is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is compiled always.
    Product,
    /// It is compiled for tests alone, or within one.
    ForTests,
    /// The test harness runs it.
    Test,
}

/// A function that has a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// Line on which its signature begins, counted from 1.
    pub line: usize,
    /// Lines from its signature to its closing brace.
    pub lines: usize,
    /// Lines between its braces.
    pub body_lines: usize,
}

/// All functions of `source`, those within others and in macros, too.
pub fn functions(source: &str) -> Result<Vec<Function>, LexError> {
    let mut found = Vec::new();
    collect(source.parse()?, Kind::Product, &mut found);
    Ok(found)
}

/// Collects the functions of `tokens`, which are of the kind `outer` unless their attributes say
/// more.
fn collect(tokens: TokenStream, outer: Kind, found: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut rest, mut kind) = (tokens.as_slice(), outer);
    while let [token, after @ ..] = rest {
        rest = after;
        match token {
            TokenTree::Group(group) => match attribute(group) {
                // The harness runs a test, whatever else is said of it.
                Some(said) if kind != Kind::Test => kind = said,
                Some(_) => {}
                None => collect(group.stream(), within(kind), found),
            },
            TokenTree::Ident(word) if word == "fn" => found.extend(function(token, after, kind)),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        if is_end(token) {
            kind = outer;
        }
    }
}

/// The kind of what is within an item.
fn within(kind: Kind) -> Kind {
    match kind {
        Kind::Product => Kind::Product,
        Kind::ForTests | Kind::Test => Kind::ForTests,
    }
}

/// What an attribute says of the item behind it.
fn attribute(attribute: &Group) -> Option<Kind> {
    if attribute.delimiter() != Delimiter::Bracket {
        return None;
    }
    let tokens: Vec<TokenTree> = attribute.stream().into_iter().collect();
    if names_test(&tokens) {
        Some(Kind::Test)
    } else if is_for_tests(&tokens) {
        Some(Kind::ForTests)
    } else {
        None
    }
}

/// `[test]`, or that of another harness, such as `[tokio::test]`.
fn names_test(attribute: &[TokenTree]) -> bool {
    let is_path = |token: &&TokenTree| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => mark.as_char() == ':',
        TokenTree::Group(_) | TokenTree::Literal(_) => false,
    };
    let last = attribute.iter().take_while(is_path).last();
    matches!(last, Some(TokenTree::Ident(name)) if name == "test")
}

/// `[cfg(test)]`, and the like.
fn is_for_tests(attribute: &[TokenTree]) -> bool {
    let [TokenTree::Ident(word), TokenTree::Group(what)] = attribute else {
        return false;
    };
    let conditions = what.stream().to_string();
    word == "cfg" && (conditions == "test" || conditions.starts_with("all (test"))
}

/// True where an item ends.
fn is_end(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Ident(_) | TokenTree::Literal(_) => false,
    }
}

/// The function whose signature begins with `begin`, and whose name comes first in `after`, if it
/// has a body.
fn function(begin: &TokenTree, after: &[TokenTree], kind: Kind) -> Option<Function> {
    let name = after.first()?;
    if matches!(name, TokenTree::Group(_)) {
        return None; // a function's type
    }
    let TokenTree::Group(body) = after.iter().find(|token| is_end(token))? else {
        return None;
    };
    let (open, close) = (body.span_open().start(), body.span_close().end());
    Some(Function {
        name: name.to_string(),
        kind,
        line: begin.span().start().line,
        lines: 1 + close.line - begin.span().start().line,
        body_lines: (close.line - open.line).saturating_sub(1),
    })
}

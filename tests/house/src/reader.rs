//! The sources of a crate as a module graph: follows `mod` from file to file, and collects the
//! paths that each module names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

use crate::graph::Graph;

/// Why a crate cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The operating system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// What was to be read.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// Not Rust.
    #[error("{}: {source}", path.display())]
    Syntax {
        /// What was read.
        path: PathBuf,
        /// What is wrong with it.
        source: LexError,
    },
}

impl Graph {
    /// The modules of the crate whose root is this file, without what only tests have.
    pub fn read(root: &Path) -> Result<Self, ReadError> {
        let mut graph = Self::default();
        let beside = root.parent().unwrap_or(Path::new(""));
        graph.read_file(root, beside, &[])?;
        Ok(graph)
    }

    /// A crate of one text, in which each module counts as a file.
    pub fn parse(source: &str) -> Result<Self, LexError> {
        let mut graph = Self::default();
        let outside = Module {
            path: &[],
            below: Path::new(""),
            is_file: false,
        };
        Reader::new(source.parse()?).module(&mut graph, &outside);
        Ok(graph)
    }

    /// Reads a file whose modules lie in the directory `below`.
    fn read_file(&mut self, path: &Path, below: &Path, module: &[String]) -> Result<(), ReadError> {
        let text = fs::read_to_string(path).map_err(|source| ReadError::Io {
            path: path.to_owned(),
            source,
        })?;
        let tokens: TokenStream = text.parse().map_err(|source| ReadError::Syntax {
            path: path.to_owned(),
            source,
        })?;
        let files = Reader::new(tokens).module(self, &Module::of_file(module, below));
        for (module, below) in files {
            let own = below.join("mod.rs");
            let beside = below.with_extension("rs");
            let file = if own.is_file() { own } else { beside };
            // Files that `#[path]` names belong to another crate.
            if file.is_file() {
                self.read_file(&file, &below, &module)?;
            }
        }
        Ok(())
    }
}

/// A module that is being read.
struct Module<'a> {
    path: &'a [String],
    /// Where the files of its modules are.
    below: &'a Path,
    /// Whether it is in a file, with the modules that are written in it.
    is_file: bool,
}

impl<'a> Module<'a> {
    fn of_file(path: &'a [String], below: &'a Path) -> Self {
        Self {
            path,
            below,
            is_file: true,
        }
    }
}

/// The tokens of a module.
struct Reader {
    tokens: Vec<TokenTree>,
    at: usize,
    /// The item that follows is there for tests only.
    for_tests: bool,
}

/// Modules in files of their own, and the directories of theirs.
type Files = Vec<(Vec<String>, PathBuf)>;

impl Reader {
    fn new(tokens: TokenStream) -> Self {
        Self {
            tokens: tokens.into_iter().collect(),
            at: 0,
            for_tests: false,
        }
    }

    fn ident(&self, at: usize) -> Option<String> {
        match self.tokens.get(at)? {
            TokenTree::Ident(ident) => Some(ident.to_string()),
            TokenTree::Group(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
        }
    }

    fn is_punct(&self, at: usize, mark: char) -> bool {
        matches!(self.tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == mark)
    }

    fn group(&self, at: usize) -> Option<TokenStream> {
        match self.tokens.get(at)? {
            TokenTree::Group(group) => Some(group.stream()),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => None,
        }
    }

    /// Collects what a module names; the modules that are in other files.
    fn module(mut self, graph: &mut Graph, module: &Module<'_>) -> Files {
        let mut files = Vec::new();
        graph.names(module.path);
        while self.at < self.tokens.len() {
            if self.is_punct(self.at, '#') {
                self.attribute();
            } else if self.for_tests {
                self.skip_item();
            } else if self.ident(self.at).as_deref() == Some("mod") {
                files.extend(self.child(graph, module));
            } else if self.ident(self.at).as_deref() == Some("use")
                && !self.is_punct(self.at + 1, '<')
            {
                self.import(graph, module);
            } else if let Some(inner) = self.group(self.at) {
                files.extend(Self::new(inner).module(graph, module));
                self.at += 1;
            } else {
                self.path(graph, module);
            }
        }
        files
    }

    fn attribute(&mut self) {
        self.at += 1;
        if let Some(TokenTree::Group(group)) = self.tokens.get(self.at)
            && group.delimiter() == Delimiter::Bracket
        {
            let text = group.stream().to_string().replace(' ', "");
            self.for_tests |= text == "cfg(test)" || text.starts_with("cfg(all(test,");
            self.at += 1;
        }
    }

    /// Up to the end of the item: a semicolon or a block.
    fn skip_item(&mut self) {
        self.for_tests = false;
        while let Some(token) = self.tokens.get(self.at) {
            let is_end = match token {
                TokenTree::Punct(punct) => punct.as_char() == ';',
                TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                TokenTree::Ident(_) | TokenTree::Literal(_) => false,
            };
            self.at += 1;
            if is_end {
                return;
            }
        }
    }

    /// `mod name;` or `mod name { ... }`.
    fn child(&mut self, graph: &mut Graph, module: &Module<'_>) -> Files {
        let Some(name) = self.ident(self.at + 1) else {
            self.at += 1;
            return Vec::new();
        };
        let below = module.below.join(&name);
        let path: Vec<String> = module.path.iter().cloned().chain([name]).collect();
        let inner = self.group(self.at + 2);
        self.at += 3;
        match inner {
            Some(inner) => {
                if module.is_file {
                    graph.set_inline(&path);
                }
                let child = Module {
                    path: &path,
                    below: &below,
                    is_file: module.is_file,
                };
                Self::new(inner).module(graph, &child)
            }
            None => vec![(path, below)],
        }
    }

    /// Whether `pub`, or `pub(...)`, is in front of this token.
    fn is_public(&self, at: usize) -> bool {
        let is_pub = |back: usize| {
            let before = at.checked_sub(back).and_then(|before| self.ident(before));
            before.as_deref() == Some("pub")
        };
        is_pub(1) || is_pub(2) && self.group(at - 1).is_some()
    }

    /// `use` up to its semicolon.
    fn import(&mut self, graph: &mut Graph, module: &Module<'_>) {
        let begin = self.at + 1;
        let end = (begin..self.tokens.len()).find(|&at| self.is_punct(at, ';'));
        let end = end.unwrap_or(self.tokens.len());
        let mut leaves = Vec::new();
        expand(&self.tokens[begin..end], &[], &mut leaves);
        let is_reexport = self.is_public(self.at);
        let names = graph.names(module.path);
        for (path, name) in leaves {
            names.imports.insert(name.clone(), path.clone());
            if is_reexport {
                names.reexports.push((name, path));
            } else {
                names.paths.push(path);
            }
        }
        self.at = end + 1;
    }

    /// A path, or any other token.
    fn path(&mut self, graph: &mut Graph, module: &Module<'_>) {
        let mut path: Vec<String> = self.ident(self.at).into_iter().collect();
        self.at += 1;
        while !path.is_empty()
            && self.is_punct(self.at, ':')
            && self.is_punct(self.at + 1, ':')
            && let Some(part) = self.ident(self.at + 2)
        {
            path.push(part);
            self.at += 3;
        }
        let names = graph.names(module.path);
        names.idents.extend(path.first().cloned());
        if path.len() > 1 {
            names.paths.push(path);
        }
    }
}

/// The paths of a `use` tree behind `prefix`, each with the name that it brings in.
fn expand(tokens: &[TokenTree], prefix: &[String], leaves: &mut Vec<(Vec<String>, String)>) {
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ',');
    for branch in tokens.split(is_comma) {
        let (mut path, mut alias, mut is_alias) = (prefix.to_vec(), None, false);
        for token in branch {
            match token {
                TokenTree::Ident(ident) if *ident == "as" => is_alias = true,
                TokenTree::Ident(ident) if is_alias => alias = Some(ident.to_string()),
                TokenTree::Ident(ident) => path.push(ident.to_string()),
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    expand(&inner, &path, leaves);
                    path.clear();
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
        if let Some(last) = path.last().cloned()
            && path.len() > prefix.len()
        {
            leaves.push((path, alias.unwrap_or(last)));
        }
    }
}

//! Public interface of a crate and of the items that it re-exports from inner crates, as rustdoc's
//! JSON has them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use anyhow::{Context, bail};
use public_api::{Builder, PublicItem};
use regex::{Captures, Regex};
use rustdoc_types::{Attribute, Crate, Id, Item, ItemEnum, ItemSummary, StructKind};

/// A path, or a single word.
static PATH: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[A-Za-z_]\w*(?:::\w+)*").expect("a regular expression"));

/// Traits of which rustdoc's JSON reports implementations that a program cannot use.
const HIDDEN_TRAITS: [&str; 2] = ["StructuralPartialEq", "PublicFlags"];

/// Every item, field, variant, method and trait that a program can name by the crate, one a line,
/// ordered by the item that they belong to.
pub struct Interface {
    lines: BTreeSet<(String, String)>,
}

impl Interface {
    /// Reads the JSON of the crate `face`, and of the inner crates whose items it re-exports.
    ///
    /// # Errors
    ///
    /// A file is not the JSON that `rustdoc-types` knows, or a re-exported item of an inner crate
    /// is not found there.
    pub fn read(face: &Path, inner: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        let face = Docs::read(face)?;
        let inner = inner.map(|file| Docs::read(file.as_ref()));
        let inner = inner.collect::<anyhow::Result<Vec<_>>>()?;
        let reexports = face.reexports(&inner)?;
        let names = Names::new(&reexports);
        let mut lines = BTreeSet::new();
        for item in face.items.iter().filter(|item| face.is_listed(item)) {
            lines.insert((face.root(item)?, names.replace(&face.line(item))));
        }
        for reexport in &reexports {
            // An item that the face has at a second path has one line there.
            if names.path(&reexport.definition) != reexport.public {
                continue;
            }
            lines.remove(&(reexport.public.clone(), reexport.line.clone()));
            for item in reexport.items() {
                let line = names.replace(&reexport.docs.line(item));
                lines.insert((reexport.public.clone(), line));
            }
        }
        Ok(Self { lines })
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|(_, line)| writeln!(f, "{line}"))
    }
}

/// What rustdoc wrote about one crate.
struct Docs {
    name: String,
    json: Crate,
    items: Vec<PublicItem>,
}

impl Docs {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let context = || format!("{} is not the JSON of a crate", file.display());
        let text = fs::read_to_string(file).with_context(context)?;
        let json: Crate = serde_json::from_str(&text).with_context(context)?;
        let items = Builder::from_rustdoc_json(file)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .include_function_parameter_names(true)
            .build()
            .with_context(context)?;
        let name = json.index.get(&json.root).and_then(|it| it.name.clone());
        Ok(Self {
            name: name.with_context(context)?,
            json,
            items: items.into_items().collect(),
        })
    }

    fn item(&self, id: Id) -> Option<&ItemEnum> {
        self.json.index.get(&id).map(|Item { inner, .. }| inner)
    }

    /// Whether the list has a line for an item. Blocks of inherent methods have none, and neither
    /// has what an implementation of a trait consists of. An implementation is listed by its type.
    fn is_listed(&self, item: &PublicItem) -> bool {
        let of_trait = |it: &rustdoc_types::Impl| it.trait_.as_ref().map(|it| it.path.clone());
        match (
            self.item(item.id()),
            item.parent_id().and_then(|it| self.item(it)),
        ) {
            (_, Some(ItemEnum::Impl(parent))) if of_trait(parent).is_some() => false,
            (Some(ItemEnum::Impl(_)), Some(ItemEnum::Trait(_))) => false,
            (Some(ItemEnum::Impl(it)), _) => of_trait(it)
                .is_some_and(|path| !HIDDEN_TRAITS.iter().any(|hidden| path.ends_with(hidden))),
            _ => true,
        }
    }

    /// An item as a line, with what `public-api` leaves out: values, and whether a struct has
    /// private fields.
    fn line(&self, item: &PublicItem) -> String {
        let value = match self.item(item.id()) {
            Some(ItemEnum::Struct(it)) => return format!("{item}{}", private_fields(&it.kind)),
            Some(ItemEnum::Variant(it)) => match &it.discriminant {
                Some(explicit) => Some(explicit.value.clone()),
                None => self.position(item).map(|it| it.to_string()),
            },
            Some(ItemEnum::Constant { const_, .. }) => {
                Some(const_.value.as_ref().unwrap_or(&const_.expr).clone())
            }
            _ => None,
        };
        match value {
            Some(value) => format!("{item} = {value}"),
            None => item.to_string(),
        }
    }

    /// The discriminant of a variant without an explicit one, if its enum has a primitive
    /// representation and no explicit discriminants.
    fn position(&self, variant: &PublicItem) -> Option<usize> {
        let parent = self.json.index.get(&variant.parent_id()?)?;
        let has_primitive = |it: &Attribute| matches!(it, Attribute::Repr(it) if it.int.is_some());
        let ItemEnum::Enum(it) = &parent.inner else {
            return None;
        };
        let is_implicit = |id: &Id| matches!(self.item(*id), Some(ItemEnum::Variant(it)) if it.discriminant.is_none());
        let is_numbered =
            parent.attrs.iter().any(has_primitive) && it.variants.iter().all(is_implicit);
        let mut variants = it.variants.iter();
        variants
            .position(|id| *id == variant.id())
            .filter(|_| is_numbered)
    }

    /// The path of the item that is in a module and that `item` is, or is a part of.
    fn root(&self, item: &PublicItem) -> anyhow::Result<String> {
        let mut item = item;
        while let Some(parent) = item.parent_id() {
            match self.items.iter().find(|it| it.id() == parent) {
                Some(parent) if !matches!(self.item(parent.id()), Some(ItemEnum::Module(_))) => {
                    item = parent;
                }
                _ => break,
            }
        }
        self.path(item)
            .with_context(|| format!("{item} has no path"))
    }

    /// The path that an item's own line begins with.
    fn path(&self, item: &PublicItem) -> Option<String> {
        let text = item.to_string();
        let own = |word: &&str| {
            word.strip_prefix(&self.name)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        PATH.find_iter(&text)
            .map(|path| path.as_str())
            .find(own)
            .map(str::to_owned)
    }

    /// The items that this crate re-exports from inner crates.
    fn reexports<'a>(&self, inner: &'a [Docs]) -> anyhow::Result<Vec<Reexport<'a>>> {
        let mut found = Vec::new();
        for item in &self.items {
            let Some(ItemEnum::Use(it)) = self.item(item.id()) else {
                continue;
            };
            let summary = it.id.and_then(|id| self.json.paths.get(&id));
            let summary = summary.with_context(|| format!("{item}: of what?"))?;
            let Some(docs) = inner.iter().find(|docs| docs.name == summary.path[0]) else {
                continue;
            };
            if it.is_glob {
                bail!("{item} names no items");
            }
            let same = |other: &ItemSummary| {
                other.crate_id == 0 && (&other.path, &other.kind) == (&summary.path, &summary.kind)
            };
            let mut targets = docs.json.paths.iter().filter(|(_, it)| same(it));
            let (target, _) = targets
                .next()
                .with_context(|| format!("{item}: not found"))?;
            found.push(Reexport {
                public: self
                    .path(item)
                    .with_context(|| format!("{item} has no path"))?,
                line: self.line(item),
                definition: summary.path.join("::"),
                docs,
                target: *target,
            });
        }
        Ok(found)
    }
}

/// What follows a struct's name if it has private fields. `public-api` says it of tuples.
fn private_fields(kind: &StructKind) -> &'static str {
    match kind {
        StructKind::Plain {
            has_stripped_fields: true,
            ..
        } => " { .. }",
        _ => "",
    }
}

/// An item of an inner crate that the face re-exports.
struct Reexport<'a> {
    /// Its path in the face.
    public: String,
    /// The line of the re-export itself.
    line: String,
    /// The path of its definition.
    definition: String,
    docs: &'a Docs,
    target: Id,
}

impl Reexport<'_> {
    /// The item and its parts.
    fn items(&self) -> impl Iterator<Item = &PublicItem> {
        let mut ids = BTreeSet::from([self.target.0]);
        loop {
            let before = ids.len();
            for item in &self.docs.items {
                if item
                    .parent_id()
                    .is_some_and(|parent| ids.contains(&parent.0))
                {
                    ids.insert(item.id().0);
                }
            }
            if ids.len() == before {
                break;
            }
        }
        let items = self.docs.items.iter();
        items.filter(move |item| ids.contains(&item.id().0) && self.docs.is_listed(item))
    }

    /// The paths in lines of its own crate and of others.
    fn paths(&self) -> impl Iterator<Item = String> {
        let items = self.docs.items.iter();
        let public = items.filter(|item| item.id() == self.target);
        let public = public.filter_map(|item| self.docs.path(item));
        public.chain([self.definition.clone()])
    }
}

/// The paths in inner crates, and the shortest path in the face for each.
struct Names(BTreeMap<String, String>);

impl Names {
    fn new(reexports: &[Reexport<'_>]) -> Self {
        let mut names = BTreeMap::<String, String>::new();
        for reexport in reexports {
            for path in reexport.paths() {
                let name = names.entry(path).or_insert_with(|| reexport.public.clone());
                if reexport.public.len() < name.len() {
                    name.clone_from(&reexport.public);
                }
            }
        }
        Self(names)
    }

    /// A path as the face has it: the longest known part of it is replaced.
    fn path(&self, path: &str) -> String {
        let mut end = path.len();
        loop {
            if let Some(public) = self.0.get(&path[..end]) {
                return format!("{public}{}", &path[end..]);
            }
            match path[..end].rfind("::") {
                Some(at) => end = at,
                None => return path.to_owned(),
            }
        }
    }

    /// A line with all of its paths as the face has them.
    fn replace(&self, line: &str) -> String {
        let replaced = PATH.replace_all(line, |path: &Captures<'_>| self.path(&path[0]));
        replaced.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let names = [
            ("inner::ids::QpId", "face::attr::QpId"),
            ("inner::QpId", "face::attr::QpId"),
            ("inner::Error", "face::Error"),
        ];
        Names(names.map(|(from, to)| (from.into(), to.into())).into())
    }

    #[test]
    fn line_has_the_paths_of_the_face() {
        assert_eq!(
            names().replace(
                "pub fn inner::QpId::of(id: &inner::ids::QpId) -> Result<u8, inner::Error>"
            ),
            "pub fn face::attr::QpId::of(id: &face::attr::QpId) -> Result<u8, face::Error>"
        );
    }

    #[test]
    fn path_that_the_face_does_not_have_stays() {
        let line = "pub fn face::Rnic::io(&self) -> inner::QpIdList<inner::hidden::Error>";
        assert_eq!(names().replace(line), line);
    }
}

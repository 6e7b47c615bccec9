//! The catalogue of requirements: id, level and text of each.

use std::fmt;
use std::str::FromStr;

use super::Family;

/// How strongly a specification demands something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// MUST, MUST NOT, SHALL, REQUIRED.
    Must,
    /// SHOULD, RECOMMENDED.
    Should,
    /// MAY, OPTIONAL.
    May,
    /// A statement without a keyword, on which peers rely.
    Info,
}

impl Level {
    /// All of them, strongest first.
    pub const ALL: [Self; 4] = [Self::Must, Self::Should, Self::May, Self::Info];

    /// As `requirements.tsv` spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "MUST",
            Self::Should => "SHOULD",
            Self::May => "MAY",
            Self::Info => "info",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Self::ALL
            .into_iter()
            .find(|level| level.name() == name)
            .ok_or(())
    }
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Such as `R5044-4.3-5`: family, section, number.
    pub id: String,
    /// Where it comes from.
    pub family: Family,
    /// How strong it is.
    pub level: Level,
    /// What is required, in the project's own words. Never blank.
    pub text: String,
}

/// Why `requirements.tsv` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// The first line is another.
    #[error("requirements.tsv does not begin with the columns id, level and requirement")]
    Header,
    /// Not an id, a level and a text.
    #[error("line {line} of requirements.tsv is no id with a level and a text: {text:?}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// All of it.
        text: String,
    },
}

/// All requirements, in the catalogue's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    requirements: Vec<Requirement>,
}

impl Catalogue {
    /// The catalogue of this repository.
    pub fn own() -> Result<Self, CatalogueError> {
        Self::parse(include_str!("../../requirements.tsv"))
    }

    /// Reads `id<TAB>level<TAB>requirement` lines under a header.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let mut lines = text.lines();
        if lines.next() != Some("id\tlevel\trequirement") {
            return Err(CatalogueError::Header);
        }
        let requirements = lines
            .enumerate()
            .map(|(index, text)| {
                Self::requirement(text).ok_or_else(|| CatalogueError::Line {
                    line: index + 2,
                    text: text.to_owned(),
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    fn requirement(line: &str) -> Option<Requirement> {
        let mut columns = line.split('\t');
        let (id, level, text) = (columns.next()?, columns.next()?, columns.next()?);
        if columns.next().is_some() || text.trim().is_empty() {
            return None;
        }
        Some(Requirement {
            id: id.to_owned(),
            family: Family::of(id)?,
            level: level.parse().ok()?,
            text: text.to_owned(),
        })
    }

    /// All of them.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The requirement of this id.
    pub fn find(&self, id: &str) -> Option<&Requirement> {
        self.requirements
            .iter()
            .find(|requirement| requirement.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::{Catalogue, CatalogueError, Level};

    #[test]
    fn lines_that_are_no_requirement_are_named() {
        let line = |line, text: &str| CatalogueError::Line {
            line,
            text: text.to_owned(),
        };
        let headless = "R5044-1\tMUST\tbe so";
        assert_eq!(Catalogue::parse(headless), Err(CatalogueError::Header));
        for bad in [
            "R5044-2",
            "R5044-2\tmust\tbe so",
            "R1-1\tMUST\tbe so",
            "R5044-2\tMUST\tbe so\tand so",
            "R5044-2\tMUST",
            "R5044-2\tMUST\t",
            "R5044-2\tMUST\t ",
        ] {
            let text = format!("id\tlevel\trequirement\nR5044-1\tMUST\tbe\n{bad}");
            assert_eq!(Catalogue::parse(&text), Err(line(3, bad)), "{bad:?}");
        }
    }

    #[test]
    fn requirements_are_found() {
        let text = "id\tlevel\trequirement\nR5044-1\tMUST\tbe\nR5040-1\tinfo\tis so\n";
        let catalogue = Catalogue::parse(text).unwrap();
        assert_eq!(catalogue.requirements().len(), 2);
        let found = catalogue.find("R5040-1").unwrap();
        assert_eq!((found.level, &*found.text), (Level::Info, "is so"));
        assert_eq!(catalogue.find("R5040-2"), None);
    }
}

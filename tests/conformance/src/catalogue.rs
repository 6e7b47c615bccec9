//! What has to be proved: the ids of the requirements and their levels.

use std::fmt;
use std::str::FromStr;

use crate::Family;

/// How strongly a specification demands something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// MUST, MUST NOT, SHALL, REQUIRED.
    Must,
    /// SHOULD, RECOMMENDED.
    Should,
    /// MAY, OPTIONAL.
    May,
    /// Told without a keyword; behaviour that peers rely on.
    Info,
}

impl Level {
    /// All of them, strongest first.
    pub const ALL: [Self; 4] = [Self::Must, Self::Should, Self::May, Self::Info];

    /// As it is written in `ids.tsv`.
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
}

/// Why `ids.tsv` cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueError {
    /// The first line is another.
    #[error("ids.tsv does not begin with the columns id and level")]
    Header,
    /// Not an id and a level.
    #[error("line {line} of ids.tsv is no id with a level: {text:?}")]
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
        Self::parse(include_str!("../ids.tsv"))
    }

    /// Reads `id<TAB>level` lines under a header.
    pub fn parse(text: &str) -> Result<Self, CatalogueError> {
        let mut lines = text.lines();
        if lines.next() != Some("id\tlevel") {
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
        let (id, level) = line.split_once('\t')?;
        Some(Requirement {
            id: id.to_owned(),
            family: Family::of(id)?,
            level: level.parse().ok()?,
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
        for (text, error) in [
            ("R5044-1\tMUST", CatalogueError::Header),
            ("id\tlevel\nR5044-1\tMUST\nR5044-2", line(3, "R5044-2")),
            ("id\tlevel\nR5044-1\tmust", line(2, "R5044-1\tmust")),
            ("id\tlevel\nR1-1\tMUST", line(2, "R1-1\tMUST")),
        ] {
            assert_eq!(Catalogue::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn requirements_are_found() {
        let catalogue = Catalogue::parse("id\tlevel\nR5044-1\tMUST\nR5040-1\tinfo\n").unwrap();
        assert_eq!(catalogue.requirements().len(), 2);
        assert_eq!(
            catalogue.find("R5040-1").map(|found| found.level),
            Some(Level::Info)
        );
        assert_eq!(catalogue.find("R5040-2"), None);
    }
}

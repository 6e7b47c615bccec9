//! The specifications that requirements come from.

use std::fmt;

/// A specification, or another source of requirements; each has a file of the ledger, but the two
/// of the verbs share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// RDMAP.
    Rfc5040,
    /// DDP.
    Rfc5041,
    /// Security of DDP and RDMAP.
    Rfc5042,
    /// MPA.
    Rfc5044,
    /// Enhanced MPA start-up.
    Rfc6581,
    /// The registries of codes and opcodes.
    Rfc6580,
    /// Atomic Operations and Immediate Data.
    Rfc7306,
    /// The architecture of DDP and RDMA.
    Rfc4296,
    /// Applicability.
    Rfc5045,
    /// Demands on the security below, for block storage protocols.
    Rfc7146,
    /// What other implementations do.
    Interop,
    /// The Verbs specification, where the wire shows it.
    Verbs,
    /// The same, as its own catalogue has it.
    Draft,
}

impl Family {
    /// All of them, in the order of a report.
    pub const ALL: [Self; 13] = [
        Self::Rfc5040,
        Self::Rfc5041,
        Self::Rfc5042,
        Self::Rfc5044,
        Self::Rfc6581,
        Self::Rfc6580,
        Self::Rfc7306,
        Self::Rfc4296,
        Self::Rfc5045,
        Self::Rfc7146,
        Self::Interop,
        Self::Verbs,
        Self::Draft,
    ];

    /// The family that an id's first part names.
    pub fn of(id: &str) -> Option<Self> {
        let (prefix, _) = id.split_once('-')?;
        Self::ALL
            .into_iter()
            .find(|family| family.prefix() == prefix)
    }

    /// How ids of this family begin.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Rfc5040 => "R5040",
            Self::Rfc5041 => "R5041",
            Self::Rfc5042 => "R5042",
            Self::Rfc5044 => "R5044",
            Self::Rfc6581 => "R6581",
            Self::Rfc6580 => "R6580",
            Self::Rfc7306 => "R7306",
            Self::Rfc4296 => "R4296",
            Self::Rfc5045 => "R5045",
            Self::Rfc7146 => "R7146",
            Self::Interop => "INT",
            Self::Verbs => "VERBS",
            Self::Draft => "V",
        }
    }

    /// The file of the ledger that has its rows.
    pub fn file(self) -> String {
        match self {
            Self::Interop => "interop.tsv".to_owned(),
            Self::Verbs | Self::Draft => "verbs.tsv".to_owned(),
            rfc => format!("rfc{}.tsv", &rfc.prefix()[1..]),
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interop => f.pad("interoperability"),
            Self::Verbs => f.pad("verbs"),
            Self::Draft => f.pad("verbs draft"),
            rfc => f.pad(&format!("RFC {}", &rfc.prefix()[1..])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Family;

    #[test]
    fn id_names_its_family_and_file() {
        for (id, file) in [
            ("R5044-7.1.1-3", "rfc5044.tsv"),
            ("INT-siw-1", "interop.tsv"),
            ("VERBS-1", "verbs.tsv"),
            ("V-7.10.2-1", "verbs.tsv"),
        ] {
            assert_eq!(Family::of(id).map(Family::file).as_deref(), Some(file));
        }
        for id in ["R9999-1", "R5044", "", "r5044-1"] {
            assert_eq!(Family::of(id), None, "{id}");
        }
    }
}

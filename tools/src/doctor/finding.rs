//! Finding of `xwarp doctor`: a verdict on one subject, and the command that fixes it.

use serde_json::json;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// In order.
    Pass,
    /// An RNIC runs, but more slowly than it could, or not with every peer.
    Warn,
    /// No RNIC runs.
    Fail,
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) about: &'static str,
    pub(super) verdict: Verdict,
    /// The facts, in a few words or one sentence.
    pub(super) says: String,
    /// The command that removes the cause, or that some users want.
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn pass(about: &'static str, says: impl Into<String>) -> Self {
        Self::new(about, Verdict::Pass, says)
    }

    pub(super) fn warn(about: &'static str, says: impl Into<String>) -> Self {
        Self::new(about, Verdict::Warn, says)
    }

    pub(super) fn fail(about: &'static str, says: impl Into<String>) -> Self {
        Self::new(about, Verdict::Fail, says)
    }

    fn new(about: &'static str, verdict: Verdict, says: impl Into<String>) -> Self {
        Self {
            about,
            verdict,
            says: says.into(),
            remedy: None,
        }
    }

    pub(super) fn with_remedy(mut self, command: impl Into<String>) -> Self {
        self.remedy = Some(command.into());
        self
    }

    pub(super) fn as_json(&self) -> serde_json::Value {
        json!({
            "about": self.about, "verdict": self.verdict.name(), "says": self.says, "remedy": self.remedy,
        })
    }
}

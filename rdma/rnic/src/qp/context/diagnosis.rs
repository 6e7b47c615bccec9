//! Diagnosis: state of a queue pair and what it waits for, for a test that has timed out.

use std::fmt;

use super::{ConnStage, QpContext};

impl fmt::Debug for QpContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QpContext")
            .field("id", &self.id)
            .field("state", &self.state())
            .field("stage", &self.stage.name())
            .field("shown", &self.shared.state())
            .field("shown_engine", &self.shared.engine())
            .field("active", &self.active)
            .field("armed", &self.armed)
            .field("work", &self.work)
            .field("stream", &self.stage)
            .field("terminate", &self.terminate)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(connection, _) => connection.stream().fmt(f),
            Self::None | Self::Searching(_) | Self::Starting(_) | Self::Failed => {
                f.write_str(self.name())
            }
        }
    }
}

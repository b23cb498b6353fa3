//! The error for opening a store's file.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("file `{path}` is damaged ({reason})")]
    Damaged { path: PathBuf, reason: String },
    #[error(
        "file `{path}` was written by a newer release (format {found}, this one supports {known}): \
         run that release, or set a different `gateway.data_dir`"
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("{reason}")]
    Refused { reason: String },
    #[error("file `{path}` cannot be used: {reason}")]
    Unusable { path: PathBuf, reason: String },
}

impl OpenError {
    /// The reason without the path, for readers who must not learn it.
    pub(crate) fn why(&self) -> String {
        match self {
            Self::Damaged { reason, .. } => format!("file is damaged: {reason}"),
            Self::Unusable { reason, .. } => reason.clone(),
            Self::Newer { .. } => "file was written by a newer release".to_owned(),
            Self::Refused { .. } => "data directory is used by another gateway".to_owned(),
        }
    }

    /// Whether only an operator can make the file usable, so that it must not be touched until
    /// then.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Newer { .. } | Self::Refused { .. })
    }

    pub(crate) fn io(path: &Path, error: &io::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        Self::Unusable { path, reason }
    }

    pub(crate) fn sqlite(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Damaged { path, reason }
            }
            _ => Self::Unusable { path, reason },
        }
    }
}

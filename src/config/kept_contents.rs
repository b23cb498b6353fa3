//! Keeps previous contents of a configuration file. They are stored beside the file because they
//! contain its secrets, and the data directory must not hold readable secrets.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::store::{private_dir, write_private};
use crate::telemetry::{rfc3339, unix_millis};

/// Maximum number of kept contents; the oldest are deleted first.
const KEPT_MAX: usize = 5;

/// Suffix that turns the configuration's name into the name of the directory for kept contents.
const KEPT_DIR: &str = ".kept";

/// The kept contents of one file.
pub struct KeptContents<'f> {
    file: &'f Path,
}

impl<'f> KeptContents<'f> {
    pub fn of(file: &'f Path) -> Self {
        Self { file }
    }

    /// Stores a content under the current time, and deletes the oldest ones above the limit.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn keep(&self, text: &str) -> io::Result<PathBuf> {
        let directory = self.directory();
        private_dir(&directory)?;
        let now = rfc3339(unix_millis()).replace(':', "-");
        let extension = self.file.extension().unwrap_or_default().to_string_lossy();
        let path = directory.join(format!("{now}.{extension}"));
        write_private(&path, text.as_bytes())?;
        for old in self.list()?.into_iter().skip(KEPT_MAX) {
            fs::remove_file(old)?;
        }
        Ok(path)
    }

    /// The kept files, newest first.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn list(&self) -> io::Result<Vec<PathBuf>> {
        let entries = match fs::read_dir(self.directory()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let paths = entries.map(|entry| Ok(entry?.path()));
        let mut kept = paths.collect::<io::Result<Vec<PathBuf>>>()?;
        // Left unfinished by a killed process.
        kept.retain(|path| path.extension().is_none_or(|it| it != "new"));
        kept.sort();
        kept.reverse();
        Ok(kept)
    }

    /// The kept file of this name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns the system's error.
    pub fn find(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let mut kept = self.list()?.into_iter();
        Ok(kept.find(|path| path.file_name().is_some_and(|it| it == name)))
    }

    fn directory(&self) -> PathBuf {
        let mut directory = self.file.to_owned().into_os_string();
        directory.push(KEPT_DIR);
        directory.into()
    }
}

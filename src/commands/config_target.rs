//! The configuration file that a command changes, and the gateway that runs with it.

use std::fs;
use std::path::{Path, PathBuf};

use mcpvisor::admin::{OperatorClient, ask_status};
use mcpvisor::config::{
    Config, KeptContents, Loaded, Plan, ProcessEnvironment, read_file, replace_file,
};

use super::output::{CliError, current_thread_runtime};
use super::running_gateway::gateway_data_dir;

/// The configuration file, and the gateway that uses it.
pub(super) struct ConfigTarget {
    pub(super) file: PathBuf,
    /// The data directory of the gateway; `None` if none is running.
    pub(super) gateway: Option<PathBuf>,
}

/// The text of a file.
pub(super) struct Content {
    /// The file's name for messages.
    pub(super) name: String,
    pub(super) text: String,
}

impl Content {
    pub(super) fn read(file: &Path) -> Result<Self, CliError> {
        let name = file.display().to_string();
        let text = read_file(file).map_err(|error| format!("{name}: {error}"))?;
        Ok(Self { name, text })
    }
}

/// A text that may become the configuration.
pub(super) struct Candidate {
    pub(super) text: String,
    loaded: Loaded,
}

impl ConfigTarget {
    /// Finds the file that the running gateway reads, or else the one that the next would.
    ///
    /// # Errors
    ///
    /// Fails if the working directory cannot be determined, or the gateway does not answer.
    pub(super) fn find(path: Option<&Path>) -> Result<Self, CliError> {
        let file = || Config::file_to_write(path, &ProcessEnvironment::new());
        let Ok(data_dir) = gateway_data_dir(path) else {
            let (file, gateway) = (file()?, None);
            return Ok(Self { file, gateway });
        };
        let status = current_thread_runtime()?.block_on(ask_status(&data_dir))?;
        Ok(Self {
            file: status
                .config
                .path
                .map_or_else(file, |file| Ok(file.into()))?,
            gateway: Some(data_dir),
        })
    }

    /// Makes the running gateway, if there is one, read the file now.
    ///
    /// # Errors
    ///
    /// Returns why the gateway refuses the file.
    pub(super) fn reload(&self) -> Result<(), CliError> {
        self.gateway.as_deref().map_or(Ok(()), read_again)
    }

    pub(super) fn present(&self) -> Result<Content, CliError> {
        if !self.file.exists() {
            let file = self.file.display();
            return Err(format!("there is no configuration to replace: write {file} first").into());
        }
        Content::read(&self.file)
    }

    /// Validates a content as the new configuration.
    pub(super) fn candidate(&self, content: Content) -> Result<Candidate, CliError> {
        let loaded = self.check(&content)?;
        Ok(Candidate {
            text: content.text,
            loaded,
        })
    }

    /// Validates a content as if it were at the configuration's path.
    fn check(&self, content: &Content) -> Result<Loaded, CliError> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        let (text, environment) = (&content.text, ProcessEnvironment::new());
        Ok(Config::parse(text, &content.name, directory, &environment)?)
    }

    pub(super) fn plan(&self, present: &Content, wanted: &Candidate) -> Result<Plan, CliError> {
        let present = self.check(present)?;
        Ok(Plan::between(&present.config, &wanted.loaded.config))
    }

    /// Keeps the current content, applies the new one, and returns what changed.
    pub(super) fn replace(
        &self,
        present: &Content,
        wanted: &Candidate,
    ) -> Result<Option<Plan>, CliError> {
        // The old file may be invalid, which rules out a comparison.
        let plan = self.plan(present, wanted).ok();
        let kept = KeptContents::of(&self.file).keep(&present.text)?;
        self.put(&present.text, &wanted.text).inspect_err(|_| {
            // The current content was not replaced, so this copy is not needed. A leftover is
            // harmless.
            let _ = fs::remove_file(kept);
        })?;
        Ok(plan)
    }

    /// Writes the file, and waits until it is applied. If the gateway refuses it, the old content
    /// is restored.
    fn put(&self, old: &str, text: &str) -> Result<(), CliError> {
        replace_file(&self.file, text)?;
        let Err(why) = self.reload() else {
            return Ok(());
        };
        replace_file(&self.file, old)?;
        // Errors in the old content are ignored: it was in use before.
        let _ = self.reload();
        Err(format!("the gateway rejected it, and the file is unchanged: {why}").into())
    }
}

/// Makes a running gateway reload its configuration.
fn read_again(gateway: &Path) -> Result<(), CliError> {
    let client = OperatorClient::open(gateway)?;
    let config = current_thread_runtime()?.block_on(client.reload_config())?;
    match config.refused {
        Some(why) => Err(why.into()),
        None => Ok(()),
    }
}

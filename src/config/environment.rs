//! Access to environment variables and the working directory, so that tests need no process state.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Variable that resolves to the path of the running binary.
pub const EXECUTABLE: &str = "MCPVISOR_EXE";

/// Variable that takes precedence over every other listen address.
pub(super) const LISTEN: &str = "MCPVISOR_LISTEN";

/// The variables and the directory that a configuration can read besides its file.
pub trait Environment {
    /// Value of an environment variable; `None` if it is not set.
    fn var(&self, name: &str) -> Option<OsString>;

    /// Directory searched for `config.toml` when no file is given.
    ///
    /// # Errors
    ///
    /// Fails if the directory was removed or cannot be read.
    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }
}

/// A variable without surrounding whitespace; `None` if it is unset or empty.
pub(super) fn trimmed_var(environment: &dyn Environment, name: &str) -> Option<String> {
    let text = environment.var(name)?.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The environment of this process, with `MCPVISOR_EXE` set to the path of its binary.
#[derive(Clone, Debug)]
pub struct ProcessEnvironment {
    /// Read once: after an upgrade in place, the system would report a deleted file.
    executable: Option<PathBuf>,
    /// Address of a listening socket inherited from the service manager.
    listen: Option<SocketAddr>,
}

impl ProcessEnvironment {
    pub fn new() -> Self {
        Self {
            executable: std::env::current_exe().ok(),
            listen: None,
        }
    }

    /// Sets the address of an inherited listening socket, which takes precedence over every other.
    pub fn listens_on(&mut self, address: SocketAddr) {
        self.listen = Some(address);
    }
}

impl Default for ProcessEnvironment {
    fn default() -> Self {
        Self::new()
    }
}

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Option<OsString> {
        if name == EXECUTABLE {
            return self.executable.clone().map(PathBuf::into_os_string);
        }
        if name == LISTEN
            && let Some(address) = self.listen
        {
            return Some(address.to_string().into());
        }
        std::env::var_os(name)
    }
}

/// A fixed environment: variables missing from the map are unset.
impl Environment for BTreeMap<String, String> {
    fn var(&self, name: &str) -> Option<OsString> {
        self.get(name).map(OsString::from)
    }
}

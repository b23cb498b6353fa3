//! Where variables and the working directory come from, so that tests need no process state.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Name of the variable that stands for the path of the running binary.
const EXECUTABLE: &str = "MCPVISOR_EXE";

/// Name of the variable that wins over every other address.
pub(super) const LISTEN: &str = "MCPVISOR_LISTEN";

/// The variables and the directory that a configuration may read besides its file.
pub trait Environment {
    /// Value of an environment variable; `None` when it is not set.
    fn var(&self, name: &str) -> Option<OsString>;

    /// The directory in which `config.toml` is looked for when no file is named.
    ///
    /// # Errors
    ///
    /// Fails when the directory was removed or may not be read.
    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }
}

/// A variable without the space around it; `None` if nothing is left of it.
pub(super) fn trimmed_var(environment: &dyn Environment, name: &str) -> Option<String> {
    let text = environment.var(name)?.to_string_lossy().trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The environment of this process, with `MCPVISOR_EXE` as the path of its binary.
#[derive(Clone, Debug)]
pub struct ProcessEnvironment {
    /// Read once: after an upgrade in place the system would name a deleted file.
    executable: Option<PathBuf>,
    /// The socket that is there already.
    listen: Option<SocketAddr>,
}

impl ProcessEnvironment {
    pub fn new() -> Self {
        Self {
            executable: std::env::current_exe().ok(),
            listen: None,
        }
    }

    /// Somebody has opened this address for the process: it wins over every other.
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

/// A fixed environment: what is not in the map is not set.
impl Environment for BTreeMap<String, String> {
    fn var(&self, name: &str) -> Option<OsString> {
        self.get(name).map(OsString::from)
    }
}

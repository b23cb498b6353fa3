//! The sandbox of the programs that the gateway starts: which files, sockets, processes, kernel
//! interfaces and networks a server can reach. It knows nothing of MCP.
//!
//! The gateway decides (`plan`), and starts itself as a launcher (`launcher`) that confines itself
//! and then runs the program.

#[cfg(unix)]
mod child;
mod confinement;
mod host;
#[cfg(target_os = "linux")]
mod launcher;
mod places;
mod plan;
mod promises;
mod refusal;
mod settings;

#[cfg(unix)]
pub(crate) use child::before_exec;
pub(crate) use confinement::{Confinement, Namespaces};
pub(crate) use host::OWN_BINARY;
pub use host::{SandboxHost, kernel_support};
pub(crate) use plan::{Plan, PlanInput, plan};
pub use promises::{KernelSupport, Promise, promises};
pub(crate) use refusal::refusal;
pub use settings::{DEFAULT_LEVEL, Level, Network, SandboxSettings};

/// First argument of a process that is a launcher instead of a gateway.
pub(crate) const LAUNCHER: &str = "sandbox-exec";

/// Variable with the order for the launcher, which the server does not get. Other users can read
/// command lines, and a configured variable whose value begins like a path can be a secret.
pub(crate) const ORDER_VARIABLE: &str = "MCPVISOR_SANDBOX";

/// Second argument of a launcher, which names its stage: it confines itself, and starts the server.
pub(crate) const OUTER: &str = "outer";

/// The stage that detects what the kernel offers.
const PROBE: &str = "probe";

/// Runs the launcher if this process was started as one. Must be called first, because it needs a
/// process with one thread.
pub fn launch() -> Option<std::process::ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != LAUNCHER {
        return None;
    }
    #[cfg(target_os = "linux")]
    return Some(launcher::run(arguments));
    #[cfg(not(target_os = "linux"))]
    None
}

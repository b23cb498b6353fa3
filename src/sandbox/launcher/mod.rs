//! The launcher: a process that confines itself and becomes, or starts, the server.
//!
//! ```text
//! gateway
//!  └─ outer     enters the namespaces and hides paths; ends as the server ends
//!      └─ init  process 1 of the namespace: confines itself, reaps; dies with `outer`
//!          └─ the server, which dies with `init`, like all that it started
//! ```
//!
//! Without a namespace for processes, the launcher confines itself and executes the server. Both
//! processes use one thread and little memory, because every server has them.

mod capabilities;
mod covers;
mod files;
mod namespaces;
mod probe;
mod status;
mod syscalls;

use std::env;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, wait};

use super::{Confinement, LAUNCHER, ORDER_VARIABLE, OUTER, OWN_BINARY, PROBE};
use status::{ServerEnd, StatusPipe, StatusWriter};

/// The stage of process 1.
const INIT: &str = "init";

/// Exit codes of a launcher that could not run the server, as of shells and `sysexits.h`.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
const SYSTEM_ERROR: u8 = 71;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
enum LaunchError {
    #[error("{0}")]
    Arguments(&'static str),
    #[error("sandbox: {0}: {1}")]
    System(&'static str, io::Error),
    #[error("{program}: {1}", program = .0.display())]
    Program(OsString, io::Error),
}

/// Names the step that failed.
trait Step<T> {
    fn step(self, name: &'static str) -> Result<T, LaunchError>;
}

impl<T, E: Into<io::Error>> Step<T> for Result<T, E> {
    fn step(self, name: &'static str) -> Result<T, LaunchError> {
        self.map_err(|error| LaunchError::System(name, error.into()))
    }
}

/// Runs the stage that the arguments name: `STAGE [PLACE] PROGRAM ARGUMENT…`.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let stage = arguments.next().unwrap_or_default();
    let outcome = match stage.to_str() {
        Some(OUTER) => outer(arguments),
        Some(INIT) => init(arguments),
        Some(PROBE) => return probe::run(arguments),
        _ => Err(LaunchError::Arguments("this command is internal")),
    };
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "mcpvisor: {error}");
        ExitCode::from(match error {
            LaunchError::Program(_, error) if error.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            LaunchError::Program(..) => NOT_EXECUTABLE,
            LaunchError::Arguments(_) | LaunchError::System(..) => SYSTEM_ERROR,
        })
    })
}

fn outer(arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, LaunchError> {
    let confinement = order()?;
    for directory in &confinement.create {
        let mut builder = DirBuilder::new();
        // A directory that cannot be created is one that the server cannot write to.
        let _ = builder.recursive(true).mode(0o700).create(directory);
    }
    for (link, target) in &confinement.links {
        // It usually exists, as of an earlier start.
        let _ = symlink(target, link);
    }
    let namespaces = confinement.namespaces;
    if namespaces.mounts {
        namespaces::enter(namespaces).step("namespaces")?;
        covers::hide(&confinement).step("hidden paths")?;
    }
    if !namespaces.processes {
        confine(&confinement)?;
        let mut server = server(arguments)?;
        let error = server.exec();
        return Err(LaunchError::Program(server.get_program().to_owned(), error));
    }
    // A signal for the group is the server's. Process 1 needs no mask: the kernel protects it.
    let mask = SigSet::all();
    mask.thread_block().step("signals")?;
    let status = StatusPipe::open().step("pipe")?;
    let mut init = Command::new(OWN_BINARY);
    init.arg0("mcpvisor").args([LAUNCHER, INIT]);
    init.arg(status.place()).args(arguments);
    let mut init = init.spawn().step("process 1")?;
    drop(confinement);
    let exit = init.wait().step("process 1")?;
    Ok(end_as(status.read().unwrap_or_else(|| exit.into())))
}

fn init(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, LaunchError> {
    let confinement = order()?;
    let status = StatusWriter::open(&arguments.next().unwrap_or_default());
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .step("death signal")?;
    if status.as_ref().is_some_and(StatusWriter::is_unread) {
        // The outer process ended before it could take this one along.
        return Ok(ExitCode::FAILURE);
    }
    SigSet::all().thread_unblock().step("signals")?;
    namespaces::mount_proc().step("/proc")?;
    confine(&confinement)?;
    let mut server = server(arguments)?;
    let spawned = server.spawn();
    let child = spawned.map_err(|error| {
        let program = server.get_program().to_owned();
        LaunchError::Program(program, error)
    })?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    loop {
        let Some((ended, exit)) = wait(WaitOptions::empty()).step("wait")? else {
            continue;
        };
        if ended.as_raw_pid() == pid {
            let end = ServerEnd::from(std::process::ExitStatus::from_raw(exit.as_raw()));
            if let Some(status) = status {
                status.write(end);
            }
            // The kernel kills all that is left in the namespace.
            return Ok(ExitCode::from(end.shell_code()));
        }
    }
}

fn order() -> Result<Confinement, LaunchError> {
    let text = env::var(ORDER_VARIABLE).unwrap_or_default();
    serde_json::from_str(&text).map_err(|_| LaunchError::Arguments("this command is internal"))
}

fn server(mut arguments: impl Iterator<Item = OsString>) -> Result<Command, LaunchError> {
    let program = arguments.next();
    let program = program.ok_or(LaunchError::Arguments("no program to run"))?;
    let mut command = Command::new(program);
    command.args(arguments).env_remove(ORDER_VARIABLE);
    Ok(command)
}

/// Confines this process and all that it starts.
fn confine(confinement: &Confinement) -> Result<(), LaunchError> {
    rustix::thread::set_no_new_privs(true).step("no_new_privs")?;
    files::restrict(confinement)
        .map_err(io::Error::other)
        .step("Landlock")?;
    capabilities::drop_all().step("capabilities")?;
    syscalls::restrict(confinement)
        .map_err(io::Error::other)
        .step("seccomp")?;
    Ok(())
}

/// Ends this process as the server ended.
fn end_as(end: ServerEnd) -> ExitCode {
    if let ServerEnd::Signal(number) = end
        && let Ok(signal) = Signal::try_from(number)
    {
        // The server has dumped its core, if any.
        let none = rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = nix::sys::signal::raise(signal);
        let _ = SigSet::all().thread_unblock();
    }
    ExitCode::from(end.shell_code())
}

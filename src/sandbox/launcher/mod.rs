//! The launcher: a process that confines itself and becomes, or starts, the server.
//!
//! ```text
//! gateway
//!  └─ outer     enters the namespaces and hides paths; ends as the server ends
//!      └─ init  process 1 of the namespace: confines itself, reaps; dies with `outer`
//!          └─ the server, which dies with `init`, like all that it started
//! ```
//!
//! Without a namespace for processes, the launcher confines itself and executes the server. Every
//! server has both processes, so they use one thread and little memory: `init` is forked and executes
//! nothing, because the loader would write a megabyte of addresses into the data of a second program.

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
use std::process::{Command, ExitCode, ExitStatus, exit};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{WaitOptions, wait};

use super::{Confinement, ORDER_VARIABLE, OUTER, OWN_BINARY, PROBE, before_exec};
use status::{ServerEnd, StatusPipe, StatusWriter};

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

/// Runs the stage that the arguments name: `STAGE PROGRAM ARGUMENT…`.
pub(super) fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let stage = arguments.next().unwrap_or_default();
    ExitCode::from(match stage.to_str() {
        Some(OUTER) => code(outer(arguments)),
        Some(PROBE) => return probe::run(),
        _ => code(Err(LaunchError::Arguments("this command is internal"))),
    })
}

/// The exit code of a stage; reports an error.
fn code(outcome: Result<u8, LaunchError>) -> u8 {
    outcome.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "mcpvisor: {error}");
        match error {
            LaunchError::Program(_, error) if error.kind() == io::ErrorKind::NotFound => NOT_FOUND,
            LaunchError::Program(..) => NOT_EXECUTABLE,
            LaunchError::Arguments(_) | LaunchError::System(..) => SYSTEM_ERROR,
        }
    })
}

fn outer(arguments: impl Iterator<Item = OsString>) -> Result<u8, LaunchError> {
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
    let mut server = server(arguments)?;
    if !namespaces.processes {
        confine(&confinement)?;
        let error = server.exec();
        return Err(LaunchError::Program(server.get_program().to_owned(), error));
    }
    // A signal for the group is the server's. Process 1 needs no mask: the kernel protects it.
    SigSet::all().thread_block().step("signals")?;
    let status = StatusPipe::open().step("pipe")?;
    let writer = status.writer().step("pipe")?;
    let exit = forked(move || code(init(&confinement, &mut server, &writer))).step("process 1")?;
    Ok(end_as(status.read().unwrap_or_else(|| exit.into())))
}

/// Runs process 1 in a child, which is this program, and waits for its end.
#[expect(
    clippy::disallowed_methods,
    reason = "the child is a copy without a `main` to return to, and drains nothing"
)]
fn forked(mut run: impl FnMut() -> u8 + Send + Sync + 'static) -> io::Result<ExitStatus> {
    let mut child = Command::new(OWN_BINARY);
    // The child ends before it would execute a program, which also ends the wait of `spawn`.
    before_exec(&mut child, move || exit(run().into()));
    child.spawn()?.wait()
}

fn init(
    confinement: &Confinement,
    server: &mut Command,
    status: &StatusWriter,
) -> Result<u8, LaunchError> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .step("death signal")?;
    if status.is_unread() {
        // The outer process ended before it could take this one along.
        return Ok(1);
    }
    SigSet::all().thread_unblock().step("signals")?;
    namespaces::mount_proc().step("/proc")?;
    confine(confinement)?;
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
            let end = ServerEnd::from(ExitStatus::from_raw(exit.as_raw()));
            status.write(end);
            // The kernel kills all that is left in the namespace.
            return Ok(end.shell_code());
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
    if confinement.filters_calls {
        syscalls::restrict(confinement)
            .map_err(io::Error::other)
            .step("seccomp")?;
    }
    Ok(())
}

/// The exit code of a server, or the end of this process by the signal that ended the server.
fn end_as(end: ServerEnd) -> u8 {
    if let ServerEnd::Signal(number) = end
        && let Ok(signal) = Signal::try_from(number)
    {
        // The server has dumped its core, if any.
        let none = rustix::process::Rlimit {
            current: Some(0),
            maximum: Some(0),
        };
        let _ = rustix::process::setrlimit(rustix::process::Resource::Core, none);
        let _ = SigSet::all().thread_unblock();
        // The first one only removes the handler that Rust has for an overflow of the stack.
        let _ = nix::sys::signal::raise(signal);
        let _ = nix::sys::signal::raise(signal);
    }
    end.shell_code()
}

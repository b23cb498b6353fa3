//! The threads that fork and execute programs.
//!
//! A program on a hanging disk blocks the thread that executes it. Each program and working
//! directory therefore has its own thread, so that only its own servers are delayed. The threads
//! live until the spawner ends, because the system kills a child when the thread that started it
//! ends.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::OsString;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::check_program;

/// Maximum threads; further programs share existing ones.
const LANES_MAX: usize = 64;

/// Maximum children that wait for one thread.
const WAITING_MAX: usize = 64;

/// A program that a launcher runs, and the `PATH` in which it is looked for. Whether it exists is
/// checked here, because looking can hang as well.
#[derive(Debug)]
pub(crate) struct CheckedProgram {
    pub(crate) name: OsString,
    pub(crate) path: OsString,
}

/// A command to execute, the program that it launches, and the channel for its child.
struct Execution {
    command: Command,
    program: Option<CheckedProgram>,
    reply: oneshot::Sender<io::Result<Child>>,
}

impl Execution {
    fn start(&mut self) -> io::Result<Child> {
        if let Some(program) = &self.program {
            let directory = self.command.as_std().get_current_dir();
            check_program(Path::new(&program.name), &program.path, directory)?;
        }
        self.command.kill_on_drop(true).spawn()
    }
}

/// Key of a thread: the program that it executes, and its working directory.
#[derive(PartialEq, Eq, Hash)]
struct LaneKey {
    program: OsString,
    directory: Option<PathBuf>,
}

/// The threads, by program and working directory.
#[derive(Default)]
pub(super) struct ExecLanes {
    lanes: HashMap<LaneKey, SyncSender<Execution>>,
    hasher: RandomState,
}

impl ExecLanes {
    /// Starts a child. Must be called within the runtime that waits for it.
    ///
    /// # Errors
    ///
    /// Returns the system's error if no thread can be started, or an error if earlier starts of the
    /// program hang.
    pub(super) fn spawn(
        &mut self,
        command: Command,
        program: Option<CheckedProgram>,
    ) -> io::Result<oneshot::Receiver<io::Result<Child>>> {
        let (reply, child) = oneshot::channel();
        let lane = self.lane_of(&command, program.as_ref())?;
        let execution = Execution {
            command,
            program,
            reply,
        };
        match lane.try_send(execution) {
            Ok(()) => Ok(child),
            Err(TrySendError::Full(_)) => Err(io::Error::other(
                "earlier starts of this program are still hanging",
            )),
            Err(TrySendError::Disconnected(_)) => Err(io::Error::other(
                "the thread that starts programs has ended",
            )),
        }
    }

    fn lane_of(
        &mut self,
        command: &Command,
        program: Option<&CheckedProgram>,
    ) -> io::Result<&SyncSender<Execution>> {
        let command = command.as_std();
        let launched = program.map(|program| program.name.as_os_str());
        let key = LaneKey {
            program: launched.unwrap_or(command.get_program()).to_owned(),
            directory: command.get_current_dir().map(PathBuf::from),
        };
        if self.lanes.len() >= LANES_MAX && !self.lanes.contains_key(&key) {
            let count = self.lanes.len() as u64;
            let index = usize::try_from(self.hasher.hash_one(&key) % count).unwrap_or_default();
            let shared = self.lanes.values().nth(index);
            return shared
                .ok_or_else(|| io::Error::other("no thread is available to start programs"));
        }
        match self.lanes.entry(key) {
            Entry::Occupied(lane) => Ok(lane.into_mut()),
            Entry::Vacant(none) => Ok(none.insert(start_lane()?)),
        }
    }
}

fn start_lane() -> io::Result<SyncSender<Execution>> {
    let (lane, executions) = sync_channel::<Execution>(WAITING_MAX);
    let runtime = Handle::current();
    let thread = std::thread::Builder::new().name("process-starter".to_owned());
    thread.spawn(move || {
        let _runtime = runtime.enter();
        for mut execution in executions {
            // The connection can have timed out while earlier starts hung.
            if !execution.reply.is_closed() {
                let started = execution.start();
                // If the connection is gone, the child is dropped, which kills it.
                let _ = execution.reply.send(started);
            }
        }
    })?;
    Ok(lane)
}

//! The thread that owns all child processes, and that ends them when it ends.
//!
//! The system kills a child when the *thread* that started it ends (`PR_SET_PDEATHSIG`), so neither
//! a web worker nor a connection's arbiter can start one; the threads of [`super::exec_lanes`] do.
//! The spawner waits for every child, so that none remains as a zombie, and ends all process groups
//! when it ends itself. Each child gets a tag by which descendants are found that left the group.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::ChildLimits;
use super::child_reaper::{ChildOrphans, ChildReaper, GroupHandle};
use super::exec_lanes::{CheckedProgram, ExecLanes};
use super::orphans::{KILL_WAIT_MAX, OrphanFinder};
use super::process::{
    ChildCgroup, ChildEnd, ChildPipes, FINDS_TAGGED_PROCESSES, OrphanScope, ProcessGroup,
    ProcessOwner, ServerCgroups, TAG_VARIABLE, prepare,
};

/// Maximum children that wait to be started.
const COMMANDS_MAX: usize = 256;

/// Handle of the spawner thread. The thread and all its children end after [`Spawner::stop`], or
/// when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Spawner {
    commands: mpsc::Sender<SpawnerCommand>,
    /// Whether no processes of earlier gateways are left, so that children can start.
    is_clear: watch::Sender<bool>,
    /// Where the children's control groups are, or why they have none.
    cgroups: Result<ServerCgroups, Arc<str>>,
}

#[derive(Debug)]
enum SpawnerCommand {
    Spawn(Box<SpawnRequest>, oneshot::Sender<io::Result<SpawnedChild>>),
    /// Ends processes that earlier gateways left behind; they get this long to exit before they are
    /// killed.
    EndOrphans(Duration),
    Stop(oneshot::Sender<()>),
}

/// The command to start, with its limits.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    /// All three standard streams must be piped.
    pub(crate) command: Command,
    /// The program that the command runs, if it is a launcher.
    pub(crate) program: Option<CheckedProgram>,
    /// Time for descendants to exit after their leader, before they are killed.
    pub(crate) grace: Duration,
    pub(crate) limits: ChildLimits,
}

/// A running child, as handed to its connection.
#[derive(Debug)]
pub(crate) struct SpawnedChild {
    /// Process id, which is also the id of its process group.
    pub(crate) leader: Option<u32>,
    pub(crate) pipes: ChildPipes,
    pub(crate) exit: oneshot::Receiver<ChildEnd>,
    pub(crate) group: GroupHandle,
}

impl Spawner {
    /// Starts the thread. Its children and all their descendants carry a tag of this instance.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot create the thread or the event queue.
    pub fn start(instance: ProcessOwner) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (commands, queue) = mpsc::channel(COMMANDS_MAX);
        let is_clear = watch::Sender::new(true);
        let cgroups = ServerCgroups::claim();
        let groups = cgroups.clone().ok();
        std::thread::Builder::new()
            .name("process-keeper".to_owned())
            .spawn({
                let is_clear = is_clear.clone();
                move || runtime.block_on(run(queue, OrphanFinder::new(instance), is_clear, groups))
            })?;
        Ok(Self {
            commands,
            is_clear,
            cgroups: cgroups.map_err(Into::into),
        })
    }

    /// Begins to end all processes that earlier gateways of the same data directory left behind:
    /// asks them to exit, and kills them after `grace`. Until then no child starts, because they
    /// may hold what it needs. Must only be called while no other gateway uses the directory.
    pub async fn end_orphans(&self, grace: Duration) {
        self.is_clear.send_replace(false);
        // An error implies that the thread has ended.
        let _ = self.commands.send(SpawnerCommand::EndOrphans(grace)).await;
    }

    /// Kills all children and ends the thread, after which nothing can be started. Resolves when
    /// all have ended.
    pub async fn stop(&self) {
        // An error implies that the thread has ended.
        let _ = self.ask(SpawnerCommand::Stop).await;
    }

    /// Why the limits of process trees are not enforced; `None` if they are.
    pub fn missing_cgroups(&self) -> Option<&str> {
        self.cgroups.as_ref().err().map(AsRef::as_ref)
    }

    pub(crate) async fn spawn(&self, order: SpawnRequest) -> io::Result<SpawnedChild> {
        // An error implies that the thread has ended.
        let _ = self.is_clear.subscribe().wait_for(|clear| *clear).await;
        let spawn = |reply| SpawnerCommand::Spawn(Box::new(order), reply);
        let spawned = self.ask(spawn).await;
        spawned.unwrap_or_else(|| Err(io::Error::other("the gateway is stopping")))
    }

    /// Sends a command and waits for its answer; `None` if the thread has ended.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> SpawnerCommand,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

async fn run(
    mut queue: mpsc::Receiver<SpawnerCommand>,
    finder: OrphanFinder,
    is_clear: watch::Sender<bool>,
    cgroups: Option<ServerCgroups>,
) {
    let stop = CancellationToken::new();
    let mut lanes = ExecLanes::default();
    let mut children = JoinSet::new();
    let mut done = None;
    let mut numbers = 1_u64..;
    loop {
        tokio::select! {
            job = queue.recv() => match job {
                Some(SpawnerCommand::Spawn(order, reply)) => {
                    let marked = ChildOrphans {
                        finder: finder.clone(),
                        child: numbers.next().unwrap_or_default(),
                    };
                    let starting = execute(*order, &marked, &mut lanes, cgroups.as_ref());
                    children.spawn(keep(starting, marked, stop.clone(), reply));
                }
                Some(SpawnerCommand::EndOrphans(grace)) => {
                    let (ended, is_clear) = (end_orphans(finder.clone(), grace, stop.clone()), is_clear.clone());
                    children.spawn(async move {
                        ended.await;
                        is_clear.send_replace(true);
                    });
                }
                Some(SpawnerCommand::Stop(reply)) => {
                    done = Some(reply);
                    break;
                }
                None => break,
            },
            Some(_) = children.join_next() => {}
        }
    }
    queue.close();
    stop.cancel();
    let all = async { while children.join_next().await.is_some() {} };
    if timeout(KILL_WAIT_MAX, all).await.is_err() {
        log::error!(children = children.len(); "child processes have not ended");
    }
    drop(lanes);
    finder
        .end_all(OrphanScope::ThisRun, Duration::ZERO, pending())
        .await;
    if let Some(done) = done {
        let _ = done.send(());
    }
}

async fn end_orphans(finder: OrphanFinder, grace: Duration, stop: CancellationToken) {
    if FINDS_TAGGED_PROCESSES {
        finder
            .end_all(OrphanScope::EarlierRuns, grace, stop.cancelled())
            .await;
    } else {
        log::info!("processes of a killed gateway cannot be found on this system");
    }
}

/// A child that is being started, and the time for its descendants to exit.
struct Starting {
    child: io::Result<oneshot::Receiver<io::Result<Child>>>,
    cgroup: Option<ChildCgroup>,
    grace: Duration,
}

fn execute(
    mut order: SpawnRequest,
    orphans: &ChildOrphans,
    lanes: &mut ExecLanes,
    cgroups: Option<&ServerCgroups>,
) -> Starting {
    let create = |cgroups: &ServerCgroups| cgroups.create(orphans.child, order.limits.tree);
    let cgroup = cgroups.map(create).transpose();
    let prepared = cgroup.and_then(|cgroup| {
        prepare(&mut order.command, order.limits, cgroup.as_ref())?;
        Ok(cgroup)
    });
    let tag = orphans.finder.instance().tag(orphans.child);
    // Set last, so that no configuration can hide a child.
    order.command.env(TAG_VARIABLE, tag);
    let (cgroup, child) = match prepared {
        Ok(cgroup) => (cgroup, lanes.spawn(order.command, order.program)),
        Err(error) => (None, Err(error)),
    };
    Starting {
        child,
        cgroup,
        grace: order.grace,
    }
}

/// Waits for a child from its start until all its descendants have ended.
async fn keep(
    starting: Starting,
    orphans: ChildOrphans,
    stop: CancellationToken,
    mut reply: oneshot::Sender<io::Result<SpawnedChild>>,
) {
    let (grace, cgroup) = (starting.grace, starting.cgroup.clone());
    let started = tokio::select! {
        started = started(starting) => started,
        // The system can hang; a child that starts later is killed.
        () = stop.cancelled() => return,
        () = reply.closed() => return,
    };
    let taken = started.and_then(|mut child| {
        // From here on, an early return kills the child.
        let (leader, group) = (child.id(), ProcessGroup::of(&child, cgroup.clone()));
        let pipes = ChildPipes::take(&mut child)?;
        Ok((child, leader, group, pipes))
    });
    let (child, leader, group, pipes) = match taken {
        Ok(taken) => taken,
        Err(error) => return drop(reply.send(Err(error))),
    };
    let (exit_sender, exit) = oneshot::channel();
    let (gone_sender, gone) = oneshot::channel();
    let (group, mut reaper) = ChildReaper::new(group, stop.clone(), gone);
    // If the connection is gone, the group is dropped, which kills it.
    let _ = reply.send(Ok(SpawnedChild {
        leader,
        pipes,
        exit,
        group,
    }));
    let exit = reaper.wait_for_leader(child).await;
    let _ = exit_sender.send(ChildEnd {
        exit,
        out_of_memory: cgroup.as_ref().is_some_and(ChildCgroup::ran_out_of_memory),
    });
    reaper.end_descendants(grace).await;
    reaper.end_child_orphans(&orphans, grace).await;
    drop(reaper);
    let _ = gone_sender.send(());
    orphans.end_late(grace, &stop).await;
    // The killed processes have had time to end, so the group can be removed now.
    drop(cgroup);
}

async fn started(starting: Starting) -> io::Result<Child> {
    let child = starting.child?.await;
    child.unwrap_or_else(|_| {
        Err(io::Error::other(
            "the thread that starts programs has ended",
        ))
    })
}

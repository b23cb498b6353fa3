//! Waits for the end of a child, stops its process group in steps, and ends the descendants that
//! left the group.

use std::time::Duration;

use tokio::process::Child;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::orphans::{KILL_WAIT_MAX, OrphanFinder, POLL_FIRST, POLL_MAX};
use super::process::{OrphanScope, ProcessExit, ProcessGroup};

/// When descendants are searched for again after the end of their child: a process that is
/// executing another program cannot be found meanwhile, and on a busy machine that takes a while.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Controls all processes of one child. Dropping it kills them, and so does the end of the spawner,
/// of which its owner keeps a handle.
#[derive(Debug)]
pub(crate) struct GroupHandle {
    stage: watch::Sender<StopStage>,
    gone: oneshot::Receiver<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStage {
    Run,
    Terminate,
    Kill,
}

impl GroupHandle {
    /// Asks all processes to exit (SIGTERM).
    pub(crate) fn terminate(&self) {
        self.stage.send_replace(StopStage::Terminate);
    }

    /// Kills all processes (SIGKILL).
    pub(crate) fn kill(&self) {
        self.stage.send_replace(StopStage::Kill);
    }

    /// Resolves when no process is left.
    pub(crate) async fn gone(&mut self) {
        // An error implies that the spawner has ended, and the group with it.
        let _ = (&mut self.gone).await;
    }
}

struct StopStages {
    stages: watch::Receiver<StopStage>,
    stop: CancellationToken,
}

impl StopStages {
    /// The next order. A dropped connection and a gateway that is stopping count as an order to
    /// kill.
    async fn next(&mut self) -> StopStage {
        tokio::select! {
            changed = self.stages.changed() => match changed {
                Ok(()) => *self.stages.borrow_and_update(),
                Err(_) => StopStage::Kill,
            },
            () = self.stop.cancelled() => StopStage::Kill,
        }
    }
}

/// Descendants of one child that left its process group.
pub(super) struct ChildOrphans {
    pub(super) finder: OrphanFinder,
    pub(super) child: u64,
}

impl ChildOrphans {
    async fn end(&self, grace: Duration, hurry: impl Future<Output = ()>) {
        let wanted = OrphanScope::Child(self.child);
        self.finder.end_all(wanted, grace, hurry).await;
    }

    /// Ends descendants that were not visible when their child ended. A gateway that is stopping
    /// makes its own search.
    pub(super) async fn end_late(&self, grace: Duration, stop: &CancellationToken) {
        if timeout(LOOK_AGAIN, stop.cancelled()).await.is_err() {
            self.end(grace, stop.cancelled()).await;
        }
    }
}

pub(super) struct ChildReaper {
    group: ProcessGroup,
    orders: StopStages,
    /// Whether the processes have been killed, so that none is asked to exit any more.
    killed: bool,
}

impl ChildReaper {
    /// Creates the reaper of a running group and its handle. The sender of `gone` fires when no
    /// process of the group is left.
    pub(super) fn new(
        group: ProcessGroup,
        stop: CancellationToken,
        gone: oneshot::Receiver<()>,
    ) -> (GroupHandle, Self) {
        let (stage, stages) = watch::channel(StopStage::Run);
        let reaper = Self {
            group,
            orders: StopStages { stages, stop },
            killed: false,
        };
        (GroupHandle { stage, gone }, reaper)
    }

    /// Waits until the leader exits, carrying out orders meanwhile.
    pub(super) async fn wait_for_leader(&mut self, mut child: Child) -> ProcessExit {
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                stage = self.orders.next() => match stage {
                    StopStage::Run => {}
                    StopStage::Terminate => self.group.terminate(),
                    StopStage::Kill => {
                        self.killed = true;
                        self.group.kill();
                        // Needed on systems without process groups; fails harmlessly on others.
                        let _ = child.start_kill();
                        break child.wait().await;
                    }
                },
            }
        };
        status.map_or(ProcessExit::Unknown, ProcessExit::from)
    }

    /// Ends the processes that the leader left in its group: asks them to exit, then kills them.
    pub(super) async fn end_descendants(&mut self, grace: Duration) {
        if !self.group.is_alive() {
            return;
        }
        self.group.terminate();
        if !self.is_gone_within(grace, true).await {
            self.group.kill();
            self.is_gone_within(KILL_WAIT_MAX, false).await;
        }
    }

    /// Ends descendants that left the group, such as daemons and processes in sessions of their
    /// own.
    pub(super) async fn end_child_orphans(&mut self, orphans: &ChildOrphans, grace: Duration) {
        let grace = if self.killed { Duration::ZERO } else { grace };
        let orders = &mut self.orders;
        let hurry = async { while orders.next().await != StopStage::Kill {} };
        orphans.end(grace, hurry).await;
    }

    /// Waits up to `grace` for the group to end. If it `heeds_orders`, an order to kill ends the
    /// wait early.
    async fn is_gone_within(&mut self, grace: Duration, heeds_orders: bool) -> bool {
        let deadline = Instant::now() + grace;
        let mut pause = POLL_FIRST;
        while Instant::now() < deadline {
            if !heeds_orders {
                sleep(pause).await;
            } else if timeout(pause, self.orders.next()).await == Ok(StopStage::Kill) {
                self.killed = true;
                return false;
            }
            if !self.group.is_alive() {
                return true;
            }
            pause = (2 * pause).min(POLL_MAX);
        }
        false
    }
}

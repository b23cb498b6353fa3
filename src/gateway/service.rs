//! Integration with the service manager (systemd): socket activation and state notifications.
//!
//! The manager keeps the socket open during a restart of the gateway, so that connections wait
//! instead of being refused.

use std::io;
use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Takes the socket that the manager passed (`LISTEN_FDS`), if any. Must be called once, before the
/// process has threads, because it changes the environment. Child processes do not inherit the
/// socket.
///
/// # Errors
///
/// Returns an error when the passed sockets are unusable.
pub fn inherited_listener() -> io::Result<Option<TcpListener>> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => passed.take_tcp_listener(0).map_err(|error| {
            let message = format!("the service manager passes no TCP socket: {error}");
            io::Error::new(error.kind(), message)
        }),
        many => {
            let message =
                format!("the service manager passes {many} sockets: leave one `ListenStream=`");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        }
    }
}

/// Maximum states queued for a manager that does not read them.
const QUEUE_MAX: usize = 16;

/// Keeps the servers, which run as the same user, from reading this process's memory and
/// environment: other processes of the user cannot read its files in `/proc` or trace it, and it
/// leaves no core dump. Programs that it starts are not affected.
pub fn hide_from_servers() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            log::warn!(error:%; "could not protect the gateway's memory from servers of the same user");
        }
    }
}

/// State of the gateway, as reported to the manager.
#[derive(Clone, Debug)]
pub(super) enum ServiceState {
    /// Requests are answered. Contains a status line.
    Ready(String),
    /// The configuration is being reloaded; [`ServiceState::Ready`] follows.
    Reloading,
    Stopping,
}

/// Notifies the manager, if there is one (`NOTIFY_SOCKET`). A dedicated thread writes to the
/// socket, because the write blocks while the manager does not read.
pub(super) fn notify(state: ServiceState) {
    static QUEUE: OnceLock<Option<SyncSender<ServiceState>>> = OnceLock::new();
    let queue = QUEUE.get_or_init(|| {
        std::env::var_os("NOTIFY_SOCKET")?;
        start().inspect_err(warn).ok()
    });
    // A full queue drops the state, since the manager is not reading.
    let _ = queue.as_ref().map(|queue| queue.try_send(state));
}

fn start() -> io::Result<SyncSender<ServiceState>> {
    let (queue, states) = sync_channel(QUEUE_MAX);
    let send_all = move || states.iter().for_each(|state| send(&state));
    let thread = std::thread::Builder::new().name("service-notify".to_owned());
    thread.spawn(send_all).map(|_| queue)
}

fn send(state: &ServiceState) {
    let notified = match state {
        ServiceState::Ready(status) => {
            sd_notify::notify(&[NotifyState::Ready, NotifyState::Status(status)])
        }
        ServiceState::Reloading => NotifyState::monotonic_usec_now()
            .and_then(|now| sd_notify::notify(&[NotifyState::Reloading, now])),
        ServiceState::Stopping => sd_notify::notify(&[
            NotifyState::Stopping,
            NotifyState::Status("finishing the calls in flight"),
        ]),
    };
    if let Err(error) = notified {
        warn(&error);
    }
}

fn warn(error: &io::Error) {
    log::warn!(error:%; "could not notify the service manager");
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn the_memory_of_the_gateway_is_hidden_and_that_of_its_servers_is_not() {
        use std::process::Command;

        use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
        super::hide_from_servers();
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
        // The gateway reads a server's environment to recognize its own processes.
        let mut server = Command::new("sleep")
            .arg("60")
            .env("MARK", "it")
            .spawn()
            .unwrap();
        let path = format!("/proc/{}/environ", server.id());
        let look = || std::fs::read(&path).unwrap();
        // The kernel shows the new environment shortly after the program starts.
        let environment = (0..100_000)
            .map(|_| look())
            .find(|it| !it.is_empty())
            .unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(
            environment
                .split(|byte| *byte == 0)
                .any(|it| it == b"MARK=it")
        );
        set_dumpable_behavior(DumpableBehavior::Dumpable).unwrap();
    }
}

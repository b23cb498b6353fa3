//! Keeps a program running that listens on a port, as an init system would.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpSocket;

/// Time between two looks at the program.
const EVERY: Duration = Duration::from_millis(20);

/// A Python program that gets a port as its last argument, and is started again whenever it ended.
pub(crate) struct Keeper {
    pub(crate) port: u16,
    running: Arc<Mutex<Option<Child>>>,
    thread: Option<JoinHandle<()>>,
    /// Holds the port while the program does not.
    _port: TcpSocket,
}

impl Keeper {
    pub(crate) fn start(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let port = socket.local_addr().unwrap().port();
        let mut command = Command::new("python3");
        command.args(arguments).arg(port.to_string());
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null());
        let running = Arc::new(Mutex::new(Some(command.spawn().unwrap())));
        let kept = running.clone();
        // Locked for a moment only, since the test asks for the pid.
        let mut tend = move || {
            let mut kept = kept.lock().unwrap();
            let Some(child) = &mut *kept else {
                return false;
            };
            if child.try_wait().unwrap().is_some() {
                *child = command.spawn().unwrap();
            }
            true
        };
        let thread = std::thread::spawn(move || {
            while tend() {
                std::thread::park_timeout(EVERY);
            }
        });
        Self {
            port,
            running,
            thread: Some(thread),
            _port: socket,
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        let running = self.running.lock().unwrap();
        i32::try_from(running.as_ref().unwrap().id()).unwrap()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(mut child) = self.running.lock().unwrap().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

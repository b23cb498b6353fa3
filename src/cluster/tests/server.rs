//! A `redis-server` of a test.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::cluster::EngineSpec;

/// How many ports are tried.
const STARTS_MAX: usize = 5;

pub(super) struct RedisServer {
    child: Option<Child>,
    pub(super) port: u16,
    directory: tempfile::TempDir,
    arguments: Vec<String>,
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut found = std::env::split_paths(&path).map(|it| it.join("redis-server"));
    found.find(|it| it.is_file())
}

impl RedisServer {
    /// Starts an engine without persistence; `None` where it is not installed, except in CI.
    pub(super) fn start(arguments: &[&str]) -> Option<Self> {
        if program().is_none() {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI must install redis-server"
            );
            eprintln!("skipped: redis-server is not installed");
            return None;
        }
        let mut servers = (0..STARTS_MAX).map(|_| Self::new(arguments));
        // Another process can take the free port first.
        servers.find_map(|mut server| server.try_run().then_some(server))
    }

    fn new(arguments: &[&str]) -> Self {
        let port = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        Self {
            child: None,
            port: port.local_addr().unwrap().port(),
            directory: tempfile::tempdir().unwrap(),
            arguments: arguments.iter().map(|&it| it.to_owned()).collect(),
        }
    }

    /// Starts a Sentinel that watches the primary `main` at a port.
    pub(super) fn sentinel(primary: u16) -> Self {
        let mut sentinel = Self::new(&["--sentinel"]);
        let config = sentinel.directory.path().join("sentinel.conf");
        let text = format!("sentinel monitor main 127.0.0.1 {primary} 1\n");
        std::fs::write(&config, text).unwrap();
        // The file comes first.
        sentinel
            .arguments
            .insert(0, config.to_str().unwrap().to_owned());
        sentinel.run();
        sentinel
    }

    /// Starts the process, again on the same port.
    pub(super) fn run(&mut self) {
        assert!(self.try_run(), "redis-server ended");
    }

    /// Returns whether the process is ready.
    fn try_run(&mut self) -> bool {
        let mut command = Command::new(program().unwrap());
        command
            .args(&self.arguments)
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .arg("--dir")
            .arg(self.directory.path())
            .stdout(Stdio::piped());
        let is_sentinel = self.arguments.iter().any(|it| it == "--sentinel");
        if !is_sentinel {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        self.child = Some(child);
        let ready = if is_sentinel {
            "Sentinel ID is"
        } else {
            "Ready to accept connections"
        };
        let is_ready = lines.any(|line| line.unwrap().contains(ready));
        // A full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        is_ready
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // A frozen process dies as well.
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Stops the process without closing its connections, or lets it continue.
    pub(super) fn set_frozen(&self, frozen: bool) {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        let child = self.child.as_ref().unwrap();
        rustix::process::kill_process(Pid::from_child(child), signal).unwrap();
    }

    pub(super) fn spec(&self) -> EngineSpec {
        let url = format!("redis://127.0.0.1:{}", self.port);
        EngineSpec::parse(&url, None).unwrap()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

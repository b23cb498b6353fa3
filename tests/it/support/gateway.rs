//! A gateway as a process of its own, in a directory of its own.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use mcpvisor::admin::{Status, ask_status};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use super::{DEADLINE, Http, is_launcher, processes_of, signal, until};

/// Variable with the level of servers whose configuration names none.
const SANDBOX_LEVEL: &str = "MCPVISOR_SANDBOX_LEVEL";

const BINARY: &str = env!("CARGO_BIN_EXE_mcpvisor");

/// A quick temper, so that no test waits long for a server that comes back.
pub(crate) fn quick() -> String {
    r#"
[supervision]
backoff_initial = "50ms"
backoff_max = "200ms"
reconnect_every = "300ms"
jitter = 0.0
shutdown_timeout = "2s"
"#
    .to_owned()
}

/// The directory and environment of a gateway.
pub(crate) struct Setup {
    pub(crate) directory: TempDir,
    environment: Vec<(String, String)>,
    /// The soft and the hard limit of open files.
    open_files: Option<(u64, u64)>,
    /// Takes the file of the log, and returns what the gateway writes to.
    log: Option<Box<dyn Fn(File) -> Stdio>>,
}

impl Setup {
    pub(crate) const BINARY: &str = BINARY;

    /// A directory with this configuration.
    pub(crate) fn new(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.toml"), config).unwrap();
        Self {
            directory,
            environment: Vec::new(),
            open_files: None,
            log: None,
        }
    }

    /// The gateway starts with this soft and this hard limit of open files.
    pub(crate) fn open_files(mut self, soft: u64, hard: u64) -> Self {
        self.open_files = Some((soft, hard));
        self
    }

    /// The gateway writes its log to something that passes it on to the file.
    #[allow(dead_code, reason = "the chaos run uses it")]
    pub(crate) fn log_through(mut self, open: impl Fn(File) -> Stdio + 'static) -> Self {
        self.log = Some(Box::new(open));
        self
    }

    fn serve_command(&self) -> Command {
        let Some((soft, hard)) = self.open_files else {
            return self.command(&["serve"]);
        };
        let script = format!("ulimit -S -n {soft} && ulimit -H -n {hard} && exec \"$0\" serve");
        self.command_of("sh", &["-c", &script, BINARY])
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Servers run in the sandbox that they have by default.
    pub(crate) fn sandboxed(self) -> Self {
        self.variable(SANDBOX_LEVEL, "")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The mark that the gateway and, by their configuration, its servers carry.
    pub(crate) fn mark(&self) -> String {
        format!("IT_MARK={}", self.directory.path().display())
    }

    /// A command of the binary in this directory.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(BINARY, arguments)
    }

    /// Whether a command of the binary succeeds, and what it prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).output().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        (output.status.success(), printed)
    }

    /// A command of another program, in the same place.
    pub(crate) fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let mark = self.mark();
        let (name, value) = mark.split_once('=').unwrap();
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env(name, value)
            .env("MCPVISOR_LISTEN", "127.0.0.1:0")
            .env("XDG_RUNTIME_DIR", self.directory.path())
            .env("RUST_LOG", "info")
            // Launchers are processes, and take time to start.
            .env(
                SANDBOX_LEVEL,
                std::env::var(SANDBOX_LEVEL).as_deref().unwrap_or("off"),
            )
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Starts the gateway and waits until its port is open.
    pub(crate) async fn serve(self) -> Gateway {
        let (address, child) = self.launch().await;
        Gateway {
            address,
            child,
            setup: self,
        }
    }

    async fn launch(&self) -> (SocketAddr, Child) {
        let mut log = OpenOptions::new();
        let log = log.create(true).append(true).open(self.path("log"));
        let log = log.unwrap();
        let mut command = self.serve_command();
        let log = match &self.log {
            Some(open) => open(log),
            None => log.into(),
        };
        command.stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().unwrap();
        // The only writer of the log is the gateway.
        drop(command);
        let run = self.path(".mcpvisor/run.json");
        let found = until("run.json", || {
            let status = child.try_wait().unwrap();
            let run: Option<Value> = fs::read(&run)
                .ok()
                .and_then(|run| serde_json::from_slice(&run).ok());
            let run = run.filter(|run| run["pid"] == child.id());
            async move {
                match (status, run) {
                    (Some(status), _) => Some(Err(status)),
                    (None, run) => run.map(Ok),
                }
            }
        });
        let run = found.await.unwrap_or_else(|status| {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            panic!("the gateway ended with {status}:\n{log}")
        });
        // It opens a moment after the port.
        let data_dir = self.path(".mcpvisor");
        until("the control socket", || async {
            ask_status(&data_dir).await.ok()
        })
        .await;
        (run["listen"].as_str().unwrap().parse().unwrap(), child)
    }
}

/// A gateway that runs. When it is dropped it is killed, and none of its servers may be left.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    child: Child,
    pub(crate) setup: Setup,
}

impl Gateway {
    /// Starts a gateway and waits until every server is up.
    pub(crate) async fn start(config: &str) -> Self {
        let gateway = Setup::new(config).serve().await;
        gateway.all_up().await;
        gateway
    }

    /// Starts a gateway whose servers run in the sandbox that they have by default, and waits until
    /// every server is up.
    pub(crate) async fn sandboxed(config: &str) -> Self {
        let gateway = Setup::new(config).sandboxed().serve().await;
        gateway.all_up().await;
        gateway
    }

    /// Kills the gateway with SIGKILL.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again after its end, in the same directory.
    pub(crate) async fn start_again(&mut self) {
        (self.address, self.child) = self.setup.launch().await;
    }

    pub(crate) fn get(&self, path: &str) -> Http {
        Http::new(self.address, "GET", path)
    }

    /// Waits until every enabled server is up and listed, and has no second process to compare lists.
    pub(crate) async fn all_up(&self) {
        until("all servers up", || async {
            let listed = self.get("/readyz").send().await.status == 200;
            let health = self.get("/health").send().await.json().await;
            (listed && health["status"] == "ok").then_some(())
        })
        .await;
        self.wait_compared().await;
    }

    /// Waits until no server has a second process that compares its lists.
    pub(crate) async fn wait_compared(&self) {
        until("all lists compared", || async {
            let status = self.status().await;
            let mut servers = status["servers"].as_array()?.iter();
            let are_compared = servers.all(|server| {
                let connection = &server["connection"];
                let own = connection["own"].to_string();
                connection["is_comparing"].is_null() && !own.contains("lists depend on the client")
            });
            are_compared.then_some(())
        })
        .await;
    }

    /// The status as the API shows it.
    pub(crate) async fn status(&self) -> Value {
        serde_json::to_value(self.typed_status().await).unwrap()
    }

    pub(crate) async fn typed_status(&self) -> Status {
        ask_status(&self.setup.path(".mcpvisor")).await.unwrap()
    }

    /// The status of one server.
    pub(crate) async fn server(&self, name: &str) -> Value {
        let status = self.status().await;
        let servers = status["servers"].as_array().unwrap();
        let found = servers.iter().find(|server| server["name"] == name);
        found
            .unwrap_or_else(|| panic!("no server {name} in {status}"))
            .clone()
    }

    /// Waits until a server is in a state.
    pub(crate) async fn wait_state(&self, name: &str, state: &str) -> Value {
        until(&format!("server {name} {state}"), || async {
            // One that is being added may not be listed yet.
            let status = self.status().await;
            let servers = status["servers"].as_array()?.iter();
            let mut found = servers.filter(|server| server["name"] == name);
            found.find(|server| server["state"] == state).cloned()
        })
        .await
    }

    /// How often the shared connection to a server was begun.
    pub(crate) async fn generation(&self, name: &str) -> u64 {
        let server = self.server(name).await;
        server["connection"]["shared"]["generation"]
            .as_u64()
            .unwrap()
    }

    /// Waits until a server is up again after the generation that was lost: its callers may
    /// hear of the loss before it is to be seen in the status.
    pub(crate) async fn wait_renewed(&self, name: &str, lost: u64) -> Value {
        until(&format!("server {name} up again"), || async {
            let server = self.server(name).await;
            let generation = server["connection"]["shared"]["generation"].as_u64();
            (generation > Some(lost) && server["state"] == "up").then(|| server.clone())
        })
        .await
    }

    pub(crate) fn write_config(&self, config: &str) {
        // As editors do: a new file in the place of the old one.
        let (new, old) = (
            self.setup.path("config.new"),
            self.setup.path("config.toml"),
        );
        fs::write(&new, config).unwrap();
        fs::rename(&new, &old).unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.setup.path("log")).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Processes of a server that `servers::example` or `servers::python` configured, without the
    /// launchers of its sandbox.
    pub(crate) fn server_pids(&self, server: &str) -> Vec<i32> {
        let ours = processes_of(&self.setup.mark());
        let of_server = processes_of(&format!("IT_SERVER={server}"));
        ours.into_iter()
            .filter(|pid| of_server.contains(pid) && !is_launcher(*pid))
            .collect()
    }

    /// The one process of a server, while no other one shows what it lists without capabilities.
    #[track_caller]
    pub(crate) fn server_pid(&self, server: &str) -> i32 {
        let until = Instant::now() + DEADLINE;
        loop {
            match self.server_pids(server)[..] {
                [pid] => return pid,
                ref other => assert!(Instant::now() < until, "processes of {server}: {other:?}"),
            }
        }
    }

    pub(crate) fn signal(&self, which: Signal) {
        signal(self.pid(), which);
    }

    /// Waits until the process has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        until("the gateway's end", || {
            let status = self.child.try_wait().unwrap();
            async move { status }
        })
        .await
    }

    /// Waits until nothing that carries the mark is left.
    pub(crate) async fn nothing_left(&self) {
        let mark = self.setup.mark();
        until("the end of all processes", || async {
            processes_of(&mark).is_empty().then_some(())
        })
        .await;
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.setup.path(".mcpvisor")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- log of the gateway ---\n{}", self.log());
        }
        let mark = self.setup.mark();
        let tries = DEADLINE.as_millis() / 10;
        let left = (0..tries).find_map(|last| {
            let left = processes_of(&mark);
            if left.is_empty() {
                return Some(left);
            }
            pause();
            (last + 1 == tries).then_some(left)
        });
        for pid in left.unwrap_or_default() {
            signal(pid, Signal::KILL);
            if !std::thread::panicking() {
                panic!("process {pid} outlived its gateway");
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a destructor cannot wait in another way, and no actor lives on this thread"
)]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

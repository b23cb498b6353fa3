//! Shared by the tests that drive the gateway from Node: Node itself, packages from npm, a
//! gateway of their own, and waiting with a deadline.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::Instant;

/// Longest wait for a process to be ready, or to leave.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Oldest Node that server-everything and the SDK run on.
const NODE_MIN: u32 = 20;

/// Oldest Node that the conformance framework runs on, and the package that brings one.
const NODE_NEW: u32 = 22;
const NODE_PACKAGE: &str = "node@22.23.3";

/// Says loudly that something is not tested; in CI that is a failure.
pub(crate) fn not_tested(reason: &str) {
    assert!(std::env::var_os("CI").is_none(), "{reason}");
    // Not through the test's own output, which is shown only when it fails.
    let _ = writeln!(std::io::stderr(), "\nNOT TESTED: {reason}\n");
}

/// Copies the files of `tests/peers/FOLDER` into the target directory and installs their packages
/// there, as the lock file says. `None` without Node, except in CI, where that is a failure.
pub(crate) fn install(folder: &str) -> Option<PathBuf> {
    if let Err(reason) = has_node() {
        not_tested(&format!(
            "{reason}: this test needs Node {NODE_MIN} or later, and npm"
        ));
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/peers")
        .join(folder);
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _lock = lock(&target);
    let entries = fs::read_dir(&source)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    for file in entries.filter(|path| path.is_file()) {
        fs::copy(&file, target.join(file.file_name().unwrap())).unwrap();
    }
    let wanted = fs::read(source.join("package-lock.json")).unwrap();
    let installed = target.join("installed-package-lock.json");
    if fs::read(&installed).is_ok_and(|installed| installed == wanted) {
        return Some(target);
    }
    npm(&["ci", "--ignore-scripts"], &target);
    fs::write(installed, wanted).unwrap();
    Some(target)
}

/// A Node that is new enough for the conformance framework: the system's, or one from npm.
pub(crate) fn new_node() -> PathBuf {
    if major("node").is_ok_and(|major| major >= NODE_NEW) {
        return PathBuf::from("node");
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(NODE_PACKAGE.replace('@', "-"));
    let _lock = lock(&target);
    let node = target.join("node_modules/.bin/node");
    if !node.exists() {
        npm(
            &["install", "--no-save", "--prefix", ".", NODE_PACKAGE],
            &target,
        );
    }
    node
}

/// A directory that this process has for itself for as long as the file is open.
fn lock(directory: &Path) -> fs::File {
    fs::create_dir_all(directory).unwrap();
    let lock = fs::File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    lock
}

fn npm(arguments: &[&str], directory: &Path) {
    let output = Command::new("npm")
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    let received = text(&output);
    assert!(
        output.status.success(),
        "npm {arguments:?} failed:\n{received}"
    );
}

fn has_node() -> Result<(), String> {
    version("npm")?;
    match major("node")? {
        major if major >= NODE_MIN => Ok(()),
        major => Err(format!("`node` is {major}")),
    }
}

fn major(node: &str) -> Result<u32, String> {
    let version = version(node)?;
    let major = version.trim().trim_start_matches('v').split('.').next();
    let major = major.and_then(|major| major.parse().ok());
    major.ok_or_else(|| format!("`{node}` says {version}"))
}

fn version(tool: &str) -> Result<String, String> {
    let output = Command::new(tool).arg("--version").output();
    let output = output.map_err(|error| format!("`{tool}` cannot be run ({error})"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// A running gateway; it is stopped when this is dropped.
pub(crate) struct Gateway {
    process: Child,
    pub(crate) directory: TempDir,
    pub(crate) url: String,
}

impl Gateway {
    /// Starts one with these lines as its configuration. `PIDS` is a directory for the servers.
    pub(crate) fn start(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        fs::create_dir(&pids).unwrap();
        let file = directory.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_mcpvisor"))
            .arg("--config")
            .arg(&file)
            .env("PIDS", &pids)
            // The servers write down their process ids, which are others in a sandbox.
            .env("MCPVISOR_SANDBOX_LEVEL", "off")
            .env_remove("PORT")
            .env_remove("MCPVISOR_LISTEN")
            .stderr(log)
            .spawn()
            .unwrap();
        let mut gateway = Self {
            process,
            directory,
            url: String::new(),
        };
        gateway.url = gateway.wait_for_url();
        gateway
    }

    fn wait_for_url(&mut self) -> String {
        let run = self.directory.path().join("data/run.json");
        wait_until("the gateway serves", || {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("the gateway ended: {status}\n{}", self.log());
            }
            let run: serde_json::Value = serde_json::from_slice(&fs::read(&run).ok()?).ok()?;
            Some(format!("http://{}/mcp", run["listen"].as_str()?))
        })
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.process);
        let _ = kill_process(pid, Signal::TERM);
        end_of(&mut self.process, PATIENCE);
    }
}

/// A server that says its address in its first line; it is killed when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Self {
        use std::io::BufRead as _;
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut url = String::new();
        let output = process.stdout.take().unwrap();
        std::io::BufReader::new(output).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://"), "it says no address: {url:?}");
        Self { process, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program of server-everything, a public server of many features.
pub(crate) fn everything(scripts: &Path) -> PathBuf {
    scripts.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// server-everything that serves HTTP; it is killed when this is dropped.
pub(crate) struct HttpServer {
    process: Child,
    pub(crate) port: u16,
}

impl HttpServer {
    pub(crate) fn start(scripts: &Path) -> Self {
        Self::start_as("streamableHttp", scripts)
    }

    /// With the transport of revision 2024-11-05.
    pub(crate) fn start_sse(scripts: &Path) -> Self {
        Self::start_as("sse", scripts)
    }

    fn start_as(transport: &str, scripts: &Path) -> Self {
        let port = free_port();
        let process = Command::new("node")
            .arg(everything(scripts))
            .arg(transport)
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut server = Self { process, port };
        wait_until("server-everything listens", || {
            if let Some(status) = server.process.try_wait().unwrap() {
                panic!("server-everything ended: {status}");
            }
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        server
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// How a process ended; it is killed if it does not end in time.
pub(crate) fn end_of(process: &mut Child, within: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + within;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = process.try_wait() {
            return Some(status);
        }
        pause();
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

pub(crate) fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(
            Instant::now() < deadline,
            "waited without result until {what}"
        );
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "no actor lives on this thread")]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

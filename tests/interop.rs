//! The gateway between the official TypeScript SDK and a public server of many features.
//!
//! Every scenario is a script in `tests/interop/`, run by Node against a gateway of its own. The
//! packages are installed into the target directory, as the lock file says. Without Node nothing
//! can be tested: that is a loud message, and in CI a failure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::time::Instant;

/// Longest wait for a process to be ready, or to leave.
const PATIENCE: Duration = Duration::from_secs(30);

/// Oldest Node that server-everything runs on.
const NODE_MIN: u32 = 20;

/// Longest run of a script.
const SCRIPT_MAX: Duration = Duration::from_secs(180);

#[test]
fn the_sdk_is_served() {
    let Some(scripts) = scripts() else { return };
    let gateway = Gateway::start(EXAMPLE);
    gateway.run(scripts, "example.mjs", &[], 17);
}

#[test]
fn the_sdk_resumes_its_streams() {
    let Some(scripts) = scripts() else { return };
    let gateway = Gateway::start(EXAMPLE);
    gateway.run(scripts, "resume.mjs", &[], 3);
}

#[test]
fn a_public_server_is_the_same_over_stdio() {
    let Some(scripts) = scripts() else { return };
    let gateway = Gateway::start(&stdio_server(scripts));
    gateway.run(scripts, "everything.mjs", &[("SERVER", "stdio")], 8);
}

#[test]
fn a_public_server_is_the_same_over_http() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start(scripts);
    let gateway = Gateway::start(&http_server(server.port));
    gateway.run(scripts, "everything.mjs", &[("SERVER", "http")], 8);
}

#[test]
fn a_public_server_is_the_same_over_sse() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start_sse(scripts);
    // Its transport is found out.
    let gateway = Gateway::start(&sse_server(server.port));
    gateway.run(scripts, "everything.mjs", &[("SERVER", "sse")], 8);
}

#[test]
fn every_client_is_asked_its_own_questions() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start(scripts);
    let sse = HttpServer::start_sse(scripts);
    let config =
        stdio_server(scripts) + &http_server(server.port) + &sse_server(sse.port) + EXAMPLE;
    let gateway = Gateway::start(&config);
    gateway.run(scripts, "questions.mjs", &[], 8);
}

#[test]
fn a_client_of_http_sse_is_served_as_any_other() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start(scripts);
    let sse = HttpServer::start_sse(scripts);
    let config =
        stdio_server(scripts) + &http_server(server.port) + &sse_server(sse.port) + EXAMPLE;
    let gateway = Gateway::start(&config);
    gateway.run(scripts, "questions.mjs", &[("TRANSPORT", "sse")], 8);
    drop(gateway);
    let gateway = Gateway::start(&stdio_server(scripts));
    let variables = [("SERVER", "stdio"), ("TRANSPORT", "sse")];
    gateway.run(scripts, "everything.mjs", &variables, 8);
}

#[test]
fn a_client_of_stdio_is_relayed() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start(scripts);
    let sse = HttpServer::start_sse(scripts);
    let config =
        stdio_server(scripts) + &http_server(server.port) + &sse_server(sse.port) + EXAMPLE;
    let gateway = Gateway::start(&config);
    gateway.run(scripts, "questions.mjs", &[("TRANSPORT", "relay")], 8);
    drop(gateway);
    let gateway = Gateway::start(&stdio_server(scripts));
    let variables = [("SERVER", "stdio"), ("TRANSPORT", "relay")];
    gateway.run(scripts, "everything.mjs", &variables, 8);
}

#[test]
fn a_client_of_stdio_has_a_gateway_of_its_own() {
    let Some(scripts) = scripts() else { return };
    let gateway = Gateway::start(&stdio_server(scripts));
    let variables = [("SERVER", "stdio"), ("TRANSPORT", "stdio")];
    gateway.run(scripts, "everything.mjs", &variables, 8);
}

#[test]
fn killed_servers_come_back_unnoticed() {
    let Some(scripts) = scripts() else { return };
    let port = free_port().to_string();
    let config = stdio_server(scripts) + &http_server(port.parse().unwrap());
    // The script starts the HTTP server itself, later.
    let gateway = Gateway::start_within("1s", &config);
    gateway.run(scripts, "kill.mjs", &[("HTTP_PORT", &port)], 3);
}

const EXAMPLE: &str = r#"
[servers.example]
command = "${MCPVISOR_EXE}"
args = ["example-server"]
"#;

/// server-everything as a child; each of its processes leaves a file named after its id.
fn stdio_server(scripts: &Path) -> String {
    // In the configuration, two dollars are one.
    let script = "touch \"$PIDS/$$\" && exec node \"$0\" stdio".replace('$', "$$");
    let main = everything(scripts);
    format!(
        "\n[servers.stdio]\ncommand = \"sh\"\nargs = ['-c', '{script}', '{}']\n\
         env = {{ PIDS = \"${{PIDS}}\" }}\n",
        main.display()
    )
}

fn http_server(port: u16) -> String {
    format!("\n[servers.http]\nurl = \"http://127.0.0.1:{port}/mcp\"\n")
}

fn sse_server(port: u16) -> String {
    format!("\n[servers.sse]\nurl = \"http://127.0.0.1:{port}/sse\"\n")
}

fn everything(scripts: &Path) -> PathBuf {
    scripts.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

/// A running gateway; it is stopped when this is dropped.
struct Gateway {
    process: Child,
    directory: TempDir,
    url: String,
}

impl Gateway {
    fn start(servers: &str) -> Self {
        Self::start_within("30s", servers)
    }

    /// Starts one whose lists wait so long for servers that are not there yet.
    fn start_within(first_list_wait: &str, servers: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let pids = directory.path().join("pids");
        fs::create_dir(&pids).unwrap();
        let config = directory.path().join("config.toml");
        // Small pages, so that lists have several.
        let head = "[gateway]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\npage_items = 4\n\
                    first_list_wait = \"FIRST_LIST_WAIT\"\n[supervision]\nbackoff_initial = \"100ms\"\nbackoff_max = \"1s\"\n\
                    max_restarts = 1000\n";
        let head = head.replace("FIRST_LIST_WAIT", first_list_wait);
        fs::write(&config, format!("{head}{servers}")).unwrap();
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = Command::new(env!("CARGO_BIN_EXE_mcpvisor"))
            .arg("--config")
            .arg(&config)
            .env("PIDS", &pids)
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

    /// Runs a script. It must pass all of its tests and skip none.
    fn run(&self, scripts: &Path, script: &str, variables: &[(&str, &str)], tests: usize) {
        let directory = self.directory.path();
        let told = fs::File::create(directory.join("told")).unwrap();
        let mut process = Command::new("node")
            .args(["--test-reporter=tap", "--no-warnings"])
            .arg(scripts.join(script))
            .env("GATEWAY_URL", &self.url)
            .env("GATEWAY_CONFIG", directory.join("config.toml"))
            .env("MCPVISOR", env!("CARGO_BIN_EXE_mcpvisor"))
            .env("PIDS", directory.join("pids"))
            .envs(variables.iter().copied())
            .stderr(told.try_clone().unwrap())
            .stdout(told)
            .spawn()
            .unwrap();
        let status = end_of(&mut process, SCRIPT_MAX);
        let told = fs::read_to_string(directory.join("told")).unwrap();
        let passed = format!("# pass {tests}\n# fail 0\n# cancelled 0\n# skipped 0\n");
        assert!(
            status.is_some_and(|status| status.success()) && told.contains(&passed),
            "{script}: {status:?}, expected {tests} tests to pass\n{told}\nThe gateway's log:\n{}",
            self.log()
        );
        // What the scripts measured.
        for line in told.lines().filter(|line| line.contains(" ms")) {
            if !line.contains("duration_ms") {
                eprintln!("{script}: {line}");
            }
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = Pid::from_raw(self.process.id().cast_signed());
        let _ = kill(pid, Signal::SIGTERM);
        end_of(&mut self.process, PATIENCE);
    }
}

/// server-everything that serves HTTP; it is killed when this is dropped.
struct HttpServer {
    process: Child,
    port: u16,
}

impl HttpServer {
    fn start(scripts: &Path) -> Self {
        Self::start_as("streamableHttp", scripts)
    }

    /// With the transport of revision 2024-11-05.
    fn start_sse(scripts: &Path) -> Self {
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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// The directory with the scripts and the packages that they need, installed once.
///
/// `None` without Node, except in CI, where that is a failure.
fn scripts() -> Option<&'static Path> {
    static SCRIPTS: OnceLock<Option<PathBuf>> = OnceLock::new();
    SCRIPTS.get_or_init(install).as_deref()
}

fn install() -> Option<PathBuf> {
    if let Err(reason) = has_node() {
        let message = format!("{reason}: the interop tests need Node {NODE_MIN} or later, and npm");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        // Not through the test's own output, which is shown only when it fails.
        let _ = writeln!(std::io::stderr(), "\nNOT TESTED: {message}\n");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    fs::create_dir_all(&target).unwrap();
    let lock = fs::File::create(target.join("lock")).unwrap();
    lock.lock().unwrap();
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
    let output = Command::new("npm")
        .arg("ci")
        .current_dir(&target)
        .output()
        .unwrap();
    assert!(output.status.success(), "npm ci failed:\n{}", text(&output));
    fs::write(installed, wanted).unwrap();
    Some(target)
}

fn has_node() -> Result<(), String> {
    version("npm")?;
    let node = version("node")?;
    let major = node.trim_start_matches('v').split('.').next();
    match major.and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if major >= NODE_MIN => Ok(()),
        _ => Err(format!("`node` is {}", node.trim())),
    }
}

fn version(tool: &str) -> Result<String, String> {
    let output = Command::new(tool).arg("--version").output();
    let output = output.map_err(|error| format!("`{tool}` cannot be run ({error})"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

/// How a process ended; it is killed if it does not end in time.
fn end_of(process: &mut Child, within: Duration) -> Option<ExitStatus> {
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

fn wait_until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        pause();
    }
}

#[expect(clippy::disallowed_methods, reason = "no actor lives on this thread")]
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

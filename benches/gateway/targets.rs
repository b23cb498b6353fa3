//! The targets of the measurements: the stub itself, and what stands in front of it.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{BenchClient, Era, Ids, Place, Work};
use crate::measure::Subject;
use crate::process::{Process, free_port};
use crate::{Failure, Fallible};

/// How long a process may take until it serves.
const START: Duration = Duration::from_secs(20);

/// How long one attempt to use it may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Tools of the gateway carry the name of their server.
const PREFIX: &str = "stub__";

pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    process: Process,
    log: Option<PathBuf>,
}

impl Target {
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// As something to measure, with the process that works behind it.
    pub(crate) fn subject(&self, server: u32) -> Subject {
        Subject {
            name: self.name,
            place: self.place.clone(),
            pid: self.pid(),
            server,
        }
    }
}

/// The stub with so many tools.
pub(crate) async fn stub(tools: usize) -> Fallible<Target> {
    stub_of(Era::Handshake, tools).await
}

/// The stub of an era.
pub(crate) async fn stub_of(era: Era, tools: usize) -> Fallible<Target> {
    let port = free_port()?;
    let role = match era {
        Era::Handshake => "stub",
        Era::Sessionless => "stub-sessionless",
    };
    let process = Process::again(&[role, &port.to_string(), &tools.to_string()])?;
    listening("direct", Place::new(port, era), process).await
}

/// A server that takes connections and never says a word.
pub(crate) async fn mute() -> Fallible<Target> {
    let port = free_port()?;
    let process = Process::again(&["mute", &port.to_string()])?;
    listening("mute", Place::new(port, Era::Handshake), process).await
}

/// The bare pass-through in front of a port.
pub(crate) async fn passthrough(to: u16) -> Fallible<Target> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{to}/mcp");
    let process = Process::again(&["passthrough", &port.to_string(), &url])?;
    listening("pass-through", Place::new(port, Era::Handshake), process).await
}

/// nginx in front of a port, with everything that it writes in `dir`.
pub(crate) async fn nginx(program: &Path, dir: &Path, to: u16) -> Fallible<Target> {
    let port = free_port()?;
    let dir = dir.join(format!("nginx-{port}"));
    fs::create_dir(&dir)?;
    let file = dir.join("nginx.conf");
    fs::write(&file, nginx_config(&dir, port, to)?)?;
    let mut command = Command::new(program);
    command
        .arg("-p")
        .arg(&dir)
        .arg("-c")
        .arg(&file)
        .arg("-e")
        .arg("stderr");
    let process = Process::start(command.stderr(File::create(dir.join("log"))?))?;
    listening("nginx", Place::new(port, Era::Handshake), process).await
}

fn nginx_config(dir: &Path, port: u16, to: u16) -> Fallible<String> {
    // Started by root its workers would be somebody who may not write here.
    let root = fs::metadata("/proc/self")?.uid() == 0;
    let user = if root { "user root;" } else { "" };
    let dir = dir.display();
    // Its defaults but for two: connections are kept, and buffers hold the largest answer, since
    // by default an answer over 32 KiB goes through a file.
    Ok(format!(
        "{user} daemon off; worker_processes 2; pid {dir}/pid; error_log stderr warn;
        events {{ worker_connections 4096; }}
        http {{
            access_log off;
            client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;
            fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
            keepalive_timeout 3600s; keepalive_requests 1000000000; tcp_nodelay on;
            proxy_buffer_size 64k; proxy_buffers 32 64k; proxy_busy_buffers_size 512k;
            client_max_body_size 16m;
            upstream stub {{
                server 127.0.0.1:{to};
                keepalive 1024; keepalive_timeout 3600s; keepalive_requests 1000000000;
            }}
            server {{
                listen 127.0.0.1:{port} backlog=1024;
                location / {{
                    proxy_pass http://stub;
                    proxy_http_version 1.1;
                    proxy_set_header Connection \"\";
                }}
            }}
        }}"
    ))
}

/// Where nginx is, if it is installed.
pub(crate) fn find_nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("nginx"))
        .find(|program| program.is_file())
}

/// Waits until something listens.
async fn listening(name: &'static str, place: Place, mut process: Process) -> Fallible<Target> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", place.port)).await.is_err() {
        process
            .check()
            .map_err(|error| format!("{name}: {error}"))?;
        if begun.elapsed() > START {
            return Err(format!("{name} does not listen after {START:?}").into());
        }
        sleep(Duration::from_millis(2)).await;
    }
    Ok(Target {
        name,
        place,
        process,
        log: None,
    })
}

/// A server in the config of the gateway.
pub(crate) enum Server {
    Http {
        name: String,
        port: u16,
    },
    /// This program as a server over stdio.
    Stdio {
        name: String,
        tools: usize,
    },
    /// The example server of the gateway's own binary.
    Example {
        name: String,
    },
}

impl Server {
    pub(crate) fn http(name: &str, target: &Target) -> Self {
        Self::Http {
            name: name.to_owned(),
            port: target.place.port,
        }
    }

    fn table(&self) -> Fallible<String> {
        // A basic string of TOML is written like one of JSON.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        Ok(match self {
            Self::Http { name, port } => {
                format!("[servers.{name}]\nurl = \"http://127.0.0.1:{port}/mcp\"\n")
            }
            Self::Stdio { name, tools } => {
                let exe = std::env::current_exe()?;
                let exe = exe
                    .to_str()
                    .ok_or("the path of this program is not UTF-8")?;
                let exe = quoted(exe);
                format!("[servers.{name}]\ncommand = {exe}\nargs = [\"stub-stdio\", \"{tools}\"]\n")
            }
            Self::Example { name } => {
                let exe = quoted(PROGRAM);
                format!("[servers.{name}]\ncommand = {exe}\nargs = [\"example-server\"]\n")
            }
        })
    }
}

/// A directory with the config of a gateway, which may run there several times.
pub(crate) struct Home {
    dir: PathBuf,
    port: u16,
}

impl Home {
    /// `settings` are further sections of the config.
    pub(crate) fn new(dir: &Path, servers: &[Server], settings: &str) -> Fallible<Self> {
        let port = free_port()?;
        let dir = dir.join(format!("gateway-{port}"));
        fs::create_dir(&dir)?;
        let tables: Vec<String> = servers.iter().map(Server::table).collect::<Fallible<_>>()?;
        let tables = tables.join("\n");
        fs::write(
            dir.join("config.toml"),
            format!(
                "[gateway]\nlisten = \"127.0.0.1:{port}\"\ndata_dir = \"data\"\n\n{settings}\n{tables}"
            ),
        )?;
        Ok(Self { dir, port })
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            port: self.port,
            prefix: PREFIX,
            era: Era::Handshake,
            credential: None,
        }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Starts the gateway, without waiting for anything.
    pub(crate) fn start(&self) -> Fallible<Target> {
        start(&self.dir, self.place(), ("gateway", Command::new(PROGRAM)))
    }
}

/// The build that is measured.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcpvisor");

/// The name of another build.
pub(crate) const BEFORE: &str = "before";

/// Writes a config and starts the gateway with it, without waiting for anything.
pub(crate) fn launch(dir: &Path, servers: &[Server]) -> Fallible<Target> {
    Home::new(dir, servers, "")?.start()
}

/// The same for another build.
pub(crate) fn launch_before(dir: &Path, servers: &[Server], program: &Path) -> Fallible<Target> {
    let home = Home::new(dir, servers, "")?;
    start(&home.dir, home.place(), (BEFORE, Command::new(program)))
}

/// The same with one worker under callgrind, which writes to files whose names begin like `file`.
pub(crate) fn launch_counted(
    dir: &Path,
    servers: &[Server],
    (program, file): (&Path, &Path),
    era: Era,
) -> Fallible<Target> {
    let home = Home::new(dir, servers, "workers = 1\n")?;
    let mut command = Command::new("valgrind");
    command
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(program);
    let place = Place {
        era,
        ..home.place()
    };
    start(&home.dir, place, ("counted", command))
}

fn start(
    dir: &Path,
    place: Place,
    (name, mut command): (&'static str, Command),
) -> Fallible<Target> {
    command
        .arg("--config")
        .arg(dir.join("config.toml"))
        .current_dir(dir)
        .stdout(Stdio::null());
    for name in [
        "MCPVISOR_LISTEN",
        "PORT",
        "HOST",
        "MCPVISOR_CONFIG",
        "MCPVISOR_DATA",
    ] {
        command.env_remove(name);
    }
    if std::env::var_os("RUST_LOG").is_none() {
        command.env("RUST_LOG", "warn");
    }
    let log = dir.join("log");
    let process = Process::start(command.stderr(File::create(&log)?))?;
    Ok(Target {
        name,
        place,
        process,
        log: Some(log),
    })
}

impl Target {
    /// Fails when the process has ended.
    pub(crate) fn check(&mut self) -> Fallible<()> {
        self.process
            .check()
            .map_err(|error| self.complaint(&error.to_string()))
    }

    /// An error with the last lines that the process wrote.
    fn complaint(&self, text: &str) -> Failure {
        let log = self
            .log
            .as_ref()
            .and_then(|log| fs::read_to_string(log).ok());
        let mut lines: Vec<&str> = log
            .iter()
            .flat_map(|log| log.lines().rev().take(8))
            .collect();
        lines.reverse();
        let said = if lines.is_empty() {
            String::new()
        } else {
            format!("\n{}", lines.join("\n"))
        };
        format!("{}: {text}{said}", self.name).into()
    }

    /// Waits until a list has so many tools.
    pub(crate) async fn ready(mut self, ids: &Ids, tools: usize) -> Fallible<Self> {
        let begun = Instant::now();
        loop {
            let error = match timeout(ATTEMPT, self.listed(ids, tools)).await {
                Ok(Ok(())) => return Ok(self),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {ATTEMPT:?}"),
            };
            self.check()?;
            if begun.elapsed() > START {
                return Err(self.complaint(&format!("not ready after {START:?}: {error}")));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn listed(&self, ids: &Ids, tools: usize) -> Fallible<()> {
        let mut client = BenchClient::open(&self.place, ids).await?;
        let listed = client.run(Work::List(tools)).await;
        client.delete().await?;
        listed
    }
}

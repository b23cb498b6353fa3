//! The targets of the measurements: the stub itself, and the proxies and gateways in front of it.

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

/// Maximum time until a process serves requests.
const START: Duration = Duration::from_secs(20);

/// Maximum duration of one attempt to use it.
const ATTEMPT: Duration = Duration::from_secs(5);

/// The gateway prefixes tools with the name of their server.
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

    /// The target as a subject of measurements, with the process behind it.
    pub(crate) fn subject(&self, server: u32) -> Subject {
        Subject {
            name: self.name,
            place: self.place.clone(),
            pid: self.pid(),
            server,
        }
    }
}

/// Starts the stub with this many tools.
pub(crate) async fn stub(tools: usize) -> Fallible<Target> {
    stub_of(Era::Handshake, tools).await
}

/// Starts a stub of this era.
pub(crate) async fn stub_of(era: Era, tools: usize) -> Fallible<Target> {
    let port = free_port()?;
    let role = match era {
        Era::Handshake => "stub",
        Era::Sessionless => "stub-sessionless",
    };
    let process = Process::again(&[role, &port.to_string(), &tools.to_string()])?;
    listening("direct", Place::new(port, era), process).await
}

/// Starts a server that accepts connections and never answers.
pub(crate) async fn mute() -> Fallible<Target> {
    let port = free_port()?;
    let process = Process::again(&["mute", &port.to_string()])?;
    listening("mute", Place::new(port, Era::Handshake), process).await
}

/// Starts the bare pass-through in front of a port.
pub(crate) async fn passthrough(to: u16) -> Fallible<Target> {
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{to}/mcp");
    let process = Process::again(&["passthrough", &port.to_string(), &url])?;
    listening("pass-through", Place::new(port, Era::Handshake), process).await
}

/// Starts nginx in front of a port; all its files are in `dir`.
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
    // The workers of an nginx started by root would run as a user without write access here.
    let root = fs::metadata("/proc/self")?.uid() == 0;
    let user = if root { "user root;" } else { "" };
    let dir = dir.display();
    // The defaults, except that connections are kept alive and buffers hold the largest answer: by
    // default, an answer over 32 KiB is written to a file.
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

/// Path of nginx, if it is installed.
pub(crate) fn find_nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    dirs.map(|dir| dir.join("nginx"))
        .find(|program| program.is_file())
}

/// Waits until the process listens.
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

/// A server in the gateway's configuration.
pub(crate) enum Server {
    Http {
        name: String,
        port: u16,
    },
    /// This program as a stdio server.
    Stdio {
        name: String,
        tools: usize,
    },
    /// The example server in the gateway's binary.
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
        // A basic string in TOML has the same syntax as a string in JSON.
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

/// A directory with a gateway's configuration, in which the gateway can run several times.
pub(crate) struct Home {
    dir: PathBuf,
    port: u16,
}

impl Home {
    /// `settings` are additional sections of the configuration.
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

    /// Starts the gateway without waiting until it is ready.
    pub(crate) fn start(&self) -> Fallible<Target> {
        start(&self.dir, self.place(), ("gateway", Command::new(PROGRAM)))
    }
}

/// The measured build.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_mcpvisor");

/// Name of the other build.
pub(crate) const BEFORE: &str = "before";

/// Writes a configuration and starts the gateway with it, without waiting until it is ready.
pub(crate) fn launch(dir: &Path, servers: &[Server]) -> Fallible<Target> {
    Home::new(dir, servers, "")?.start()
}

/// Like [`launch`], for the other build.
pub(crate) fn launch_before(dir: &Path, servers: &[Server], program: &Path) -> Fallible<Target> {
    let home = Home::new(dir, servers, "")?;
    start(&home.dir, home.place(), (BEFORE, Command::new(program)))
}

/// Like [`launch`], with one worker under callgrind, whose output files start with `file`.
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
        // The figures are of the gateway, and comparable with builds that have no sandbox.
        .env("MCPVISOR_SANDBOX_LEVEL", "off")
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
    /// Fails if the process has ended.
    pub(crate) fn check(&mut self) -> Fallible<()> {
        self.process
            .check()
            .map_err(|error| self.complaint(&error.to_string()))
    }

    /// An error with the last lines of the process's output.
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

    /// Waits until a list has this many tools.
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

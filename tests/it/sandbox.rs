//! Sixteen attacks of a hostile server: each works without a sandbox, and none that the sandbox
//! promises to block works with it. What is promised depends on the kernel.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::UdpSocket;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::operating::run;
use crate::support::{Client, Gateway, Setup, quick, signal, text_of, until};

/// Attacks that no level blocks yet: the shared caches, and in standard the network.
const OPEN_IN_STANDARD: &[u8] = &[7, 13, 14, 15];
const OPEN_IN_STRICT: &[u8] = &[7];

/// The attacks that a promise blocks.
fn blocked_by(promise: &str) -> &'static [u8] {
    match promise {
        "reads" => &[1, 2, 3, 4],
        "writes" => &[5, 6],
        "sockets" => &[8, 9, 10],
        "processes" => &[11, 12, 16],
        "network" => &[13, 14, 15],
        _ => &[],
    }
}

/// A user's machine with a gateway and a hostile server.
struct Host {
    gateway: Gateway,
    /// Where attacks would reach.
    listeners: Vec<UnixListener>,
    udp: UdpSocket,
    outside: PathBuf,
    abstract_name: String,
}

impl Host {
    async fn start(sandbox: &str) -> Self {
        let setup = Setup::new("");
        let path = |name: &str| setup.path(name).to_str().unwrap().to_owned();
        for directory in [".ssh", ".aws", "bin", ".npm"] {
            fs::create_dir_all(setup.path("home").join(directory)).unwrap();
        }
        for directory in ["work", "run"] {
            fs::create_dir(setup.path(directory)).unwrap();
        }
        for file in [".ssh/id_ed25519", ".aws/credentials", ".bashrc"] {
            fs::write(setup.path("home").join(file), "secret").unwrap();
        }
        let listen = |name: &str| UnixListener::bind(setup.path(name)).unwrap();
        let mut listeners = Vec::from(["docker.sock", "agent.sock", "bus"].map(listen));
        let abstract_name = path("abstract");
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        listeners.push(UnixListener::bind_addr(&address).unwrap());
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/hostile.py");
        let config = format!(
            "{}[servers.evil]\ncommand = \"/usr/bin/python3\"\nargs = [\"{script}\"]\n\
             cwd = \"{}\"\nsandbox = {sandbox}\n",
            quick(),
            path("work"),
        );
        fs::write(setup.path("config.toml"), config).unwrap();
        let outside = Path::new("/var/tmp").join(setup.directory.path().file_name().unwrap());
        let [home, run, docker, agent, bus] =
            ["home", "run", "docker.sock", "agent.sock", "bus"].map(path);
        let setup = setup
            .variable("HOME", &home)
            .variable("XDG_RUNTIME_DIR", &run)
            .variable("DOCKER_HOST", &format!("unix://{docker}"))
            .variable("SSH_AUTH_SOCK", &agent)
            .variable("DBUS_SESSION_BUS_ADDRESS", &format!("unix:path={bus}"));
        let gateway = setup.serve().await;
        let other = gateway.data_dir().join("servers/other");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("secret"), "secret").unwrap();
        Self {
            gateway,
            listeners,
            udp: UdpSocket::bind("127.0.0.1:0").unwrap(),
            outside,
            abstract_name,
        }
    }

    /// The attempts of each attack, of which one is enough.
    fn attacks(&self) -> Vec<(u8, &'static str, Value)> {
        let path = |name: &str| self.gateway.setup.path(name);
        let pid = self.gateway.pid();
        let udp = self.udp.local_addr().unwrap().port();
        vec![
            (1, "read", json!([path("home/.ssh/id_ed25519")])),
            (2, "read", json!([path("home/.aws/credentials")])),
            (3, "read", json!([path(".mcpvisor/servers/other/secret")])),
            (4, "read", json!([path(".mcpvisor/run.json")])),
            (4, "read", json!([path("config.toml")])),
            (5, "append", json!([path("home/.bashrc")])),
            (6, "append", json!([self.outside])),
            (6, "append", json!([path("home/bin/program")])),
            (7, "append", json!([path("home/.npm/package")])),
            (8, "connect", json!([path("docker.sock")])),
            (9, "connect", json!([path("agent.sock")])),
            (10, "connect", json!([path("bus")])),
            (10, "abstract", json!([self.abstract_name])),
            (11, "signal", json!([pid])),
            (12, "read", json!([format!("/proc/{pid}/environ")])),
            (12, "read", json!([format!("/proc/{pid}/cmdline")])),
            (13, "tcp", json!([self.gateway.address.port()])),
            (14, "udp", json!(["169.254.169.254", 80])),
            (15, "udp", json!(["127.0.0.1", udp])),
            (16, "linger", json!([path("work/lock")])),
        ]
    }

    /// Tries all attacks, stops the server, and returns those that worked.
    async fn attacked(&self) -> BTreeSet<u8> {
        let client = Client::open(&self.gateway).await;
        let mut open = BTreeSet::new();
        for (number, kind, values) in self.attacks() {
            let arguments = json!({"kind": kind, "values": &values});
            let result = client.call("evil__attack", arguments).await;
            let found: Value = serde_json::from_str(text_of(&result)).unwrap();
            eprintln!("{number} {kind} {values}: {found}");
            // It may have written to a directory of its own, at the same path.
            let is_real = || match kind {
                "append" => {
                    let written = fs::read_to_string(values[0].as_str().unwrap());
                    written.is_ok_and(|text| text.contains("hostile"))
                }
                _ => true,
            };
            if found["open"] == true && is_real() {
                open.insert(number);
            }
        }
        assert!(open.contains(&16), "a process was left behind");
        let (stopped, said) = self.gateway.setup.run(&["servers", "stop", "evil"]);
        assert!(stopped, "{said}");
        self.gateway.wait_state("evil", "stopped").await;
        if !self.has_survivor() {
            open.remove(&16);
        }
        open
    }

    /// Whether a process that the server left behind holds its lock. Ends it.
    fn has_survivor(&self) -> bool {
        let lock = self.gateway.setup.path("work/lock");
        let file = File::open(&lock).unwrap();
        let is_held = flock(&file, FlockOperation::NonBlockingLockExclusive).is_err();
        if is_held {
            let pid = fs::read_to_string(&lock).unwrap();
            signal(pid.parse().unwrap(), rustix::process::Signal::KILL);
        }
        is_held
    }

    /// The promises to the server that this kernel does not keep.
    async fn unkept(&self) -> Vec<String> {
        let server = self.gateway.server("evil").await;
        let unkept = server["sandbox"]["unkept"].as_array().cloned();
        let unkept = unkept.unwrap_or_default();
        let names = unkept.iter().map(|it| it["promise"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.outside);
        self.listeners.clear();
    }
}

#[tokio::test]
async fn without_a_sandbox_every_attack_works() {
    let host = Host::start("\"off\"").await;
    host.gateway.all_up().await;
    let mut open = host.attacked().await;
    // Nothing routes to that address on a machine without a network.
    open.insert(14);
    assert_eq!(open, (1..=16).collect());
    let (_, status) = host.gateway.setup.run(&["status"]);
    assert!(status.contains("SANDBOX OFF"), "{status}");
}

#[tokio::test]
async fn the_standard_sandbox_blocks_what_it_promises() {
    let host = Host::start("\"standard\"").await;
    host.gateway.all_up().await;
    let unkept = host.unkept().await;
    let open = host.attacked().await;
    let unkept = unkept.iter().flat_map(|promise| blocked_by(promise));
    let allowed: BTreeSet<u8> = OPEN_IN_STANDARD.iter().chain(unkept).copied().collect();
    assert!(open.is_subset(&allowed), "{open:?}, allowed {allowed:?}");
}

#[tokio::test]
async fn the_strict_sandbox_blocks_what_it_promises_or_does_not_start() {
    let strict = "{ level = \"strict\", network = \"none\" }";
    let host = Host::start(strict).await;
    let unkept = host.unkept().await;
    if !unkept.is_empty() {
        let server = host.gateway.wait_state("evil", "misconfigured").await;
        let reason = server["reason"].as_str().unwrap();
        assert!(reason.contains(&unkept[0]), "{reason}");
        return;
    }
    host.gateway.all_up().await;
    let open = host.attacked().await;
    let allowed: BTreeSet<u8> = OPEN_IN_STRICT.iter().copied().collect();
    assert!(open.is_subset(&allowed), "{open:?}, allowed {allowed:?}");
}

/// A server that the sandbox refused a path says how to allow it.
#[tokio::test]
async fn an_end_that_the_sandbox_caused_says_how_to_allow_it() {
    let setup = Setup::new(&format!(
        "{}[servers.writer]\ncommand = \"sh\"\nargs = [\"-c\", \
         \"read line; echo x > /usr/forbidden-by-sandbox || exit 1\"]\nsandbox = \"standard\"\n",
        quick(),
    ));
    let gateway = setup.serve().await;
    let exit = until("its exit", || async {
        let server = gateway.server("writer").await;
        let shared = &server["connection"]["shared"];
        let exit = shared["last_exit"].as_str().map(str::to_owned);
        exit.filter(|exit| exit.contains("sandbox"))
    });
    let advice = "allow with sandbox = { write = [\"/usr/forbidden-by-sandbox\"] }";
    let exit = exit.await;
    assert!(exit.contains(advice), "{exit}");
}

/// `mcp-server-fetch` installs a package at its first call, and only its call fails.
#[tokio::test]
async fn a_refusal_that_ends_no_server_is_explained_in_its_log() {
    let setup = Setup::new(&format!(
        "{}[servers.writer]\ncommand = \"sh\"\nargs = [\"-c\", \
         \"(echo x > /usr/forbidden-by-sandbox); exec $0 example-server\", \"${{MCPVISOR_EXE}}\"]\n\
         sandbox = \"standard\"\n",
        quick(),
    ));
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let advice = "allow with sandbox = { write = [\"/usr/forbidden-by-sandbox\"] }";
    until("the advice in its log", || async {
        let logs = run(&gateway, &["servers", "logs", "writer"]).await.unwrap();
        logs.contains(advice).then_some(())
    })
    .await;
}

/// The launcher ends as the server ended, and passes signals on to it.
#[tokio::test]
async fn a_launcher_ends_as_its_server_ends() {
    let table = [
        ("exit 42", "exited with code 42"),
        ("kill -ABRT $$$$", "ended by signal 6"),
        ("exit 137", "exited with code 137"),
        ("kill -SEGV $$$$", "ended by signal 11"),
        ("kill -KILL $$$$", "ended by signal 9"),
    ];
    for (script, expected) in table {
        let config = format!(
            "{}[servers.ends]\ncommand = \"sh\"\nargs = [\"-c\", \"read line; {script}\"]\n\
             sandbox = \"standard\"\n",
            quick(),
        );
        let gateway = Setup::new(&config).serve().await;
        until(expected, || async {
            let server = gateway.server("ends").await;
            let exit = server["connection"]["shared"]["last_exit"].clone();
            exit.as_str()?.contains(expected).then_some(())
        })
        .await;
    }
}

/// A variable can hold a secret that looks like a path, and other users can read command lines.
#[tokio::test]
async fn no_command_line_contains_a_configured_variable() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/hostile.py");
    let canary = "/canary-of-the-sandbox";
    let config = format!(
        "[servers.evil]\ncommand = \"/usr/bin/python3\"\nargs = [\"{script}\"]\n\
         env = {{ KEY = \"{canary}\" }}\nsandbox = \"standard\"\n"
    );
    let gateway = Gateway::start(&config).await;
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let lines: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .collect();
    assert!(lines.iter().any(|line| line.contains("hostile.py")));
    assert!(lines.iter().all(|line| !line.contains(canary)));
    drop(gateway);
}

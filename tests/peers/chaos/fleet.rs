//! The servers: how they are configured, found and told to misbehave.

use std::fs;
use std::path::{Path, PathBuf};

use crate::chaos::tenants;
use crate::support::{Gateway, Keeper, Setup};

const STDIO: usize = 20;
const HTTP: usize = 5;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/chaos/peer.py");

/// Quick enough that a server is back within seconds, whatever it suffered.
const SETTINGS: &str = r#"
[supervision]
backoff_initial = "100ms"
backoff_max = "1s"
reconnect_every = "1s"
shutdown_timeout = "2s"

[limits]
line = "1MiB"
body = "1MiB"

[gateway]
first_list_wait = "10m"
request_timeout_max = "6s"
"#;

/// The settings that a reload may change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variation {
    pub(crate) request_timeout: u64,
    /// A server that comes and goes.
    pub(crate) has_extra: bool,
    /// The server of this number gets another environment, and so another process.
    pub(crate) changed: Option<usize>,
}

/// A server and where its files are.
pub(crate) struct Peer {
    pub(crate) name: String,
    directory: PathBuf,
    keeper: Option<Keeper>,
}

impl Peer {
    pub(crate) fn pid(&self, gateway: &Gateway) -> Option<i32> {
        match &self.keeper {
            Some(keeper) => Some(keeper.pid()),
            None => gateway.server_pids(&self.name).first().copied(),
        }
    }

    /// From now on it refuses most calls with 429, or no longer.
    pub(crate) fn is_busy(&self, busy: bool) {
        let file = self.directory.join(format!("{}.busy", self.name));
        match busy {
            true => fs::write(file, "").unwrap(),
            false => fs::remove_file(file).unwrap(),
        }
    }

    fn exits_file(&self) -> PathBuf {
        self.directory.join(format!("{}.exits", self.name))
    }

    /// From now on it ends as soon as it is started.
    pub(crate) fn exits_at_once(&self) {
        fs::write(self.exits_file(), "").unwrap();
    }

    pub(crate) fn behaves(&self) {
        // It may behave already.
        let _ = fs::remove_file(self.exits_file());
    }

    fn config(&self, number: usize, variation: Variation) -> String {
        let Self { name, .. } = self;
        let changed = variation.changed == Some(number);
        let reached = match &self.keeper {
            Some(keeper) => format!(
                "url = \"http://127.0.0.1:{}/mcp\"\nheaders = {{ X-Changed = \"{changed}\" }}",
                keeper.port
            ),
            None => stdio(name, &self.directory, changed),
        };
        format!("\n[servers.{name}]\n{reached}\n")
    }
}

fn stdio(name: &str, directory: &Path, changed: bool) -> String {
    let directory = directory.display();
    format!(
        "command = \"python3\"\nargs = [\"-S\", \"{SCRIPT}\", \"{name}\", \"{directory}\"]\n\
         env = {{ IT_MARK = \"${{IT_MARK}}\", IT_SERVER = \"{name}\", CHANGED = \"{changed}\" }}"
    )
}

pub(crate) struct Fleet {
    pub(crate) peers: Vec<Peer>,
    /// Nothing is set that has a default.
    has_defaults: bool,
    /// Clients need one of so many API keys, if there are any.
    tenants: u64,
    setup: std::cell::Cell<Option<Setup>>,
    directory: PathBuf,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self::of(STDIO, HTTP)
    }

    /// So many servers over stdio and over HTTP, called `s0`, `s1` and so on.
    pub(crate) fn of(stdio: usize, http: usize) -> Self {
        let level = std::env::var("CHAOS_LOG").unwrap_or_else(|_| "error".to_owned());
        // The same address after a restart: relays are told one.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = port.local_addr().unwrap().to_string();
        drop(port);
        let setup = Setup::new("").variable("RUST_LOG", &level);
        let setup = setup.variable("MCPVISOR_LISTEN", &address);
        let directory = setup.path("peers");
        fs::create_dir(&directory).unwrap();
        let peer = |number| {
            let name = format!("s{number}");
            let place = directory.to_str().unwrap();
            let arguments = ["-S", SCRIPT, &name, place];
            let keeper = (number >= stdio).then(|| Keeper::start(&arguments, &[]));
            Peer {
                name,
                directory: directory.clone(),
                keeper,
            }
        };
        Self {
            peers: (0..stdio + http).map(peer).collect(),
            has_defaults: false,
            tenants: 0,
            setup: std::cell::Cell::new(Some(setup)),
            directory,
        }
    }

    pub(crate) fn with_defaults(mut self) -> Self {
        self.has_defaults = true;
        self
    }

    /// Has the gateway start in another way.
    pub(crate) fn with_setup(self, change: impl FnOnce(Setup) -> Setup) -> Self {
        let setup = self.setup.take().expect("before it starts");
        self.setup.set(Some(change(setup)));
        self
    }

    pub(crate) fn with_tenants(mut self, tenants: u64) -> Self {
        self.tenants = tenants;
        self
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.peers.iter().map(|peer| peer.name.clone()).collect()
    }

    pub(crate) fn config(&self, variation: Variation) -> String {
        let mut config = match self.has_defaults {
            true => String::new(),
            false => format!(
                "{SETTINGS}request_timeout = \"{}s\"\n",
                3 + variation.request_timeout
            ),
        };
        for (number, peer) in self.peers.iter().enumerate() {
            config.push_str(&peer.config(number, variation));
            if !self.has_defaults {
                config.push_str("ping_every = \"500ms\"\nping_timeout = \"3s\"\n");
            }
        }
        config.push_str(&tenants::keys(self.tenants));
        if variation.has_extra {
            let extra = stdio("extra", &self.directory, false);
            config.push_str(&format!("\n[servers.extra]\n{extra}\n"));
        }
        config
    }

    /// The gateway, with every server up.
    pub(crate) async fn serve(&self) -> Gateway {
        let setup = self.setup.take().expect("one gateway");
        let config = self.config(Variation::default());
        fs::write(setup.path("config.toml"), config).unwrap();
        let gateway = setup.serve().await;
        gateway.all_up().await;
        gateway
    }

    /// Every call that ran, as often as it ran.
    pub(crate) fn calls_that_ran(&self) -> Vec<String> {
        let mut calls = Vec::new();
        for peer in &self.peers {
            let file = self.directory.join(format!("{}.ran", peer.name));
            let ran = fs::read_to_string(file).unwrap();
            calls.extend(ran.lines().map(str::to_owned));
        }
        calls
    }
}

//! `config.toml` from the outside: what is accepted, what is refused and how that is told.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use mcpvisor::config::{
    Config, ConfigError, Environment, LogFormat, SHIPPED, ServerState, describe,
};
use mcpvisor::downstream::{ServerSettings, Sharing, TransportSettings};
use mcpvisor::transport::{HttpSettings, StdioSettings};
use proptest::prelude::*;
use secrecy::ExposeSecret as _;

fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

fn load_with(text: &str, environment: &dyn Environment) -> Result<Config, ConfigError> {
    let loaded = Config::parse(text, "config.toml", Path::new("/etc/gate"), environment)?;
    Ok(loaded.config)
}

fn load(text: &str) -> Config {
    load_with(text, &env(&[])).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str) -> ConfigError {
    match load_with(text, &env(&[])) {
        Err(error) => error,
        Ok(_) => panic!("accepted:\n{text}"),
    }
}

fn server<'c>(config: &'c Config, name: &str) -> &'c ServerState {
    let named = config
        .servers
        .iter()
        .find(|entry| entry.name.as_str() == name);
    &named.unwrap_or_else(|| panic!("no server {name}")).state
}

fn ready<'c>(config: &'c Config, name: &str) -> &'c ServerSettings {
    match server(config, name) {
        ServerState::Ready(settings) => settings,
        other => panic!("{name} is {other:?}"),
    }
}

fn stdio(settings: &ServerSettings) -> &StdioSettings {
    match &settings.transport {
        TransportSettings::Stdio(stdio) => stdio,
        TransportSettings::Http(_) => panic!("not stdio"),
    }
}

fn http(settings: &ServerSettings) -> &HttpSettings {
    match &settings.transport {
        TransportSettings::Http(http) => http,
        TransportSettings::Stdio(_) => panic!("not http"),
    }
}

#[test]
fn the_shipped_file_is_the_default_and_starts_the_example_server() {
    let environment = env(&[("MCPVISOR_EXE", "/usr/bin/mcpvisor")]);
    let shipped = load_with(SHIPPED, &environment).unwrap();
    let empty = load("");
    let gateway = |config: &Config| {
        let servers = Vec::new();
        format!(
            "{:#?}",
            Config {
                servers,
                ..config.clone()
            }
        )
    };
    assert_eq!(gateway(&shipped), gateway(&empty));
    assert!(empty.servers.is_empty());
    // The defaults of a server, over the written [supervision] and [limits] and without.
    let bare = load("[servers.example]\ncommand = \"/usr/bin/mcpvisor\"\nargs = [\"x\"]");
    let (written, built_in) = (ready(&shipped, "example"), ready(&bare, "example"));
    assert_eq!(format!("{written:#?}"), format!("{built_in:#?}"));
    assert_eq!(stdio(written).command, "/usr/bin/mcpvisor");
    assert_eq!(stdio(written).args[0].expose_secret(), "example-server");
    assert_eq!(shipped.servers.len(), 1);
}

#[test]
fn every_documented_server_key_is_accepted_with_its_documented_default() {
    // The commented part of the shipped file, without its comment signs, is a configuration too.
    let (_, commented) = SHIPPED.split_once("# A server is a program").unwrap();
    let is_code = |line: &&str| {
        let key = line.trim_start_matches("# ");
        let first = key.split([' ', '=']).next().unwrap_or_default();
        key.starts_with("[servers")
            || key.contains(" = ")
                && first.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                && !first.is_empty()
    };
    let lines: Vec<&str> = commented
        .lines()
        .filter(is_code)
        .map(|line| line.trim_start_matches("# "))
        .collect();
    let text = lines.join("\n");
    // What stands for both transports is written after the second server.
    let environment = env(&[("FILES_TOKEN", "a"), ("DOCS_TOKEN", "b")]);
    let config = load_with(&text, &environment).unwrap_or_else(|error| panic!("{error}"));
    let bare = load("[servers.docs]\nurl = \"https://docs.example.com/mcp\"");
    let (documented, built_in) = (ready(&config, "docs"), ready(&bare, "docs"));
    assert_eq!(documented.limits, built_in.limits);
    assert_eq!(documented.sharing, built_in.sharing);
    assert_eq!(documented.roots, built_in.roots);
    assert_eq!(
        http(documented).stream_idle_timeout,
        http(built_in).stream_idle_timeout
    );
    assert_eq!(ready(&config, "files").supervision.max_restarts, 10);
}

#[test]
fn values_reach_their_settings() {
    let config = load(
        r#"
        [gateway]
        log = "json"
        request_timeout = "5s"
        data_dir = "state"
        shutdown_grace = "1s"
        [supervision]
        max_restarts = 1
        connect_timeout = "7s"
        [sessions]
        max = 3
        [limits]
        line = "1MB"
        body = 2048
        bytes_in_flight = "1MiB"
        calls_per_session = 2
        [servers.one]
        command = "./bin/one"
        args = ["a", "b$$"]
        env = { KEY = "v" }
        cwd = "work"
        inherit_env = true
        sharing = "session"
        request_timeout_max = "30s"
        tools = { allow = ["get_*"], deny = ["*_all"], prefix = "" }
        roots = ["file:///srv"]
        [servers.one.supervision]
        within = "5s"
        [servers.two]
        url = "https://example.com/mcp?x=1"
        headers = { X-Key = "k" }
        ping_every = "0s"
        [servers.off]
        command = "nothing"
        args = ["${NOT_SET}"]
        enabled = false
        "#,
    );
    assert_eq!(config.log, LogFormat::Json);
    assert_eq!(config.data_dir, Path::new("/etc/gate/state"));
    assert_eq!(config.session.sessions_max, 3);
    assert_eq!(config.session.calls_max, 2);
    assert_eq!(config.front.body_max, 2048);
    let names: Vec<&str> = config
        .servers
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two", "off"]);

    let one = ready(&config, "one");
    assert_eq!(one.limits.request_timeout, Duration::from_secs(5));
    assert_eq!(one.limits.request_timeout_max, Duration::from_secs(30));
    assert_eq!(
        (one.sharing, one.supervision.max_restarts),
        (Sharing::Session, 1)
    );
    assert_eq!(one.supervision.within, Duration::from_secs(5));
    assert_eq!(one.names.prefix.as_deref(), Some(""));
    assert_eq!(one.names.allow, ["get_*"]);
    let child = stdio(one);
    assert_eq!(child.command, "/etc/gate/./bin/one");
    assert_eq!(child.cwd.as_deref(), Some(Path::new("/etc/gate/work")));
    assert_eq!(child.args[1].expose_secret(), "b$");
    assert_eq!(child.env["KEY"].expose_secret(), "v");
    assert_eq!((child.line_max, child.inherit_env), (1_000_000, true));

    let two = ready(&config, "two");
    assert_eq!(two.supervision.within, Duration::from_secs(60));
    assert_eq!(two.limits.ping_every, Duration::ZERO);
    assert_eq!(http(two).connect_timeout, Duration::from_secs(7));
    assert_eq!(http(two).headers[0].0, "X-Key");
    assert!(matches!(server(&config, "off"), ServerState::Disabled));
}

#[test]
fn every_spelling_of_a_transport_is_known() {
    for spelling in [
        "http",
        "streamable-http",
        "streamableHttp",
        "streamable_http",
    ] {
        let text = format!("[servers.a]\ntransport = \"{spelling}\"\nurl = \"http://x/mcp\"");
        assert_eq!(http(ready(&load(&text), "a")).url.as_str(), "http://x/mcp");
    }
    stdio(ready(
        &load("[servers.a]\ntransport = \"stdio\"\ncommand = \"x\""),
        "a",
    ));
    stdio(ready(&load("[servers.a]\ncommand = \"x\""), "a"));
}

/// text, line, and what the rendered error holds
const REFUSED: &[(&str, usize, &[&str])] = &[
    (
        "[gateway]\nlisten = 127.0.0.1:1",
        2,
        &["no valid TOML", "listen = 127"],
    ),
    ("[gateway\n", 1, &["no valid TOML"]),
    ("a = 1\na = 2\n", 2, &["no valid TOML", "duplicate"]),
    (
        "[gateway]\nlisen = 1",
        2,
        &["unknown key `gateway.lisen`", "mean `listen`?"],
    ),
    (
        "[gateway]\n\nmax_restarts = 1",
        3,
        &["`max_restarts` is a key of [supervision]"],
    ),
    ("[gatway]", 1, &["unknown key `gatway`", "mean `gateway`?"]),
    (
        "[mcpServers.a]\ncommand = \"x\"",
        1,
        &["here it is called `servers`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\ntype = \"stdio\"",
        3,
        &["here it is called `transport`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nzzzz = 1",
        3,
        &["`servers.a.zzzz`", "known keys are"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\ntools = { alow = [] }",
        3,
        &["`servers.a.tools.alow`"],
    ),
    (
        "[servers.a.supervision]\nwithn = \"1s\"\n[servers.a]\ncommand=\"x\"",
        2,
        &["`within`?"],
    ),
    ("gateway = 5", 1, &["`gateway` must be a table"]),
    (
        "[[servers]]\ncommand = \"x\"",
        1,
        &["`servers` must be a table"],
    ),
    ("servers.a = \"npx\"", 1, &["`servers.a` must be a table"]),
    (
        "[gateway]\nsse_after = 5",
        2,
        &["`gateway.sse_after` must be a duration", "as `\"5s\"`"],
    ),
    (
        "[gateway]\nsse_after = \"0s\"",
        2,
        &["from `\"10ms\"` to `\"10m\"`"],
    ),
    ("[gateway]\nsse_after = \"-1s\"", 2, &["must be a duration"]),
    (
        "[gateway]\nsse_after = \"1 fortnight\"",
        2,
        &["must be a duration"],
    ),
    ("[gateway]\nkeep_alive = \"9999d\"", 2, &["to `\"1h\"`"]),
    (
        "[limits]\nbody = \"0\"",
        2,
        &["`limits.body` must be a size from `\"1KiB\"` to `\"1GiB\"`"],
    ),
    ("[limits]\nbody = -1", 2, &["must be a size"]),
    ("[limits]\nbody = \"16 MegaByte\"", 2, &["must be a size"]),
    (
        "[limits]\nbody = 99999999999999999999",
        2,
        &["must be a size"],
    ),
    (
        "[limits]\nbody = \"512MiB\"",
        2,
        &["`limits.bytes_in_flight` must be at least"],
    ),
    (
        "[sessions]\nmax = 0",
        2,
        &["must be a number from 1 to 10000000"],
    ),
    ("[sessions]\nmax = 1.5", 2, &["must be a number"]),
    ("[sessions]\nmax = \"7\"", 2, &["must be a number"]),
    (
        "[gateway]\nlog = \"jsno\"",
        2,
        &["one of `\"auto\"`, `\"human\"`, `\"json\"`", "`\"json\"`?"],
    ),
    ("[gateway]\nlog = true", 2, &["one of"]),
    (
        "[gateway]\nendpoint = \"mcp\"",
        2,
        &["`gateway.endpoint` must be a path"],
    ),
    ("[gateway]\nendpoint = \"/health\"", 2, &["must be a path"]),
    (
        "[gateway]\nlisten = \"nowhere\"",
        2,
        &["must be an address with its port"],
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:80\"",
        2,
        &["no authentication", "allow_unauthenticated"],
    ),
    (
        "[gateway]\nallowed_origins = [\"x\"]",
        2,
        &["`gateway.allowed_origins[0]`", "an origin"],
    ),
    (
        "[gateway]\nallowed_hosts = [\"http://x\"]",
        2,
        &["`gateway.allowed_hosts[0]`"],
    ),
    ("[gateway]\nallowed_hosts = \"x\"", 2, &["must be an array"]),
    (
        "[gateway]\nallow_unauthenticated = \"yes\"",
        2,
        &["must be `true` or `false`"],
    ),
    (
        "[gateway]\nrequest_timeout = \"1h\"",
        2,
        &["`gateway.request_timeout_max` must be at least"],
    ),
    (
        "[gateway]\ndata_dir = \"${NO_DIR}\"",
        2,
        &["`NO_DIR` is not set", "`${NO_DIR:-default}`"],
    ),
    ("[gateway]\ndata_dir = \"${\"", 2, &["without its `}`"]),
    (
        "[gateway]\ndata_dir = \"${cmd:ls}\"",
        2,
        &["form that is not known"],
    ),
    (
        "[supervision]\njitter = 2.0",
        2,
        &["`supervision.jitter` must be a number from 0 to 1"],
    ),
    ("[supervision]\njitter = nan", 2, &["from 0 to 1"]),
    ("[supervision]\nbackoff_factor = 0.5", 2, &["from 1 to 100"]),
    (
        "[supervision]\nbackoff_max = \"1ms\"",
        2,
        &["at least `supervision.backoff_initial`"],
    ),
    ("[servers.a]", 1, &["neither `command` nor `url`"]),
    (
        "[servers.a]\ntransport = \"http\"",
        1,
        &["`servers.a.url` is missing"],
    ),
    (
        "[servers.a]\ntransport = \"stdio\"\nurl = \"http://x\"",
        1,
        &["`servers.a.command` is miss"],
    ),
    (
        "[servers.a]\ntransport = \"sse\"\nurl = \"http://x\"",
        2,
        &["SSE", "not supported yet"],
    ),
    (
        "[servers.a]\ntransport = \"ws\"\nurl = \"http://x\"",
        2,
        &["one of `\"stdio\"`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nurl = \"http://x\"",
        3,
        &["does not go with `command`"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nargs = []",
        3,
        &["`servers.a.args` does not go with `url`"],
    ),
    (
        "[servers.a_b]\ncommand = \"x\"",
        1,
        &["a server name is 1 to 32 characters"],
    ),
    (
        "[servers.a]\nurl = \"ftp://x\"",
        2,
        &["begins with `http://`"],
    ),
    ("[servers.a]\nurl = \"x\"", 2, &["must be a URL"]),
    (
        "[servers.a]\nurl = \"http://x/#y\"",
        2,
        &["without a fragment"],
    ),
    (
        "[servers.a]\nurl = \"http://u:hunter2@x/\"",
        2,
        &["without credentials", "headers = {"],
    ),
    (
        "[servers.a]\ncommand = 5",
        2,
        &["`servers.a.command` must be a text in quotes, not integer"],
    ),
    ("[servers.a]\ncommand = \"\"", 2, &["not empty"]),
    (
        "[servers.a]\ncommand = \"x\"\nargs = [\"hunter2\", 5]",
        3,
        &["`servers.a.args[1]`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nenv = { \"A=B\" = \"hunter2\" }",
        3,
        &["the name of an env"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nheaders = { \"A B\" = \"hunter2\" }",
        3,
        &["HTTP header"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nheaders = { A = \"hunter2\\n\" }",
        3,
        &["header value"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nheaders = { Accept = \"x\" }",
        3,
        &["the gateway sets"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nheaders = { A = \"1\", a = \"2\" }",
        3,
        &["given once"],
    ),
    (
        "[servers.a]\nurl = \"http://x\"\nheaders = { A = \"hunter2 }",
        3,
        &["no valid TOML"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nargs = [\n\"hunter2\n]",
        4,
        &["no valid TOML"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nsharing = \"all\"",
        3,
        &["one of `\"auto\"`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nroots = [\"/home\"]",
        3,
        &["`servers.a.roots[0]`", "file://"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\ntools = { allow = [\"[\"] }",
        3,
        &["`servers.a.tools.allow[0]`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\ntools = { prefix = \"a b\" }",
        3,
        &["`servers.a.tools.prefix`"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nentries_max = 0",
        3,
        &["from 1 to 1000"],
    ),
    (
        "[servers.a]\ncommand = \"x\"\nenabled = 1",
        3,
        &["`true` or `false`"],
    ),
];

#[test]
fn every_mistake_is_told_with_its_place() {
    for (text, line, parts) in REFUSED {
        let error = refused(text);
        let shown = error.to_string();
        assert_eq!(error.problems()[0].line, Some(*line), "{text}\n{shown}");
        assert!(
            shown.contains(&format!("config.toml:{line}:")),
            "{text}\n{shown}"
        );
        assert!(shown.contains('^'), "{text}\n{shown}");
        for part in *parts {
            assert!(shown.contains(part), "{part}\n{text}\n{shown}");
        }
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(
            error
                .summary()
                .starts_with(&format!("config.toml:{line}: ")),
            "{}",
            error.summary()
        );
        assert!(!error.summary().contains('\n'));
    }
}

#[test]
fn several_mistakes_are_told_together_in_the_order_of_the_file() {
    let error = refused(
        "[gateway]\nlisen = 1\nsse_after = 5\n[sessions]\nmax = 0\n[servers.a]\nurl = \"x\"\nbad = 1",
    );
    let lines: Vec<_> = error
        .problems()
        .iter()
        .filter_map(|problem| problem.line)
        .collect();
    assert_eq!(lines, [2, 3, 5, 7, 8], "{error}");
    assert!(
        error.summary().ends_with("(and 4 more)"),
        "{}",
        error.summary()
    );
}

#[test]
fn an_error_looks_like_this() {
    let expected = "\
error: unknown key `gateway.lisen`
 --> config.toml:2:1
  |
2 | lisen = \"127.0.0.1:1\"
  | ^^^^^
  |
  = help: did you mean `listen`?";
    assert_eq!(
        refused("[gateway]\nlisen = \"127.0.0.1:1\"").to_string(),
        expected
    );
}

#[test]
fn a_server_that_lacks_a_variable_does_not_stop_the_others() {
    let config = load(
        "[servers.a]\nurl = \"http://a\"\nheaders = { Authorization = \"Bearer ${TOKEN}\" }\n\
         [servers.b]\ncommand = \"b\"\nargs = [\"${file:no/such/file}\", \"${X}\"]\n\
         [servers.c]\ncommand = \"c\"",
    );
    let reason = |name| match server(&config, name) {
        ServerState::Misconfigured(reason) => reason.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        reason("a"),
        "`servers.a.headers.Authorization`: the environment variable `TOKEN` is not set"
    );
    assert!(
        reason("b").contains("`servers.b.args[0]`: the file"),
        "{}",
        reason("b")
    );
    assert!(reason("b").contains("`servers.b.args[1]`: the environment variable `X`"));
    ready(&config, "c");
}

#[test]
fn variables_may_stand_in_values_of_every_kind() {
    let environment = env(&[("T", "5s"), ("N", "7"), ("ON", "true"), ("B", "1MiB")]);
    let text = "[gateway]\nsse_after = \"${T}\"\nworkers = \"${N}\"\n\
                allow_unauthenticated = \"${ON}\"\ninstructions_max = \"${B}\"\n\
                data_dir = \"/x/${NO:-${N}}\"";
    let config = load_with(text, &environment).unwrap();
    assert_eq!(config.front.sse_after, Duration::from_secs(5));
    assert_eq!(
        (config.front.workers, config.catalog.instructions_max),
        (7, 1 << 20)
    );
    assert_eq!(config.data_dir, Path::new("/x/7"));
}

#[test]
fn the_environment_chooses_the_address_and_a_public_one_is_refused() {
    let listen = |text: &str, variables: &[(&str, &str)]| {
        let loaded = Config::parse(text, "config.toml", Path::new("/"), &env(variables))?;
        Ok::<_, ConfigError>((
            loaded.config.front.listen.to_string(),
            loaded.warnings.len(),
        ))
    };
    let file = "[gateway]\nlisten = \"127.0.0.1:4000\"";
    let open = "[gateway]\nallow_unauthenticated = true\nallowed_hosts = [\"x\"]";
    let cases: [(&str, &[(&str, &str)], &str, usize); 7] = [
        ("", &[], "127.0.0.1:12006", 0),
        (file, &[], "127.0.0.1:4000", 0),
        (file, &[("PORT", "99")], "127.0.0.1:99", 0),
        (file, &[("PORT", "nope")], "127.0.0.1:12006", 1),
        (
            file,
            &[("PORT", "99"), ("MCPVISOR_LISTEN", "[::1]:1")],
            "[::1]:1",
            0,
        ),
        (
            open,
            &[("PORT", "99"), ("HOST", "0.0.0.0")],
            "0.0.0.0:99",
            0,
        ),
        (
            "[gateway]\nallow_unauthenticated = true",
            &[("MCPVISOR_LISTEN", "[::]:1")],
            "[::]:1",
            1,
        ),
    ];
    for (text, variables, address, warnings) in cases {
        let chosen = listen(text, variables).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            chosen,
            (address.to_owned(), warnings),
            "{text} {variables:?}"
        );
    }
    for variables in [
        &[("MCPVISOR_LISTEN", "0.0.0.0:1")][..],
        &[("PORT", "1"), ("HOST", "::")],
    ] {
        let error = listen(file, variables).unwrap_err().to_string();
        assert!(error.contains("no authentication yet"), "{error}");
        assert!(error.contains("the environment"), "{error}");
    }
}

/// An environment with a working directory of its own.
struct At<'a>(&'a Path);

impl Environment for At<'_> {
    fn var(&self, _: &str) -> Option<std::ffi::OsString> {
        None
    }

    fn current_dir(&self) -> std::io::Result<std::path::PathBuf> {
        Ok(self.0.to_owned())
    }
}

#[test]
fn the_file_is_the_named_one_else_the_one_here_else_the_built_in() {
    let directory = tempfile::tempdir().unwrap();
    let here = At(directory.path());
    let built_in = Config::load(None, &here).unwrap();
    assert_eq!(built_in.path, None);
    assert_eq!(built_in.config.data_dir, directory.path().join(".mcpvisor"));
    assert_eq!(built_in.config.servers.len(), 1);

    let in_place = directory.path().join("config.toml");
    fs::write(&in_place, "[sessions]\nmax = 1").unwrap();
    let found = Config::load(None, &here).unwrap();
    assert_eq!(
        (found.config.session.sessions_max, found.path),
        (1, Some(in_place))
    );

    fs::create_dir(directory.path().join("etc")).unwrap();
    fs::write(directory.path().join("etc/token"), "t\n").unwrap();
    let text = "[servers.a]\ncommand = \"./run\"\nargs = [\"${file:token}\"]\ncwd = \"w\"";
    fs::write(directory.path().join("etc/my.toml"), text).unwrap();
    let named = Config::load(Some(Path::new("etc/my.toml")), &here).unwrap();
    let etc = directory.path().join("etc");
    let settings = stdio(ready(&named.config, "a"));
    assert_eq!(named.path, Some(etc.join("my.toml")));
    assert_eq!(named.config.data_dir, etc.join(".mcpvisor"));
    assert_eq!(Path::new(&settings.command), etc.join("run"));
    assert_eq!(settings.cwd, Some(etc.join("w")));
    assert_eq!(settings.args[0].expose_secret(), "t");

    for missing in ["no.toml", "etc"] {
        let error = Config::load(Some(Path::new(missing)), &here).unwrap_err();
        assert!(matches!(error, ConfigError::Read { .. }), "{error}");
        assert!(error.to_string().contains(missing), "{error}");
    }
    fs::write(directory.path().join("bytes.toml"), b"a = \"\xff\"").unwrap();
    assert!(Config::load(Some(Path::new("bytes.toml")), &here).is_err());
}

#[test]
fn a_bare_command_is_left_to_the_search_path() {
    for (written, used) in [
        ("npx", "npx"),
        ("/bin/x", "/bin/x"),
        ("bin/x", "/etc/gate/bin/x"),
    ] {
        let config = load(&format!("[servers.a]\ncommand = \"{written}\""));
        assert_eq!(stdio(ready(&config, "a")).command, used);
    }
}

#[test]
fn check_says_what_would_run() {
    let text = "[gateway]\nsse_after = \"3s\"\n[servers.a]\ncommand = \"npx\"\n\
                args = [\"-y\", \"hunter2\"]\nenv = { TOKEN = \"hunter2\" }\n\
                tools = { allow = [\"get*\"], deny = [\"x\", \"y\"], prefix = \"p\" }\n\
                [servers.a.supervision]\nmax_restarts = 9\n\
                [servers.b]\nurl = \"https://b.example/mcp?key=hunter2\"\n\
                [servers.c]\ncommand = \"${NOPE}\"\n[servers.d]\ncommand = \"d\"\nenabled = false";
    let loaded = Config::parse(text, "config.toml", Path::new("/etc/gate"), &env(&[])).unwrap();
    let described = describe(&loaded);
    for part in [
        "http://127.0.0.1:12006/mcp",
        "/etc/gate/.mcpvisor",
        "2 to run, 1 disabled, 1 misconfigured",
        "a            stdio: npx (2 arguments, 1 variables)",
        "names: p__…",
        "tools allowed: get*",
        "tools denied: x, y",
        "max_restarts: 9",
        "b            http: https://b.example/mcp?… (0 headers)",
        "c            misconfigured: `servers.c.command`: the environment variable `NOPE`",
        "d            disabled",
        "gateway.sse_after: 3s",
    ] {
        assert!(described.contains(part), "{part}\n{described}");
    }
    assert!(!described.contains("hunter2"), "{described}");
    assert!(
        !described.contains("request_timeout"),
        "only what differs\n{described}"
    );
}

/// Texts that are near enough to a configuration to reach every reader.
fn nearly_toml() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "gateway",
        "servers",
        "limits",
        "supervision",
        "sessions",
        "listen",
        "sse_after",
        "workers",
        "body",
        "jitter",
        "max_restarts",
        "command",
        "args",
        "env",
        "url",
        "headers",
        "transport",
        "tools",
        "allow",
        "prefix",
        "roots",
        "enabled",
        "log",
        "a",
        "ä",
        "\"\"",
        "\"x y\"",
    ]);
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("-1".to_owned()),
        Just("nan".to_owned()),
        Just("1e400".to_owned()),
        Just("true".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("[]".to_owned()),
        Just("[1, [\"${A}\"], {}]".to_owned()),
        Just("{ a = \"${B\", b = { c = 1 } }".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        any::<String>().prop_map(|text| format!("{text:?}")),
        "[$a-z{}:+\\-A-Z ./0-9\u{e4}]{0,24}".prop_map(|text| format!("\"{text}\"")),
        "\\PC{0,12}",
    ];
    let path = prop::collection::vec(key, 1..4).prop_map(|keys| keys.join("."));
    let line = (path, value, 0..4_u8).prop_map(|(path, value, form)| match form {
        0 => format!("[{path}]"),
        1 => format!("[[{path}]]"),
        _ => format!("{path} = {value}"),
    });
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_is_a_panic(text in prop_oneof![any::<String>(), nearly_toml()]) {
        let environment = env(&[("A", "x"), ("B", "")]);
        match Config::parse(&text, "config.toml", Path::new("/"), &environment) {
            Ok(loaded) => prop_assert!(!describe(&loaded).is_empty()),
            Err(error) => {
                prop_assert!(!error.problems().is_empty());
                prop_assert!(!error.to_string().is_empty() && !error.summary().contains('\n'));
            }
        }
    }

    #[test]
    fn a_damaged_file_is_no_panic(at in 0..SHIPPED.len(), cut in 0..64_usize, with in ".{0,3}") {
        let bytes = SHIPPED.as_bytes();
        let end = (at + cut).min(bytes.len());
        let damaged = [&bytes[..at], with.as_bytes(), &bytes[end..]].concat();
        let text = String::from_utf8_lossy(&damaged);
        let _ = Config::parse(&text, "config.toml", Path::new("/"), &env(&[]))
            .map_err(|error| error.to_string());
    }
}

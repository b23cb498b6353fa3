//! `config.toml` from the outside: what is accepted, what is refused and how that is told.

mod generated;
mod include;
mod json;
mod place;
mod programs;
mod random;
mod refused;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mcpvisor::config::{
    Config, ConfigError, Environment, LogFormat, ServerState, default_file, describe,
};
use mcpvisor::downstream::{ServerSettings, Sharing, TransportSettings};
use mcpvisor::transport::{HttpKind, HttpSettings, InheritEnv, StdioSettings};
use secrecy::ExposeSecret as _;

fn env(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    variables.iter().map(owned).collect()
}

fn load_with(text: &str, environment: &dyn Environment) -> Result<Config, ConfigError> {
    let loaded = Config::parse(text, "config.toml", Path::new("/etc/gate"), environment)?;
    generated::assert_schema_accepts(text);
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
    let shipped = load_with(&default_file(), &environment).unwrap();
    let empty = load("");
    let gateway = |config: &Config| {
        let mut config = config.clone();
        config.servers.clear();
        format!("{config:#?}")
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
fn every_documented_key_is_accepted_with_its_documented_default() {
    // The commented part of the shipped file, without its comment signs, is a configuration too.
    let file = default_file();
    let (_, commented) = file.split_once("# A server is a program").unwrap();
    let is_code = |line: &&str| {
        let key = line.trim_start_matches("# ");
        let first = key.split([' ', '=']).next().unwrap_or_default();
        key.starts_with('[')
            || key.contains(" = ")
                && first.chars().all(|c| c.is_ascii_lowercase() || c == '_')
                && !first.is_empty()
    };
    let lines: Vec<&str> = commented
        .lines()
        .filter(is_code)
        .map(|line| line.trim_start_matches("# "))
        // The file of the first key does not exist here, the default of the second depends on the
        // transport, and the third cannot be combined with `tool`.
        .filter(|line| {
            !["env_file", "entries_max", "resource ="]
                .iter()
                .any(|key| line.starts_with(key))
        })
        .collect();
    let text = lines.join("\n");
    // Keys of both transports are written after the second server.
    let environment = env(&[
        ("FILES_TOKEN", "a"),
        ("DOCS_TOKEN", "b"),
        ("DOCS_SECRET", "c"),
        ("IDP_SECRET", "c"),
        ("PLUGGEDIN_API_KEY", "d"),
    ]);
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
    assert!(config.views["reading"].servers.is_empty());
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, or a table of cases")]
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
    assert_eq!(
        (child.line_max, &child.inherit_env),
        (1_000_000, &InheritEnv::All)
    );

    let two = ready(&config, "two");
    assert_eq!(two.supervision.within, Duration::from_secs(60));
    assert_eq!(two.limits.ping_every, Duration::ZERO);
    assert_eq!(http(two).connect_timeout, Duration::from_secs(7));
    assert_eq!(http(two).headers[0].0, "X-Key");
    assert!(matches!(server(&config, "off"), ServerState::Disabled));
}

#[test]
fn every_spelling_of_a_transport_is_known() {
    use HttpKind::{Auto, Sse, Streamable};

    for (spelling, kind) in [
        ("transport = \"auto\"", Auto),
        ("transport = \"http\"", Streamable),
        ("transport = \"streamable-http\"", Streamable),
        ("transport = \"streamableHttp\"", Streamable),
        ("transport = \"streamable_http\"", Streamable),
        ("transport = \"sse\"", Sse),
        ("", Auto),
    ] {
        let text = format!("[servers.a]\n{spelling}\nurl = \"http://x/mcp\"");
        let config = load(&text);
        let http = http(ready(&config, "a"));
        assert_eq!((http.url.as_str(), http.kind), ("http://x/mcp", kind));
    }
    stdio(ready(
        &load("[servers.a]\ntransport = \"stdio\"\ncommand = \"x\""),
        "a",
    ));
    stdio(ready(&load("[servers.a]\ncommand = \"x\""), "a"));
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
    type Case = (
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static str,
        usize,
    );
    let cases: [Case; 7] = [
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
            1,
        ),
        (
            "[gateway]\nallow_unauthenticated = true",
            &[("MCPVISOR_LISTEN", "[::]:1")],
            "[::]:1",
            2,
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
        assert!(error.contains("no authentication is configured"), "{error}");
        assert!(error.contains("the environment"), "{error}");
    }
}

#[test]
fn a_limit_of_clients_below_the_largest_body_is_warned_of() {
    let key = format!("[auth.keys.ci]\nhash = \"sha256:{}\"\n", "0".repeat(64));
    let own = |bytes: &str| format!("{key}[auth.keys.ci.limits]\nbytes_in_flight = {bytes}\n");
    let of_ci = "`auth.keys.ci.limits.bytes_in_flight` (2MiB) is less than `limits.body` (16MiB)";
    let of_all = "`limits.bytes_per_client` (1MiB) is less than `limits.body` (16MiB)";
    let small = "[limits]\nbytes_per_client = \"1MiB\"\n";
    let cases: [(String, &[&str]); 6] = [
        (small.to_owned(), &[of_all]),
        (format!("{small}body = \"1MiB\"\n"), &[]),
        (own("0"), &[]),
        (own("\"16MiB\""), &[]),
        (own("\"2MiB\""), &[of_ci]),
        (format!("{small}{}", own("\"2MiB\"")), &[of_all, of_ci]),
    ];
    for (text, expected) in cases {
        let loaded = Config::parse(&text, "config.toml", Path::new("/"), &env(&[])).unwrap();
        let warnings = loaded.warnings;
        assert_eq!(warnings.len(), expected.len(), "{text} {warnings:?}");
        for (warning, expected) in warnings.iter().zip(expected) {
            assert!(warning.contains(expected), "{warning}");
        }
    }
}

#[test]
fn secrets_that_travel_in_the_clear_are_warned_of() {
    let cases = [
        ("http://b.example/mcp", "headers = { X = \"s\" }", 1),
        ("http://b.example/mcp?key=s", "", 1),
        ("http://b.example/mcp", "", 0),
        ("https://b.example/mcp", "headers = { X = \"s\" }", 0),
        ("http://127.0.0.1/mcp", "headers = { X = \"s\" }", 0),
        ("http://localhost/mcp?key=s", "", 0),
    ];
    for (url, headers, expected) in cases {
        let text = format!("[servers.a]\nurl = \"{url}\"\n{headers}");
        let loaded = Config::parse(&text, "config.toml", Path::new("/"), &env(&[])).unwrap();
        assert_eq!(
            loaded.warnings.len(),
            expected,
            "{url} {:?}",
            loaded.warnings
        );
    }
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

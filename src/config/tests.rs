//! Unit tests of declarations, reload plans, and the handling of secrets.

use std::collections::BTreeMap;

use secrecy::SecretString;

use super::*;
use crate::downstream::{ServerSettings, TransportSettings};

fn config(text: &str, variables: &[(&str, &str)]) -> Config {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let environment: BTreeMap<String, String> = variables.iter().map(owned).collect();
    match Config::parse(text, "test", Path::new("/"), &environment) {
        Ok(loaded) => loaded.config,
        Err(error) => panic!("{error}"),
    }
}

/// Whether a file has the key, commented out or not.
fn has_key(text: &str, key: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start_matches(['#', ' ']);
        let is_assigned = line
            .strip_prefix(key)
            .is_some_and(|rest| rest.starts_with(" = "));
        let is_header =
            line.starts_with('[') && line.split(['[', ']', '.']).any(|part| part == key);
        is_assigned || is_header
    })
}

#[test]
fn every_key_is_in_the_default_file_and_the_reference() {
    let tables = keys::known_tables();
    let labels: Vec<&str> = tables.iter().map(|(label, _)| *label).collect();
    for label in [
        "[gateway]",
        "[supervision]",
        "[breaker]",
        "[sessions]",
        "[limits]",
        "[recorder]",
        "[servers.NAME]",
        "[servers.NAME.limits]",
        "[servers.NAME.faults]",
    ] {
        assert!(labels.contains(&label), "{label} is not declared");
    }
    let (file, page) = (default_file(), reference());
    for (label, keys) in &tables {
        for key in keys {
            assert!(has_key(&file, key), "`{key}` of {label} is not in the file");
            let is_explained = page.contains(&format!("| `{key}` |"));
            let is_table = page.contains(&format!(".{key}]"));
            assert!(is_explained || is_table, "`{key}` of {label} has no row");
        }
    }
}

#[test]
fn a_sentence_ends_with_a_full_stop() {
    fn check(table: &declaration::KeyTable) {
        assert!(table.about.ends_with('.'), "{}", table.about);
        for key in &table.keys {
            assert!(
                key.sentence.ends_with('.'),
                "{}: {}",
                key.name,
                key.sentence
            );
            key.table.iter().for_each(check);
        }
    }
    keys::tables()
        .iter()
        .filter_map(|key| key.table.as_ref())
        .for_each(check);
}

/// Defaults have one definition: the components' own defaults equal the file's.
#[test]
fn the_defaults_of_the_parts_are_the_declared_ones() {
    let config = config("[servers.a]\ncommand = \"x\"", &[]);
    let ServerState::Ready(server) = &config.servers[0].state else {
        panic!("not ready")
    };
    assert_eq!(config.catalog, CatalogSettings::default());
    assert_eq!(server.supervision, Default::default());
    assert_eq!(server.resilience.breaker, Default::default());
    assert_eq!(server.recorder, Default::default());
}

const BASE: &str = r#"
[servers.a]
command = "x"
args = ["${SECRET:-one}"]
env = { K = "${SECRET:-one}" }
[servers.b]
url = "http://b/"
headers = { K = "${SECRET:-one}" }
[servers.c]
command = "y"
"#;

/// Formats the steps of a plan on one line.
fn steps(plan: &Plan) -> String {
    let names = |servers: &[std::sync::Arc<ServerSettings>]| -> String {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        names.join(",")
    };
    let stop: Vec<&str> = plan.stop.iter().map(|name| name.as_str()).collect();
    let parts = [
        ("start", names(&plan.start)),
        ("stop", stop.join(",")),
        ("restart", names(&plan.restart)),
        ("retune", names(&plan.retune)),
        ("needs", plan.needs_restart.join(",")),
        (
            "gateway",
            if plan.gateway_changed { "yes" } else { "" }.to_owned(),
        ),
    ];
    let said = parts.iter().filter(|(_, what)| !what.is_empty());
    said.map(|(name, what)| format!("{name}={what}"))
        .collect::<Vec<_>>()
        .join(" ")
}

fn check(before: &str, after: &str, expected: &str) {
    let (running, wanted) = (config(before, &[]), config(after, &[]));
    let plan = Plan::between(&running, &wanted);
    assert_eq!(steps(&plan), expected, "{after}");
    assert_eq!(plan.is_empty(), expected.is_empty());
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, or a table of cases")]
fn only_what_changed_is_touched() {
    let with = |text: &str| format!("{BASE}{text}");
    let under = |section: &str| format!("{section}\n{BASE}");
    let instead = |old: &str, new: &str| BASE.replacen(old, new, 1);
    check(BASE, BASE, "");
    check(BASE, &with("# a comment"), "");
    check(BASE, &instead("${SECRET:-one}", "one"), "");
    check(BASE, &with("[servers.d]\ncommand = \"z\""), "start=d");
    check(&with("[servers.d]\ncommand = \"z\""), BASE, "stop=d");
    check(BASE, &with("enabled = false"), "stop=c");
    check(&with("enabled = false"), BASE, "start=c");
    check(BASE, &with("args = [\"${NOT_SET}\"]"), "stop=c");
    check(&with("args = [\"${NOT_SET}\"]"), BASE, "start=c");
    check(
        &with("args = [\"${NOT_SET}\"]"),
        &with("args = [\"${NEITHER}\"]"),
        "",
    );
    check(
        &with("args = [\"${NOT_SET}\"]"),
        &with("enabled = false"),
        "",
    );

    check(
        BASE,
        &instead("args = [\"${SECRET:-one}\"]", "args = [\"two\"]"),
        "restart=a",
    );
    check(
        BASE,
        &instead("env = { K = \"${SECRET:-one}\" }", "env = { K = \"two\" }"),
        "restart=a",
    );
    check(
        BASE,
        &instead("headers = { K = \"${SECRET:-one}\" }", ""),
        "restart=b",
    );
    check(BASE, &instead("http://b/", "http://b/2"), "restart=b");
    check(BASE, &with("cwd = \"/tmp\""), "restart=c");
    check(BASE, &with("inherit_env = true"), "restart=c");
    check(BASE, &with("sharing = \"session\""), "restart=c");
    check(
        BASE,
        &instead("command = \"y\"", "url = \"http://y\""),
        "restart=c",
    );
    check(
        BASE,
        &instead("command = \"y\"", "command = \"y\"\nargs = [\"\"]"),
        "restart=c",
    );

    check(
        BASE,
        &with("[servers.c.limits]\nmemory_max = \"64MiB\""),
        "restart=c",
    );
    check(
        BASE,
        &with("[servers.c.faults]\ndelay = \"1s\""),
        "restart=c",
    );
    check(BASE, &with("faults = { drop = 0.0 }"), "");
    check(BASE, &with("tools = { deny = [\"x\"] }"), "retune=c");
    check(BASE, &with("roots = [\"file:///x\"]"), "retune=c");
    check(BASE, &with("request_timeout = \"5s\""), "retune=c");
    check(BASE, &with("start = \"lazy\""), "retune=c");
    check(BASE, &with("idle_stop = \"5m\""), "retune=c");
    check(
        BASE,
        &with("[servers.c.supervision]\nmax_restarts = 1"),
        "retune=c",
    );
    check(BASE, &under("[supervision]\njitter = 0.1"), "retune=a,b,c");
    check(BASE, &under("[recorder]\nbodies = 5"), "retune=a,b,c");
    check(BASE, &under("[limits]\nline = \"1MiB\""), "retune=a,c");
    check(BASE, &under("[limits]\nevent = \"1MiB\""), "retune=b");
    check(BASE, &under("[limits]\nlist_items = 5"), "retune=a,b,c");

    check(
        BASE,
        &under("[limits]\nbody = \"1MiB\""),
        "retune=b gateway=yes",
    );
    check(
        BASE,
        &under("[limits]\ncalls_per_session = 5"),
        "gateway=yes",
    );
    check(BASE, &under("[sessions]\nmax = 5"), "gateway=yes");
    check(BASE, &under("[gateway]\nsse_after = \"2s\""), "gateway=yes");
    check(
        BASE,
        &under("[gateway]\nallow_unauthenticated = true\nallowed_hosts = [\"x\"]"),
        "gateway=yes",
    );
    check(
        BASE,
        &under("[gateway]\nshutdown_grace = \"2s\""),
        "gateway=yes",
    );
    check(BASE, &under("[gateway]\npage_items = 7"), "gateway=yes");
    check(
        BASE,
        &under("[gateway]\nlisten = \"127.0.0.1:1\"\ndata_dir = \"x\"\nlog = \"json\""),
        "needs=gateway.listen,gateway.data_dir,gateway.log",
    );
    check(
        BASE,
        &under("[gateway]\nendpoint = \"/x\"\nkeep_alive = \"1s\"\nsse_after = \"2s\""),
        "needs=gateway.endpoint,gateway.keep_alive gateway=yes",
    );
    let moved = "[servers.c]\ncommand = \"y\"\n".to_owned()
        + &BASE.replace("[servers.c]\ncommand = \"y\"\n", "");
    check(BASE, &moved, "gateway=yes");
}

#[test]
fn a_changed_secret_restarts_its_servers_and_an_equal_one_does_not() {
    let running = config(BASE, &[("SECRET", "s1")]);
    let same = Plan::between(&running, &config(BASE, &[("SECRET", "s1"), ("OTHER", "x")]));
    assert_eq!(steps(&same), "");
    let plan = Plan::between(&running, &config(BASE, &[("SECRET", "s2")]));
    assert_eq!(steps(&plan), "restart=a,b");
    assert!(!format!("{plan:?}{running:?}").contains("s1"));
}

#[test]
fn keys_that_need_a_restart_keep_their_values_until_then() {
    let running = config("", &[]);
    let text = "[gateway]\nlisten = \"127.0.0.1:1\"\nworkers = 77\nsse_after = \"2s\"";
    let wanted = config(text, &[]);
    let in_force = wanted.clone().with_fixed_of(&running);
    assert_eq!(steps(&Plan::between(&running, &in_force)), "gateway=yes");
    let still = Plan::between(&in_force, &wanted);
    assert_eq!(steps(&still), "needs=gateway.listen,gateway.workers");
    assert_eq!(in_force.front.sse_after, Duration::from_secs(2));
}

/// A file whose authentication changes at the next start must not open the running gateway.
#[test]
fn what_guards_a_gateway_stays_until_its_restart() {
    let key = format!("[auth.keys.a]\nhash = \"sha256:{}\"", "0".repeat(64));
    let public = "[gateway]\nlisten = \"0.0.0.0:1\"\n";
    let running = config(&format!("{public}{key}"), &[]);
    let certificates = "[tls]\ncertificate = \"c\"\nkey = \"k\"\nclient_ca = \"a\"\n";
    let cases = [
        ("", "needs=gateway.listen,auth"),
        (
            &format!("{public}{certificates}"),
            "needs=tls.certificate,tls.key,tls.client_ca,auth",
        ),
        (
            &format!("{public}allow_unauthenticated = true"),
            "gateway=yes",
        ),
    ];
    for (text, expected) in cases {
        let wanted = config(text, &[]);
        assert_eq!(steps(&Plan::between(&running, &wanted)), expected, "{text}");
        let in_force = wanted.with_fixed_of(&running);
        let is_guarded = in_force.front.auth.is_required();
        assert_eq!(is_guarded, expected.contains("auth"), "{text}");
    }
    // Clients are not asked for certificates before the restart, so none are required until then.
    let named = format!("{certificates}[auth]\ncertificates = true\n");
    let wanted = config(&named, &[]);
    assert!(wanted.front.auth.is_required());
    let in_force = wanted.with_fixed_of(&config("", &[]));
    assert!(!in_force.front.auth.is_required());
    let named = format!("[gateway]\nallowed_hosts = [\"x\"]\n{certificates}");
    let in_force = config(&named, &[]).with_fixed_of(&config("", &[]));
    assert!(in_force.front.allowed_hosts.is_empty());
}

#[test]
fn certificates_come_with_their_keys_and_stand_beside_the_file() {
    let refused = [
        ("certificate = \"c\"", "`tls.certificate` needs `tls.key`"),
        ("key = \"k\"", "`tls.key` needs `tls.certificate`"),
        (
            "client_ca = \"a\"",
            "`tls.client_ca` needs `tls.certificate`",
        ),
        (
            "certificate = \"c\"\nkey = \"k\"\n[auth]\ncertificates = true",
            "`auth.certificates` needs `tls.client_ca`",
        ),
    ];
    let parse = |text: &str| {
        let text = format!("[tls]\n{text}");
        Config::parse(&text, "test", Path::new("/etc/m"), &BTreeMap::new())
    };
    for (text, expected) in refused {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let config = parse("certificate = \"c\"\nkey = \"/k\"").unwrap().config;
    let files = config.front.tls.files();
    assert_eq!(files, [PathBuf::from("/etc/m/c"), PathBuf::from("/k")]);
    assert_eq!(config.endpoint_url(), "https://127.0.0.1:12006/mcp");
}

#[test]
fn a_value_of_the_environment_is_in_no_text() {
    // Each value is invalid for its key, so each causes an error or an unusable server.
    const SECRET: &str = "s3cr3t value\u{1}";
    let fields = [
        "command = \"x\"\nargs = [\"${S}\", \"${NOT_SET}\"]",
        "command = \"x\"\nrequest_timeout = \"${S}\"",
        "command = \"x\"\nentries_max = \"${S}\"",
        "command = \"x\"\nsharing = \"${S}\"",
        "command = \"x\"\nenabled = \"${S}\"",
        "command = \"x\"\nroots = [\"${S}\"]",
        "command = \"x\"\ntools = { prefix = \"${S}\" }",
        "url = \"${S}\"",
        "url = \"http://x\"\nheaders = { K = \"${S}\" }",
        "url = \"http://x\"\ntransport = \"${S}\"",
    ];
    let environment = BTreeMap::from([("S".to_owned(), SECRET.to_owned())]);
    let parse = |text: &str| Config::parse(text, "test", Path::new("/"), &environment);
    for field in fields {
        let loaded = parse(&format!("[servers.a]\n{field}")).unwrap();
        let ServerState::Misconfigured(reason) = &loaded.config.servers[0].state else {
            panic!("{field} is accepted");
        };
        assert!(reason.contains("servers.a."), "{reason}");
        let texts = format!("{reason}{loaded:?}{}", describe(&loaded));
        assert!(!texts.contains("s3cr3t"), "{texts}");
    }
    for key in [
        "listen",
        "endpoint",
        "sse_after",
        "page_items",
        "log",
        "instructions_max",
    ] {
        let error = parse(&format!("[gateway]\n{key} = \"${{S}}\"")).unwrap_err();
        assert_eq!(error.problems()[0].line, Some(2));
        assert!(!format!("{error} {error:?}").contains("s3cr3t"), "{error}");
    }
}

#[test]
fn secrets_of_a_ready_server_are_not_shown() {
    let text = "[servers.a]\nurl = \"https://h/p?key=${S}\"\nheaders = { K = \"${S}\" }\n\
                [servers.b]\ncommand = \"x\"\nargs = [\"${S}\"]\nenv = { K = \"${S}\" }";
    let environment = BTreeMap::from([("S".to_owned(), "s3cr3t".to_owned())]);
    let loaded = Config::parse(text, "test", Path::new("/"), &environment).unwrap();
    let described = describe(&loaded);
    assert!(!described.contains("s3cr3t"), "{described}");
    assert!(
        described.contains("http: https://h/p?… (1 headers)"),
        "{described}"
    );
    let ServerState::Ready(settings) = &loaded.config.servers[1].state else {
        panic!("not ready")
    };
    let TransportSettings::Stdio(stdio) = &settings.transport else {
        panic!("not stdio")
    };
    let _: &SecretString = &stdio.args[0];
    assert!(!format!("{settings:?}").contains("s3cr3t"));
}

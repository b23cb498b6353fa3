//! The commands: what they print, and how they end.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Http, INITIALIZE, Setup, example, python, until};

fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn check_says_what_would_run() {
    let config = format!("{}{}", example("one"), python("two", ""));
    let setup = Setup::new(&config);
    for arguments in [
        &["check"][..],
        &["--config", "config.toml", "check"],
        &["check", "--config", "config.toml"],
    ] {
        let output = setup.command(arguments).output().unwrap();
        let (out, error) = text(&output);
        assert!(output.status.success(), "{error}");
        assert!(
            out.contains("one") && out.contains("two") && out.contains("python3"),
            "{out}"
        );
    }
    // Nothing was started, nothing written.
    assert!(!setup.path(".mcpvisor").exists());
}

#[test]
fn check_shows_errors_with_their_place() {
    let setup = Setup::new("[gateway]\nlissten = \"127.0.0.1:1\"\n\n[servers.x]\ncommand = 3\n");
    let output = setup.command(&["check"]).output().unwrap();
    let (out, error) = text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(out, "");
    for word in [
        "config.toml:2",
        "lissten",
        "`listen`",
        "config.toml:5",
        "command",
    ] {
        assert!(error.contains(word), "{word} in {error}");
    }
    let serve = setup.command(&["serve"]).output().unwrap();
    assert_eq!(serve.status.code(), Some(1));
    let missing = setup
        .command(&["--config", "no.toml", "check"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing).1.contains("no.toml"));
}

#[test]
fn check_fails_for_a_server_that_cannot_start() {
    let bad = "[servers.bad]\ncommand = \"no-such-program\"\n";
    let setup = Setup::new(&format!("{}{bad}", example("one")));
    let output = setup.command(&["check"]).output().unwrap();
    let (out, error) = text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(out.contains("one") && out.contains("bad"), "{out}");
    let expected = "error: server `bad` cannot start: `no-such-program` was not found in PATH (";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_port_out_of_range_falls_back_with_a_warning() {
    let setup = Setup::new("");
    for (port, good) in [
        ("0", false),
        ("65536", false),
        ("-1", false),
        ("x", false),
        ("8080", true),
    ] {
        let mut command = setup.command(&["check"]);
        let output = command
            .env_remove("MCPVISOR_LISTEN")
            .env("PORT", port)
            .output()
            .unwrap();
        assert!(output.status.success(), "{port}");
        let all = format!("{}{}", text(&output).0, text(&output).1);
        let wanted = if good {
            "127.0.0.1:8080"
        } else {
            "127.0.0.1:12006"
        };
        assert!(all.contains(wanted), "{port}: {all}");
        assert_eq!(all.contains("`PORT`"), !good, "{port}: {all}");
    }
}

#[test]
fn a_public_address_is_refused_unless_it_is_allowed() {
    let setup = Setup::new("");
    let check = |setup: &Setup| {
        let mut command = setup.command(&["check"]);
        command
            .env("MCPVISOR_LISTEN", "0.0.0.0:12006")
            .output()
            .unwrap()
    };
    let output = check(&setup);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).1.contains("allow_unauthenticated"));
    assert!(
        check(&Setup::new("[gateway]\nallow_unauthenticated = true\n"))
            .status
            .success()
    );
}

#[tokio::test]
async fn status_shows_the_tree() {
    let config = format!(
        "{}[servers.bad]\ncommand = \"x\"\nenv = {{ T = \"${{NO_SUCH}}\" }}\n",
        example("one")
    );
    let gateway = Setup::new(&config).serve().await;
    until("its tools", || async {
        (gateway.server("one").await["items"]["tools"] == 11).then_some(())
    })
    .await;
    let _client = Client::open(&gateway).await;
    let output = gateway.setup.command(&["status"]).output().unwrap();
    let (out, error) = text(&output);
    assert!(output.status.success(), "{error}");
    for word in [
        &format!("pid {}", gateway.pid()),
        "sessions 1",
        "one · up",
        "stdio",
        "11 tools",
        "bad · misconfigured",
        "NO_SUCH",
    ] {
        assert!(out.contains(word), "{word} in {out}");
    }
    let output = gateway
        .setup
        .command(&["status", "--json"])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["pid"], gateway.pid());
    assert_eq!(status["servers"][0]["items"]["tools"], 11);
    assert_eq!(status["servers"][1]["state"], "misconfigured");
    assert_eq!(status["counters"]["sessions_opened"], 1);
}

#[test]
fn status_without_a_gateway_says_so() {
    let setup = Setup::new("");
    let output = setup.command(&["status"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).1.contains("no gateway runs"));
}

#[tokio::test]
async fn a_second_gateway_in_the_same_directory_is_refused() {
    let gateway = Gateway::start("").await;
    let output = gateway.setup.command(&["serve"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output).1;
    assert!(error.contains(&format!("pid {}", gateway.pid())), "{error}");
    assert!(error.contains("data_dir"), "{error}");
    Client::open(&gateway).await;
    assert_eq!(gateway.status().await["pid"], gateway.pid());
}

#[tokio::test]
async fn a_port_that_is_taken_is_said() {
    let gateway = Gateway::start("").await;
    let setup = Setup::new("").variable("MCPVISOR_LISTEN", &gateway.address.to_string());
    let output = setup.command(&["serve"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output).1;
    assert!(error.contains(&gateway.address.to_string()), "{error}");
    for word in [
        "`mcpvisor`",
        &format!("pid {}", gateway.pid()),
        "`listen`",
        "PORT",
    ] {
        assert!(error.contains(word), "{word} in {error}");
    }
    let runtime = gateway.setup.directory.path().to_str().unwrap();
    let setup = setup.variable("XDG_RUNTIME_DIR", runtime);
    let error = text(&setup.command(&["serve"]).output().unwrap()).1;
    let another = format!("by another mcpvisor (pid {} with ", gateway.pid());
    assert!(error.contains(&another), "{error}");
}

#[tokio::test]
async fn a_gateway_is_found_from_another_directory() {
    let gateway = Gateway::start(&example("one")).await;
    let runtime = gateway.setup.directory.path().to_str().unwrap();
    let elsewhere = Setup::new("").variable("XDG_RUNTIME_DIR", runtime);
    // A configuration in that place names another gateway.
    let output = elsewhere.command(&["status"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output).1;
    for word in [
        "no gateway runs",
        "--config /",
        &format!("pid {}", gateway.pid()),
    ] {
        assert!(error.contains(word), "{word} in {error}");
    }
    std::fs::remove_file(elsewhere.path("config.toml")).unwrap();
    let (out, error) = text(&elsewhere.command(&["servers"]).output().unwrap());
    assert!(out.contains("one"), "{out}{error}");
    assert!(error.contains("config.toml"), "{error}");
    // One that was killed is forgotten.
    let mut gateway = gateway;
    gateway.kill();
    let error = text(&elsewhere.command(&["status"]).output().unwrap()).1;
    assert!(error.contains("`--config FILE`"), "{error}");
}

#[tokio::test]
async fn the_log_for_people_names_servers_and_reasons() {
    let config = format!(
        "[gateway]\nlog = \"human\"\n{}[servers.gone]\ncommand = \"python3\"\nargs = [\"-c\", \"raise ValueError(chr(10) + 'x')\"]\nera = \"legacy\"\n",
        example("one")
    );
    let gateway = Setup::new(&config).serve().await;
    gateway.wait_state("one", "up").await;
    let log = until("the end of the other", || async {
        let log = gateway.log();
        log.contains("ValueError").then_some(log)
    })
    .await;
    for line in log.lines() {
        // A date, a time, its zone, a level and a name.
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[0].len() == 10 && words[1].len() == 8, "{line}");
        assert!(["INFO", "WARN", "ERROR"].contains(&words[3]), "{line}");
        assert!(["mcpvisor", "one", "gone"].contains(&words[4]), "{line}");
        assert!(
            !line.contains('\u{1b}') && !line.contains("actix"),
            "{line}"
        );
    }
    let address = format!("serves http://{}/mcp", gateway.address);
    for part in [
        &address,
        "one          up",
        ": process exited with code 1: ValueError:",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
}

#[tokio::test]
async fn kept_files_are_for_their_owner_only() {
    let gateway = Gateway::start("").await;
    for name in ["run.json", "control.sock", "lock"] {
        let file = std::fs::metadata(gateway.data_dir().join(name)).unwrap();
        assert_eq!(file.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_data_directory_that_was_open_is_closed_to_others() {
    let setup = Setup::new("");
    let mode = |name: &str| {
        let found = std::fs::metadata(setup.path(name)).unwrap();
        found.permissions().mode() & 0o777
    };
    std::fs::create_dir(setup.path(".mcpvisor")).unwrap();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(setup.path(".mcpvisor"), open).unwrap();
    assert_eq!(mode(".mcpvisor"), 0o777);
    let gateway = setup.serve().await;
    let found = std::fs::metadata(gateway.data_dir()).unwrap();
    assert_eq!(found.permissions().mode() & 0o777, 0o700);
    for file in std::fs::read_dir(gateway.data_dir()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file:?}");
    }
}

#[tokio::test]
async fn a_data_directory_that_is_a_link_is_refused() {
    let setup = Setup::new("");
    std::fs::create_dir(setup.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink(setup.path("elsewhere"), setup.path(".mcpvisor")).unwrap();
    let output = setup.command(&["serve"]).output().unwrap();
    let (_, error) = text(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("is a link"), "{error}");
}

#[tokio::test]
async fn without_a_file_the_example_server_runs() {
    let setup = Setup::new("");
    std::fs::remove_file(setup.path("config.toml")).unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("example", "up").await;
    let client = Client::open(&gateway).await;
    let sum = client.call("example__add", json!({"a": 20, "b": 22})).await;
    assert_eq!(sum["structuredContent"]["sum"], 42);
}

#[tokio::test]
async fn secrets_are_nowhere_to_be_read() {
    let canary = "canary-4f9a";
    let config = format!(
        "{}[servers.h]\nurl = \"http://127.0.0.1:9/\"\nheaders = {{ Authorization = \"Bearer ${{TOKEN}}\" }}\n\
         [servers.s]\ncommand = \"/no/such\"\nargs = [\"--token\", \"${{TOKEN}}\"]\nenv = {{ T = \"${{TOKEN}}\" }}\n",
        example("one")
    );
    let gateway = Setup::new(&config).variable("TOKEN", canary).serve().await;
    gateway.wait_state("one", "up").await;
    until("attempts", || async {
        let status = gateway.status().await;
        let tried = |index: usize| {
            status["servers"][index]["connection"]["shared"]["last_exit"].is_string()
        };
        (tried(1) && tried(2)).then_some(())
    })
    .await;
    let client = Client::open(&gateway).await;
    let run = |arguments: &[&str]| text(&gateway.setup.command(arguments).output().unwrap());
    let initialize = Http::post(gateway.address, INITIALIZE)
        .send()
        .await
        .json()
        .await;
    let texts = [
        gateway.log(),
        format!("{:?}", run(&["status"])),
        format!("{:?}", run(&["status", "--json"])),
        format!("{:?}", run(&["check"])),
        format!("{:?}", run(&["servers"])),
        format!("{:?}", run(&["servers", "crashes"])),
        format!("{:?}", run(&["servers", "crashes", "s"])),
        format!("{:?}", run(&["servers", "logs", "h"])),
        format!("{:?}", run(&["servers", "restart", "s"])),
        gateway.get("/health").send().await.json().await.to_string(),
        client.get("tools/list", json!({})).await.to_string(),
        initialize.to_string(),
    ];
    for text in texts {
        assert!(!text.contains(canary), "{text}");
    }
}

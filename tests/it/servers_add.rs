//! `mcpvisor servers add`.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::Stdio;

use actix_web::{HttpRequest, HttpResponse, web};

use serde_json::json;

use crate::support::{Gateway, Setup, quick, serve_in_thread};

/// A `server.json` of the registry whose program is the built-in example.
fn server_json(setup: &Setup) -> String {
    let file = json!({
        "name": "io.github.somebody/far server", "version": "1",
        "packages": [{
            "registryType": "npm", "identifier": "example-server", "runtimeHint": Setup::BINARY,
            "transport": {"type": "stdio"},
            "environmentVariables": [
                {"name": "API_KEY", "isRequired": true, "isSecret": true, "description": "Of the API"},
                {"name": "IT_MARK", "default": setup.mark().split_once('=').unwrap().1},
                {"name": "IT_SERVER", "default": "far-server"},
            ],
        }],
    });
    file.to_string()
}

#[tokio::test]
async fn a_server_of_the_registry_is_added_to_a_running_gateway() {
    let config = format!("# Mine.\n{}", quick());
    let setup = Setup::new(&config).variable("FAR_KEY", "SECRET");
    fs::write(setup.path("server.json"), server_json(&setup)).unwrap();
    let gateway = setup.serve().await;
    let setup = &gateway.setup;
    let (succeeded, printed) = setup.run(&["servers", "add", "server.json"]);
    assert!(
        !succeeded && printed.contains("--set API_KEY=…  Of the API"),
        "{printed}"
    );
    let set = [
        "servers",
        "add",
        "server.json",
        "--set",
        "API_KEY=${FAR_KEY}",
    ];
    let (succeeded, printed) = setup.run(&[&set[..], &["--dry-run"]].concat());
    assert!(
        succeeded && printed.contains("# would be added to"),
        "{printed}"
    );
    assert_eq!(
        fs::read_to_string(setup.path("config.toml")).unwrap(),
        config
    );

    let (succeeded, printed) = setup.run(&set);
    assert!(
        succeeded && printed.contains("added    far-server"),
        "{printed}"
    );
    gateway.wait_state("far-server", "up").await;
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(
        now.starts_with("# Mine.") && now.contains("API_KEY = \"${FAR_KEY}\""),
        "{now}"
    );
    let (succeeded, printed) = setup.run(&set);
    assert!(
        !succeeded && printed.contains("already has a server with this name"),
        "{printed}"
    );
}

#[tokio::test]
async fn a_name_is_looked_up_in_the_registry() {
    let setup = Setup::new("");
    let answer = format!(
        "{{\"server\": {}, \"_meta\": {{\"io.modelcontextprotocol.registry/official\": \
         {{\"status\": \"active\"}}}}}}",
        server_json(&setup)
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = format!("http://{}/sub", listener.local_addr().unwrap());
    serve_in_thread(listener, web::Data::new(answer), registry_answer).await;
    let setup = setup.variable("MCPVISOR_REGISTRY", &registry);
    let add = |name| {
        let set = ["--set", "API_KEY=x"];
        setup.run(&[&["servers", "add", name][..], &set].concat())
    };
    let (succeeded, printed) = add("io.github.somebody/other");
    assert!(
        !succeeded && printed.contains("no such server"),
        "{printed}"
    );
    let (succeeded, printed) = add("io.github.somebody/far@2.0");
    assert!(
        !succeeded && printed.contains("no such server"),
        "{printed}"
    );
    let (succeeded, printed) = add("io.github.somebody/far");
    assert!(
        succeeded && printed.contains("added    far-server"),
        "{printed}"
    );
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(now.contains("[servers.far-server]"), "{now}");
}

/// As a registry that has one version of one server.
async fn registry_answer(request: HttpRequest, answer: web::Data<String>) -> HttpResponse {
    let known = "/sub/v0.1/servers/io.github.somebody%2Ffar/versions/latest";
    match request.uri().path() == known {
        true => HttpResponse::Ok().body(answer.get_ref().clone()),
        false => HttpResponse::NotFound().finish(),
    }
}

#[test]
fn a_url_is_added_with_its_headers_and_what_is_no_server_is_refused() {
    let setup = Setup::new("");
    let url = "https://mcp.docs.example.com/mcp";
    let add = [
        "servers",
        "add",
        url,
        "--set",
        "Authorization=Bearer ${TOKEN}",
    ];
    let (succeeded, printed) = setup.run(&add);
    assert!(succeeded && printed.contains("added    docs"), "{printed}");
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(
        now.contains(&format!("url = \"{url}\"")) && now.contains("Bearer ${TOKEN}"),
        "{now}"
    );
    let (succeeded, printed) = setup.run(&["servers", "add", "other", url]);
    assert!(succeeded && printed.contains("added    other"), "{printed}");

    fs::write(setup.path("bad.json"), "{\"name\": SECRET").unwrap();
    fs::write(setup.path("empty.json"), "{\"name\": \"x\"}").unwrap();
    for (from, expected) in [
        ("nowhere.json", "\"nowhere.json\" is not a URL, a file"),
        ("bad.json", "is not JSON"),
        ("empty.json", "no matching npm"),
        ("http://127.0.0.1:1/server.json", "127.0.0.1:1"),
    ] {
        let (succeeded, printed) = setup.run(&["servers", "add", from]);
        assert!(
            !succeeded && printed.contains(expected) && !printed.contains("SECRET"),
            "{printed}"
        );
    }
}

#[tokio::test]
async fn a_program_is_added_disabled_enabled_and_removed_by_its_name() {
    let gateway = Gateway::start(&quick()).await;
    let setup = &gateway.setup;
    let mark = setup.mark();
    let program = [Setup::BINARY, "example-server"];
    let add = [
        &["servers", "add", "two", "--env", &mark, "--"][..],
        &program,
    ]
    .concat();
    let (succeeded, printed) = setup.run(&add);
    assert!(succeeded, "{printed}");
    for word in ["added    two", "config.toml", "two · up", "11 tools"] {
        assert!(printed.contains(word), "{word} in {printed}");
    }
    let run = |verb: &str| setup.run(&["servers", verb, "two"]);
    let text = || fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(run("show").1.contains("11 tools"));
    assert!(run("disable").0 && text().contains("enabled = false"));
    gateway.wait_state("two", "disabled").await;
    let (succeeded, printed) = setup.run(&["servers", "wait", "two", "--timeout", "0s"]);
    assert!(
        !succeeded && printed.contains("two · disabled"),
        "{printed}"
    );
    assert!(run("enable").0);
    let (succeeded, printed) = run("wait");
    assert!(succeeded, "{printed}");
    gateway.wait_state("two", "up").await;
    assert!(run("remove").0 && !text().contains("two"));
    let (succeeded, printed) = run("wait");
    assert!(
        !succeeded && printed.contains("no server `two`"),
        "{printed}"
    );
}

/// Runs the command with a text on stdin.
fn fed(setup: &Setup, arguments: &[&str], text: &str) -> String {
    let mut command = setup.command(arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn whatever_documentation_shows_can_be_pasted() {
    let setup = Setup::new("");
    let json = r#"{"mcpServers": {"one": {"command": "uvx", "args": ["a"]}, "two": {"url": "https://b.example/mcp"}}}"#;
    let line = "TOKEN='a b' npx -y @modelcontextprotocol/server-filesystem /tmp";
    let table = [
        (vec![line], "[servers.filesystem]\ncommand = \"npx\""),
        (vec![line], "TOKEN = \"***\""),
        (vec!["files", line], "[servers.files]"),
        (vec![json], "[servers.two]\nurl = \"https://b.example/mcp\""),
        (
            vec!["files", "--disabled", "--", "npx", "x"],
            "enabled = false",
        ),
        (
            vec![
                "docs",
                "https://b.example/mcp",
                "--bearer",
                "${T}",
                "--header",
                "X-A: b",
            ],
            "X-A = \"***\"\nAuthorization = \"Bearer ${T}\"",
        ),
        (
            vec!["files", "https://b.example/mcp", "--", "npx"],
            "not both",
        ),
        (vec!["files", "--header", "A: b", "--", "npx"], "no headers"),
        (
            vec!["docs", "https://b.example/mcp", "--env", "A=b"],
            "no environment",
        ),
        (vec!["name", json], "these are 2"),
        (vec![], "name a server"),
    ];
    for (arguments, expected) in table {
        let all = [&["servers", "add", "--dry-run"][..], &arguments].concat();
        let (_, printed) = setup.run(&all);
        assert!(printed.contains(expected), "{arguments:?}: {printed}");
    }
    for (text, expected) in [
        (json, "[servers.one]"),
        (line, "[servers.filesystem]"),
        ("", "stdin is empty"),
    ] {
        let printed = fed(&setup, &["servers", "add", "--dry-run", "-"], text);
        assert!(printed.contains(expected), "{text}: {printed}");
    }
    assert_eq!(fs::read_to_string(setup.path("config.toml")).unwrap(), "");
}

#[test]
fn the_first_server_makes_a_short_file_and_can_join_a_view() {
    let setup = Setup::new("");
    fs::remove_file(setup.path("config.toml")).unwrap();
    let home = setup.path("home");
    let setup = setup.variable("HOME", home.to_str().unwrap());
    let add = [
        "servers",
        "add",
        "docs",
        "https://b.example/mcp",
        "--view",
        "reading",
    ];
    let (succeeded, printed) = setup.run(&add);
    assert!(
        succeeded && printed.contains("removed  example"),
        "{printed}"
    );
    let text = fs::read_to_string(home.join(".config/mcpvisor/config.toml")).unwrap();
    assert!(
        text.starts_with("# The configuration of mcpvisor."),
        "{text}"
    );
    assert!(text.lines().count() < 12, "{text}");
    assert!(
        text.contains("[views.reading]\nservers = [\"docs\"]"),
        "{text}"
    );
    let (succeeded, printed) = setup.run(&[
        "servers",
        "add",
        "more",
        "https://c.example/",
        "--view",
        "reading",
    ]);
    assert!(succeeded && !printed.contains("example:"), "{printed}");
}

#[tokio::test]
async fn the_registry_is_searched() {
    let setup = Setup::new("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let registry = format!("http://{}", listener.local_addr().unwrap());
    serve_in_thread(listener, web::Data::new(String::new()), found).await;
    let search = |word| setup.run(&["servers", "search", word, "--registry", &registry]);
    let (succeeded, printed) = search("git hub");
    assert!(succeeded, "{printed}");
    assert_eq!(
        printed,
        "io.github.a/git\n  Reads\\u{1b} repositories\n  mcpvisor servers add io.github.a/git\n"
    );
    let (succeeded, printed) = search("nothing");
    assert!(
        succeeded && printed.contains("no server's name contains"),
        "{printed}"
    );
    let (succeeded, printed) = search("page");
    assert!(
        !succeeded && printed.contains("did not answer like an MCP registry"),
        "{printed}"
    );
    let nowhere = ["servers", "search", "x", "--registry", "http://127.0.0.1:1"];
    let (succeeded, printed) = setup.run(&nowhere);
    assert!(
        !succeeded && printed.contains("the registry cannot be reached"),
        "{printed}"
    );
}

/// As a registry that is searched.
async fn found(request: HttpRequest, _: web::Data<String>) -> HttpResponse {
    assert_eq!(request.path(), "/v0/servers");
    let query = request.query_string();
    let servers = match query.contains("search=git+hub") {
        true => {
            json!([{"server": {"name": "io.github.a/git", "description": "Reads\u{1b} repositories"}}])
        }
        false => json!([]),
    };
    match query.contains("search=page") {
        true => HttpResponse::Ok().body("<html>"),
        false => HttpResponse::Ok().json(json!({"servers": servers, "metadata": {"count": 1}})),
    }
}

/// Documentation shows commands as one text.
#[tokio::test]
async fn a_command_in_one_text_is_split_where_that_is_certain() {
    let gateway = Gateway::start(&quick()).await;
    let setup = &gateway.setup;
    let add = ["servers", "add", "spoken", "--", "sh -c 'exit 0'"];
    let (succeeded, printed) = setup.run(&add);
    assert!(
        succeeded && printed.contains("added    spoken"),
        "{printed}"
    );
    assert!(
        printed.contains("split into `sh` and its arguments"),
        "{printed}"
    );
    let now = fs::read_to_string(setup.path("config.toml")).unwrap();
    assert!(now.contains("args = [\"-c\", \"exit 0\"]"), "{now}");
    let (succeeded, printed) = setup.run(&["servers", "add", "other", "--", "no-such-program x"]);
    assert!(
        !succeeded && printed.contains("no shell is used"),
        "{printed}"
    );
}

//! The gateway between the official TypeScript SDK and a public server of many features.
//!
//! Every scenario is a script in `tests/peers/interop/`, run by Node against a gateway of its own. The
//! packages are installed into the target directory, as the lock file says. Without Node nothing
//! can be tested: that is a loud message, and in CI a failure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::node::{self, Gateway, HttpServer, Server, end_of, everything, free_port};

/// Longest run of a script.
const SCRIPT_MAX: Duration = Duration::from_secs(180);

#[test]
fn the_sdk_is_served() {
    if scripts().is_none() {
        return;
    }
    let gateway = gateway(EXAMPLE);
    run(&gateway, "example.mjs", &[], 17);
}

#[test]
fn the_program_of_the_page_about_clients_lists_tools() {
    let Some(scripts) = scripts() else { return };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/guides/connect-a-client.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, program) = page.split_once("\n```ts\n").unwrap();
    let (program, _) = program.split_once("\n```").unwrap();
    assert!(program.contains("http://127.0.0.1:12006/mcp"), "{program}");
    let gateway = gateway(EXAMPLE);
    // Beside the packages, which Node finds from where the program is.
    let file = scripts.join("documented.mjs");
    fs::write(
        &file,
        program.replace("http://127.0.0.1:12006/mcp", &gateway.url),
    )
    .unwrap();
    let output = Command::new("node").arg(file).output().unwrap();
    let said = node::text(&output);
    assert!(
        output.status.success() && said.contains("example__add"),
        "{said}"
    );
}

#[test]
fn the_sdk_resumes_its_streams() {
    if scripts().is_none() {
        return;
    }
    let gateway = gateway(EXAMPLE);
    run(&gateway, "resume.mjs", &[], 3);
}

#[test]
fn a_public_server_is_the_same_over_stdio() {
    let Some(scripts) = scripts() else { return };
    let gateway = gateway(&stdio_server(scripts));
    run(&gateway, "everything.mjs", &[("SERVER", "stdio")], 8);
}

#[test]
fn a_public_server_is_the_same_over_http() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start(scripts);
    let gateway = gateway(&http_server(server.port));
    run(&gateway, "everything.mjs", &[("SERVER", "http")], 8);
}

#[test]
fn a_public_server_is_the_same_over_sse() {
    let Some(scripts) = scripts() else { return };
    let server = HttpServer::start_sse(scripts);
    // Its transport is found out.
    let gateway = gateway(&sse_server(server.port));
    run(&gateway, "everything.mjs", &[("SERVER", "sse")], 8);
}

#[test]
fn every_client_is_asked_its_own_questions() {
    let Some(scripts) = scripts() else { return };
    questions(scripts, &[]);
}

#[test]
fn a_client_of_http_sse_is_served_as_any_other() {
    let Some(scripts) = scripts() else { return };
    questions(scripts, &[("TRANSPORT", "sse")]);
    features(scripts, "sse");
}

#[test]
fn a_client_of_stdio_is_relayed() {
    let Some(scripts) = scripts() else { return };
    questions(scripts, &[("TRANSPORT", "relay")]);
    features(scripts, "relay");
}

#[test]
fn a_client_of_stdio_has_a_gateway_of_its_own() {
    let Some(scripts) = scripts() else { return };
    features(scripts, "stdio");
}

#[test]
fn tasks_are_passed_on_in_newer_words() {
    let Some(scripts) = scripts() else { return };
    let tasking = format!(
        "\n[servers.tasking]\ncommand = \"node\"\nargs = ['{}']\n",
        scripts.join("tasking.mjs").display()
    );
    let gateway = gateway(&(stdio_server(scripts) + &tasking));
    run(&gateway, "tasks.mjs", &[], 4);
}

#[test]
fn clients_sign_in_at_an_authorization_server_that_they_find() {
    tokens(
        "jwt",
        |issuer| format!("jwt = {{ issuer = \"{issuer}\" }}"),
        6,
    );
}

#[test]
fn an_authorization_server_is_asked_about_the_tokens_of_its_clients() {
    let taken = |issuer: &str| {
        format!(
            "introspection = {{ issuer = \"{issuer}\", endpoint = \"{issuer}/token/introspection\", \
             client_id = \"gateway\", client_secret = \"gateway-secret\" }}"
        )
    };
    tokens("opaque", taken, 6);
}

#[test]
fn the_gateway_signs_in_to_a_server_and_loses_no_call_whose_token_can_be_renewed() {
    logins("0");
}

#[test]
fn tokens_that_are_bound_to_a_key_are_renewed_without_losing_a_call() {
    logins("1");
}

/// The script runs a real authorization server, with DPoP or without, and a server.
fn logins(dpop: &str) {
    if scripts().is_none() {
        return;
    }
    let [issuer, resource] =
        ["", "/mcp"].map(|path| format!("http://127.0.0.1:{}{path}", free_port()));
    let gateway = gateway(&format!("[servers.docs]\nurl = \"{resource}\"\n"));
    let variables = [
        ("ISSUER", issuer.as_str()),
        ("RESOURCE", resource.as_str()),
        ("DPOP", dpop),
    ];
    run(&gateway, "logins.mjs", &variables, 7);
}

/// A real authorization server, which the script runs, gives out tokens in this format.
fn tokens(format: &str, taken: impl Fn(&str) -> String, tests: usize) {
    if scripts().is_none() {
        return;
    }
    let issuer = format!("http://127.0.0.1:{}", free_port());
    let own = free_port();
    let config = format!(
        "[gateway]\nlisten = \"127.0.0.1:{own}\"\ndata_dir = \"data\"\n\
         [auth]\nresource = \"http://127.0.0.1:{own}/mcp\"\nscopes = [\"mcp\"]\n{}\n{EXAMPLE}",
        taken(&issuer)
    );
    let gateway = Gateway::start(&config);
    let variables = [("ISSUER", issuer.as_str()), ("TOKENS", format)];
    run(&gateway, "tokens.mjs", &variables, tests);
}

/// Clients of all servers, each asked only what it is to be asked.
fn questions(scripts: &Path, variables: &[(&str, &str)]) {
    let server = HttpServer::start(scripts);
    let sse = HttpServer::start_sse(scripts);
    let config =
        stdio_server(scripts) + &http_server(server.port) + &sse_server(sse.port) + EXAMPLE;
    let gateway = gateway(&config);
    run(&gateway, "questions.mjs", variables, 8);
}

/// A client of another transport and the public server.
fn features(scripts: &Path, transport: &str) {
    let gateway = gateway_within("30s", &stdio_server(scripts));
    let variables = [("SERVER", "stdio"), ("TRANSPORT", transport)];
    run(&gateway, "everything.mjs", &variables, 8);
}

#[test]
fn killed_servers_come_back_unnoticed() {
    let Some(scripts) = scripts() else { return };
    let port = free_port().to_string();
    let config = stdio_server(scripts) + &http_server(port.parse().unwrap());
    // The script starts the HTTP server itself, later.
    let gateway = gateway_within("1s", &config);
    run(&gateway, "kill.mjs", &[("HTTP_PORT", &port)], 3);
}

/// Version 2 of the SDK in front: the era that it speaks, and the eras that the server behind
/// speaks, on version 1 of the SDK if it is only the one with a handshake.
const ERAS: [(&str, &str); 6] = [
    ("legacy", "legacy"),
    ("legacy", "dual"),
    ("legacy", "modern"),
    ("modern", "legacy"),
    ("modern", "dual"),
    ("modern", "modern"),
];

#[test]
fn eras_meet_over_stdio() {
    eras_meet("stdio");
}

#[test]
fn eras_meet_over_http() {
    eras_meet("http");
}

fn eras_meet(transport: &str) {
    let (Some(_), Some(fixtures)) = (scripts(), node::install("conformance")) else {
        return;
    };
    let fixture = fixtures.join("fixture.mjs");
    for (era, behind) in ERAS {
        let (_server, config) = if transport == "stdio" {
            let config = format!(
                "command = \"node\"\nargs = ['{}', \"{behind}\", \"stdio\"]",
                fixture.display()
            );
            (None, config)
        } else {
            let mut command = Command::new("node");
            let server = Server::start(command.arg(&fixture).args([behind, "http"]));
            let config = format!("url = \"{}\"", server.url);
            (Some(server), config)
        };
        let gateway = gateway(&format!(
            "[servers.fixture]\n{config}\ntools = {{ prefix = \"\" }}\n"
        ));
        eprintln!("{era} in front, {behind} behind, over {transport}");
        run(&gateway, "eras.mjs", &[("ERA", era)], 12);
    }
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

/// A gateway with these servers.
fn gateway(servers: &str) -> Gateway {
    gateway_within("30s", servers)
}

/// One whose lists wait so long for servers that are not there yet.
fn gateway_within(first_list_wait: &str, servers: &str) -> Gateway {
    // Small pages, so that lists have several.
    let head = "[gateway]\nlisten = \"127.0.0.1:0\"\ndata_dir = \"data\"\npage_items = 4\nsse_reconnect_within = \"1s\"\n\
                first_list_wait = \"FIRST_LIST_WAIT\"\n[supervision]\nbackoff_initial = \"100ms\"\nbackoff_max = \"1s\"\n\
                max_restarts = 1000\n";
    let head = head.replace("FIRST_LIST_WAIT", first_list_wait);
    Gateway::start(&format!("{head}{servers}"))
}

/// Runs a script. It must pass all of its tests and skip none.
fn run(gateway: &Gateway, script: &str, variables: &[(&str, &str)], tests: usize) {
    let scripts = scripts().unwrap();
    let directory = gateway.directory.path();
    let received = fs::File::create(directory.join("told")).unwrap();
    let mut process = Command::new("node")
        .args(["--test-reporter=tap", "--no-warnings"])
        .arg(scripts.join(script))
        .env("GATEWAY_URL", &gateway.url)
        .env("GATEWAY_CONFIG", directory.join("config.toml"))
        .env("MCPVISOR", env!("CARGO_BIN_EXE_mcpvisor"))
        .env("PIDS", directory.join("pids"))
        .env("MCPVISOR_SANDBOX_LEVEL", "off")
        .envs(variables.iter().copied())
        .stderr(received.try_clone().unwrap())
        .stdout(received)
        .spawn()
        .unwrap();
    let status = end_of(&mut process, SCRIPT_MAX);
    let received = fs::read_to_string(directory.join("told")).unwrap();
    let passed = format!("# pass {tests}\n# fail 0\n# cancelled 0\n# skipped 0\n");
    assert!(
        status.is_some_and(|status| status.success()) && received.contains(&passed),
        "{script}: {status:?}, expected {tests} tests to pass\n{received}\nThe gateway's log:\n{}",
        gateway.log()
    );
    // The figures of the scripts.
    for line in received.lines().filter(|line| line.contains(" ms")) {
        if !line.contains("duration_ms") {
            eprintln!("{script}: {line}");
        }
    }
}

/// The directory with the scripts and the packages that they need, installed once.
fn scripts() -> Option<&'static Path> {
    static SCRIPTS: OnceLock<Option<PathBuf>> = OnceLock::new();
    SCRIPTS.get_or_init(|| node::install("interop")).as_deref()
}

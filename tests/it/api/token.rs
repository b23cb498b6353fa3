//! The token of the API.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use super::{code_of, request, token_of};
use crate::operating::run;
use crate::support::{Gateway, Http, Setup, StdioClient, alive, example, quick, soon, until};

async fn status_with(gateway: &Gateway, name: &str, value: &str) -> u16 {
    let request = Http::new(gateway.address, "GET", "/api/tree").header(name, value);
    request.send().await.status
}

#[tokio::test]
async fn the_api_needs_its_token_and_the_rest_does_not() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let token = token_of(&gateway);
    assert_eq!(status_with(&gateway, "X-Session-Token", &token).await, 200);
    let bearer = format!("Bearer {token}");
    assert_eq!(status_with(&gateway, "Authorization", &bearer).await, 200);
    for wrong in ["", "x", token.get(1..).unwrap(), &format!("{token}0")] {
        let request = gateway.get("/api/tree").header("X-Session-Token", wrong);
        let answer = request.send().await;
        let challenge = answer.header("www-authenticate").unwrap();
        assert!(challenge.starts_with("Bearer"), "{challenge}");
        let code = code_of(answer).await;
        assert_eq!(code, (401, "SESSION_INVALID".to_owned()), "{wrong}");
    }
    // Also where there is nothing: who has no token learns nothing of the paths.
    for path in ["/api", "/api/", "/api/nothing", "/api/sessions/x"] {
        let answer = gateway.get(path).send().await;
        assert_eq!(code_of(answer).await.0, 401, "{path}");
    }
    for path in [
        "/health",
        "/healthz",
        "/readyz",
        "/help",
        "/openapi.json",
        "/.well-known/mcp-config",
    ] {
        assert_eq!(gateway.get(path).send().await.status, 200, "{path}");
    }
    // A strange page or host is refused, with the token, too.
    for (name, value) in [("Origin", "https://evil.example"), ("Host", "evil.example")] {
        let answer = request(&gateway, "GET", "/api/tree").header(name, value);
        let code = code_of(answer.send().await).await;
        assert_eq!(code, (403, "FORBIDDEN".to_owned()), "{name}");
    }
}

#[tokio::test]
async fn a_token_survives_restarts_and_a_rotated_one_holds_at_once() {
    let mut gateway = Gateway::start(&(quick() + &example("one"))).await;
    let token = token_of(&gateway);
    let file = gateway.data_dir().join("api-token");
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(run(&gateway, &["token"]).await.unwrap().trim(), token);
    gateway.kill();
    gateway.start_again().await;
    gateway.all_up().await;
    assert_eq!(status_with(&gateway, "X-Session-Token", &token).await, 200);
    let rotated = run(&gateway, &["token", "--rotate"]).await.unwrap();
    assert_ne!(rotated.trim(), token);
    assert_eq!(rotated.trim(), token_of(&gateway));
    assert_eq!(status_with(&gateway, "X-Session-Token", &token).await, 401);
    let rotated = rotated.trim();
    assert_eq!(status_with(&gateway, "X-Session-Token", rotated).await, 200);
    // Stderr is a file here: nothing of it is printed, and nothing logged.
    let log = gateway.log();
    assert!(!log.contains(&token) && !log.contains(rotated), "{log}");
}

#[tokio::test]
async fn without_a_gateway_the_token_is_made_and_shown() {
    let setup = Setup::new("");
    let shown = |arguments: &[&str]| {
        let output = setup.command(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let made = shown(&["token"]);
    assert_eq!(made.trim().len(), 64);
    assert_eq!(shown(&["token"]), made);
    let rotated = shown(&["token", "--rotate"]);
    assert_ne!(rotated, made);
    let gateway = setup.serve().await;
    assert_eq!(token_of(&gateway), rotated.trim());
}

#[tokio::test]
async fn a_terminal_shows_the_next_steps_and_no_token() {
    const SHOW: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";
    let setup = Setup::new("");
    let mut command = setup.command_of("python3", &["-c", SHOW, Setup::BINARY, "serve"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut terminal = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut out = terminal.stdout.take().unwrap();
    let seen = soon("the next steps in the terminal", async move {
        use tokio::io::AsyncReadExt as _;
        let mut seen = Vec::new();
        while !String::from_utf8_lossy(&seen).contains("/ui/login") || !seen.ends_with(b"\n") {
            assert_ne!(out.read_buf(&mut seen).await.unwrap(), 0);
        }
        String::from_utf8_lossy(&seen).into_owned()
    });
    let seen = seen.await;
    let file = fs::read_to_string(setup.path(".mcpvisor/api-token")).unwrap();
    assert!(!seen.contains(file.trim()), "{seen}");
    for step in [
        "mcpvisor servers add ",
        "mcpvisor clients connect ",
        "/ui/login?code=",
    ] {
        assert!(seen.contains(step), "{step}: {seen}");
    }
    let run = fs::read(setup.path(".mcpvisor/run.json")).unwrap();
    let run: serde_json::Value = serde_json::from_slice(&run).unwrap();
    let gateway = i32::try_from(run["pid"].as_i64().unwrap()).unwrap();
    // Its terminal goes with it, and the gateway with its terminal.
    terminal.kill().await.unwrap();
    until("the end of the gateway", || async {
        (!alive(gateway)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_gateway_for_one_client_has_no_token() {
    let setup = Setup::new("");
    let _client = StdioClient::open(&setup, &[]).await;
    let state = setup.path(".mcpvisor/stdio/1");
    assert!(state.join("control.sock").exists());
    assert!(!state.join("api-token").exists());
    assert!(!setup.path(".mcpvisor/api-token").exists());
}

/// What the socket of the data directory serves beside the API.
const OWNERS: [(&str, &str); 9] = [
    ("GET", "/api/token"),
    ("POST", "/api/token/rotate"),
    ("POST", "/api/dashboard/link"),
    ("POST", "/api/config/reload"),
    ("POST", "/api/servers/one/kill"),
    ("POST", "/api/servers/one/logout"),
    ("GET", "/api/servers/one/login"),
    ("POST", "/api/logins/finish"),
    ("GET", "/api/crashes"),
];

#[tokio::test]
async fn what_the_owner_of_the_directory_may_do_is_not_served_over_the_network() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    for (method, path) in OWNERS {
        let answer = request(&gateway, method, path).send().await;
        assert!(matches!(answer.status, 404 | 405), "{path}: {answer:?}");
    }
    // The connection of an MCP client that needs no key.
    let answer = request(&gateway, "CONNECT", "/api").send().await;
    assert!(matches!(answer.status, 404 | 405), "{answer:?}");
    let running = gateway.get("/api/tree").send().await;
    assert_eq!(running.status, 401);
}

#[tokio::test]
async fn each_answer_names_the_version_of_the_gateway() {
    let gateway = Gateway::start(&quick()).await;
    let version = Some(env!("CARGO_PKG_VERSION"));
    let good = request(&gateway, "GET", "/api/tree").send().await;
    assert_eq!(good.header("mcpvisor-version"), version);
    let bad = request(&gateway, "GET", "/api/none").send().await;
    assert_eq!(bad.header("mcpvisor-version"), version);
}

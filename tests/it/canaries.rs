//! Canaries in every place where the gateway has a secret, looked for in all that it says and keeps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::api;
use crate::auth::{KEYS, with_key};
use crate::dashboard::Browser;
use crate::exchange::oauth;
use crate::logins::{all_said, files_below};
use crate::metrics::{address, scrape};
use crate::sessionless::modern_as;
use crate::support::{
    Authority, Behaviour, Gateway, Http, HttpServer, INITIALIZE, Issuer, RESOURCE, Setup,
    answer_in, call_params, python, quick, unix_seconds, until,
};

/// 32 bytes in base64, as the key of the vault.
const VAULT_KEY: &str = "Y2FuYXJ5LWtleS1vZi10aGUtdmF1bHQtMDEyMzQ1Njc=";

/// Pages of the dashboard that no other leads to; from these all others are reached.
const PAGES: [&str; 4] = [
    "/ui",
    "/ui/pins",
    "/ui/servers/dies/edit",
    "/ui/servers/web/edit",
];

/// Kinds of pages that are reached, by how their paths begin.
const REACHED: [&str; 12] = [
    "/ui/servers/docs",
    "/ui/servers/dies",
    "/ui/servers/web",
    "/ui/servers/new",
    "/ui/tree",
    "/ui/sessions/",
    "/ui/calls/",
    "/ui/tools",
    "/ui/tool?",
    "/ui/logs",
    "/ui/config",
    "/ui/connect",
];

/// Most pages that are looked at.
const PAGES_MAX: usize = 200;

const COMMANDS: [&[&str]; 15] = [
    &["status"],
    &["status", "--json"],
    &["check"],
    &["servers"],
    &["servers", "headers", "docs"],
    &["servers", "headers", "web"],
    &["servers", "logs", "dies"],
    &["servers", "crashes"],
    &["servers", "crashes", "--json"],
    &["servers", "crashes", "dies"],
    &["auth", "status"],
    &["keys", "ls"],
    &["history"],
    &["logs"],
    &["doctor", "--json"],
];

/// Secrets in the file: of a source, and of servers over HTTP and stdio, which fail and write theirs.
fn servers(docs: &HttpServer, authority: &Authority) -> String {
    let claims = "user_headers = { X-Team = \"claims.team\" }\n";
    let dies = "IT_LAST_WORDS = \"words\", TOKEN = \"canary-env\"";
    let dies = python("dies", &format!("IT_FATAL = \"tools/call\", {dies}"));
    format!(
        "[sources.team]\nurl = \"http://127.0.0.1:9/\"\nkey = \"canary-source\"\n\
         [history]\nfile = true\nbodies = \"64KiB\"\n\
         [recorder]\nbodies = \"16KiB\"\n\
         [metrics]\nlisten = \"127.0.0.1:0\"\n\
         [servers.web]\nurl = \"http://127.0.0.1:9/mcp?api_key=canary-url\"\n\
         headers = {{ X-Api-Key = \"canary-header\" }}\n\
         [servers.starts-not]\ncommand = \"/no/such\"\nargs = [\"--token\", \"canary-argument\"]\n\
         {dies}era = \"legacy\"\n{}{claims}{}",
        docs.config("docs"),
        oauth(authority)
    )
}

async fn start(docs: &HttpServer, authority: &Authority, issuer: &Issuer) -> Gateway {
    let config = format!(
        "{}{}{KEYS}{}",
        quick(),
        issuer.config(),
        servers(docs, authority)
    );
    let setup = Setup::new(&config)
        .variable("RUST_LOG", "debug")
        .variable("MCPVISOR_CREDENTIALS_KEY", VAULT_KEY)
        .variable(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "http://u:canary-otel@127.0.0.1:9/canary-path",
        )
        .variable(
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20canary-otel-header",
        )
        .variable("OTEL_BSP_SCHEDULE_DELAY", "10");
    std::fs::write(setup.path("words"), "canary-env Bearer canary-env").unwrap();
    let gateway = setup.serve().await;
    gateway.wait_state("dies", "up").await;
    gateway
}

/// All pages of the dashboard: those that others lead to, too.
async fn dashboard(gateway: &Gateway) -> Vec<(String, String)> {
    let browser = Browser::sign_in(gateway).await;
    let mut pages: Vec<(String, String)> = Vec::new();
    let mut next: Vec<String> = PAGES.map(str::to_owned).to_vec();
    while let Some(path) = next.pop() {
        if pages.iter().any(|(seen, _)| *seen == path) {
            continue;
        }
        assert!(pages.len() < PAGES_MAX, "{next:?}");
        let text = browser.page(&path).await;
        let links = text.split("href=\"").skip(1);
        let links = links.filter_map(|link| Some(link.split_once('"')?.0.replace("&amp;", "&")));
        let is_page = |link: &String| link.starts_with("/ui/") && !link.contains("/assets/");
        next.extend(links.filter(is_page));
        pages.push((path, text));
    }
    for kind in REACHED {
        let is_reached = pages.iter().any(|(path, _)| path.starts_with(kind));
        assert!(
            is_reached,
            "{kind}: {:?}",
            pages.iter().map(|(path, _)| path)
        );
    }
    pages
}

/// The metrics in both forms; one has exemplars.
async fn metrics(gateway: &Gateway) -> String {
    let http = Http::new(address(gateway), "GET", "/metrics");
    let plain = http.clone().send().await.bytes().await;
    let open = scrape(&http).await;
    assert!(open.contains("# {trace_id="), "{open}");
    String::from_utf8(plain).unwrap() + &open
}

/// A secret as servers may write it.
fn spelled(secret: &str) -> Vec<String> {
    let each = |sign: &str| -> String {
        let bytes = secret.bytes();
        bytes.map(|byte| format!("{sign}{byte:02x}")).collect()
    };
    let mut all = vec![secret.to_owned(), each("%"), each("\\u00")];
    all.extend(in_base64(secret));
    all
}

/// What is before a text moves it in base64.
fn in_base64(secret: &str) -> [String; 3] {
    ["", "u", "us"].map(|user| STANDARD.encode(format!("{user}{secret}")))
}

/// Everything that clients, operators and whoever finds the files can read.
async fn everything(gateway: &Gateway) -> Vec<(String, String)> {
    let mut said = vec![("the API and the files".to_owned(), all_said(gateway).await)];
    said.append(&mut dashboard(gateway).await);
    said.push(("/metrics".to_owned(), metrics(gateway).await));
    for path in ["/api/servers", "/api/sessions", "/api/tools", "/api/pins"] {
        said.push((path.to_owned(), api::get(gateway, path).await.to_string()));
    }
    for path in ["/health", "/readyz", "/openapi.json"] {
        let answer = gateway.get(path).send().await.bytes().await;
        said.push((path.to_owned(), String::from_utf8(answer).unwrap()));
    }
    for command in COMMANDS {
        let (_, printed) = gateway.setup.run(command);
        assert!(!printed.contains("unexpected argument"), "{printed}");
        said.push((command.join(" "), printed));
    }
    let (good, printed) = gateway.setup.run(&["support-bundle", "b.tar.gz"]);
    assert!(good, "{printed}");
    let unpacked = gateway.setup.command_of("tar", &["-xzf", "b.tar.gz"]);
    assert!({ unpacked }.status().unwrap().success());
    let bundle = files_below(&gateway.setup.path("mcpvisor-support"));
    said.push(("the support bundle".to_owned(), bundle));
    said
}

#[tokio::test]
async fn no_canary_is_to_be_read_anywhere() {
    let docs = HttpServer::start(Behaviour {
        remembers: true,
        ..Behaviour::default()
    })
    .await;
    let (authority, issuer) = (Authority::of(&docs).await, Issuer::start().await);
    let gateway = start(&docs, &authority, &issuer).await;
    let token = issuer.signed(&json!({
        "iss": issuer.url(), "aud": RESOURCE, "sub": "ada", "scope": "mcp",
        "team": "canary-claim", "exp": unix_seconds() + 600,
    }));
    let call = |tool: &'static str, token: &str| {
        let params = call_params(tool, json!({ "n": 1, "api_key": "canary-call" }));
        with_key(
            modern_as(&gateway, "1", "tools/call", params, json!({})),
            token,
        )
        .send()
    };
    let mut answers = String::new();
    let live = ["canary-access-1", "first-key", &token];
    let good = answer_in(call("docs__echo", &token).await).await;
    assert_eq!(good["result"]["isError"], json!(null), "{good}");
    // Servers repeat the tokens that they get, in every way there is.
    let repeated: Vec<String> = live.iter().flat_map(|secret| spelled(secret)).collect();
    let repeated = repeated.join(" ");
    let params = json!({ "name": "dies__say", "arguments": { "text": repeated } });
    let said = modern_as(&gateway, "1", "prompts/get", params, json!({}));
    let said = answer_in(with_key(said, "first-key").send().await).await;
    assert_eq!(
        said["error"]["message"], repeated,
        "the client gets what it is sent"
    );
    let params = call_params("docs__echo", json!({ "n": 2, "text": repeated }));
    let said = modern_as(&gateway, "1", "tools/call", params, json!({}));
    answer_in(with_key(said, &token).send().await).await;
    std::fs::write(
        gateway.setup.path("words"),
        format!("canary-env Bearer canary-env {repeated}"),
    )
    .unwrap();
    let lost = answer_in(call("dies__echo", "first-key").await).await;
    answers += &lost.to_string();
    answers += &answer_in(call("docs__echo", "first-key").await)
        .await
        .to_string();
    answers += &answer_in(call("web__echo", "first-key").await)
        .await
        .to_string();
    // A session, which the dashboard has a page of.
    let opened = with_key(Http::post(gateway.address, INITIALIZE), "first-key");
    assert_eq!(opened.send().await.status, 200);
    let wrong = Http::post(gateway.address, INITIALIZE);
    let wrong = with_key(wrong, "canary-of-a-client").send().await;
    assert_eq!(wrong.status, 401);
    answers += &format!("{wrong:?}");
    until("what fails to have failed", || async {
        let log = gateway.log();
        let all = ["team", "web", "starts-not", "dies", "spans"];
        all.iter().all(|name| log.contains(name)).then_some(())
    })
    .await;
    let mut said = everything(&gateway).await;
    said.push(("the answers".to_owned(), answers));
    assert_hidden(said, &live);
}

/// Checks that no text holds a canary, or one of these tokens in any spelling.
fn assert_hidden(said: Vec<(String, String)>, live: &[&str]) {
    let mut hidden: Vec<String> = live
        .iter()
        .flat_map(|secret| spelled(secret)[..3].to_vec())
        .collect();
    // The first and the last letters depend on what is around the secret.
    let encoded = live.iter().flat_map(|secret| in_base64(secret));
    hidden.extend(encoded.filter_map(|text| Some(text.get(4..text.len() - 4)?.to_owned())));
    for (place, text) in said {
        let known = ["canary", "machine-secret", VAULT_KEY].into_iter();
        for secret in known.chain(hidden.iter().map(String::as_str)) {
            let found = text.split_once(secret).map(|(before, after)| {
                let before: String = before.chars().rev().take(200).collect();
                let before: String = before.chars().rev().collect();
                format!("{before}{secret}{}", after.get(..40).unwrap_or_default())
            });
            assert_eq!(found, None, "{place}");
        }
    }
}

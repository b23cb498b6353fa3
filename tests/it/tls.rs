//! The gateway with a certificate of its own.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::auth::{keys, with_key};
use crate::support::{
    CertificateAuthority, Client, Gateway, Http, INITIALIZE, Setup, StdioClient, TlsClient,
    call_params, example, names, quick, soon, text_of, until,
};

/// Beyond the life of any test.
pub(crate) const FUTURE: i32 = 2090;

/// A configuration with `cert.pem` and `key.pem` beside it; further keys of `[tls]`, and tables.
pub(crate) fn https(keys: &str, tables: &str) -> String {
    let files = "[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n";
    format!("{files}{keys}\n{tables}{}{}", quick(), example("example"))
}

/// A gateway with a certificate of this authority, once its server is listed.
pub(crate) async fn serve(setup: Setup, authority: &CertificateAuthority) -> Gateway {
    let pem = authority.issue(&["localhost", "127.0.0.1"], FUTURE);
    pem.write(setup.directory.path());
    let gateway = setup.serve().await;
    until("the tools", || async {
        let server = gateway.server("example").await;
        server["items"]["tools"].as_u64().filter(|count| *count > 0)
    })
    .await;
    gateway
}

/// Waits until so many handshakes have failed.
pub(crate) async fn handshakes_failed(gateway: &Gateway, count: u64) {
    until("failed handshakes", || async {
        let counters = &gateway.status().await["counters"];
        (counters["tls_handshakes_failed"] == count).then_some(())
    })
    .await;
}

pub(crate) async fn certificate(gateway: &Gateway) -> Value {
    gateway.status().await["tls"].clone()
}

/// Nothing that clients did to their connections is worth a line, but for denials of requests.
pub(crate) fn nothing_is_logged(gateway: &Gateway) {
    let log = gateway.log();
    assert!(log.contains(r#""level":"info""#), "{log}");
    let loud = |line: &&str| {
        let is_loud = [r#""level":"warn""#, r#""level":"error""#]
            .iter()
            .any(|level| line.contains(level));
        is_loud && !line.contains(r#""type":"audit""#)
    };
    assert_eq!(log.lines().find(loud), None, "{log}");
}

#[tokio::test]
async fn tools_are_called_over_https() {
    let authority = CertificateAuthority::new();
    let gateway = serve(Setup::new(&https("", "")), &authority).await;
    let client = Client::open_over(&gateway, &authority.client()).await;
    let tools = client.get("tools/list", json!({})).await;
    assert!(names(&tools["tools"]).contains(&"example__echo"));
    let echo = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&echo), "hi");
    let (id, events) = client
        .start("example__slow", json!({"steps": 3, "delay_ms": 10}))
        .await;
    let answer = events.rest().await.pop().unwrap();
    assert_eq!(answer["id"], id, "{answer}");

    // URLs of its own.
    let (_, shown) = gateway.setup.run(&["status"]);
    let url = format!("https://{}", gateway.address);
    assert!(shown.contains(&url), "{shown}");
    assert!(shown.contains("days left"), "{shown}");
    let api = Http::new(gateway.address, "GET", "/api/servers");
    let refused = api.over(Some(&authority.client())).send().await;
    assert_eq!(refused.status, 401);
    let refused = refused.json().await.to_string();
    assert!(refused.contains(&format!("{url}/help/")), "{refused}");
    let (_, checked) = gateway.setup.run(&["check"]);
    assert!(checked.contains("listens on     https://"), "{checked}");
    assert!(gateway.log().contains("serves https://"));
    nothing_is_logged(&gateway);
}

#[tokio::test]
async fn curl_and_the_relay_speak_https() {
    let authority = CertificateAuthority::new();
    let setup = Setup::new(&https("", ""));
    let ca = setup.path("ca.pem");
    fs::write(&ca, authority.pem()).unwrap();
    let ca = ca.to_str().unwrap().to_owned();
    let gateway = serve(setup.variable("SSL_CERT_FILE", &ca), &authority).await;
    let base = format!("https://localhost:{}", gateway.address.port());

    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "--cacert", &ca]);
    let health = curl.arg(format!("{base}/health")).output();
    let health = soon("curl", health).await.unwrap();
    assert!(health.status.success(), "{health:?}");
    let health: Value = serde_json::from_slice(&health.stdout).unwrap();
    assert_eq!(health["status"], "ok");

    let url = format!("https://{}/mcp", gateway.address);
    let mut relay = StdioClient::open(&gateway.setup, &["--connect", &url]).await;
    let params = call_params("example__echo", json!({"message": "hi"}));
    let answer = relay.ask(1, "tools/call", params).await;
    assert_eq!(text_of(&answer["result"]), "hi");
}

#[tokio::test]
async fn http_1_1_is_all_that_is_spoken_inside() {
    let authority = CertificateAuthority::new();
    let gateway = serve(Setup::new(&https("", "")), &authority).await;
    let both = authority.client().with_alpn(&["h2", "http/1.1"]);
    let stream = both.connect(gateway.address).await.unwrap();
    let (_, tls) = stream.get_ref();
    assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    let newer = authority.client().with_alpn(&["h2"]);
    assert!(newer.connect(gateway.address).await.is_err());
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_named_authority() {
    let authority = CertificateAuthority::new();
    let clients = CertificateAuthority::new();
    let setup = Setup::new(&https("client_ca = \"clients.pem\"", ""));
    fs::write(setup.path("clients.pem"), clients.pem()).unwrap();
    // A public address without API keys.
    let setup = setup.variable("MCPVISOR_LISTEN", "0.0.0.0:0");
    let gateway = serve(setup, &authority).await;

    let known = authority.client_with(&clients.issue(&["laptop"], FUTURE));
    let client = Client::open_over(&gateway, &known).await;
    let echo = client.call("example__echo", json!({"message": "hi"})).await;
    assert_eq!(text_of(&echo), "hi");

    let none = authority.client();
    let strange = authority.client_with(&authority.issue(&["laptop"], FUTURE));
    let expired = authority.client_with(&clients.issue(&["laptop"], 2021));
    for (refused, tls) in [none, strange, expired].iter().enumerate() {
        let initialize = Http::post(gateway.address, INITIALIZE).over(Some(tls));
        let answer = soon("a refusal", initialize.try_send()).await;
        assert!(answer.is_none(), "{answer:?}");
        handshakes_failed(&gateway, refused as u64 + 1).await;
    }
    assert_eq!(
        certificate(&gateway).await["requires_client_certificates"],
        true
    );
    nothing_is_logged(&gateway);
}

#[tokio::test]
async fn the_name_in_a_certificate_says_whose_session_it_is() {
    let authority = CertificateAuthority::new();
    let clients = CertificateAuthority::new();
    let hides = |tool: &str, from: &str| {
        format!(
            "[policies.{tool}]\nwhen = 'tool.name == \"{tool}\" && principal.name == \"{from}\" \
             && principal.issuer == \"certificate\"'\n"
        )
    };
    let (echo, add) = (
        hides("echo", "laptop.example"),
        hides("add", "spiffe://example/bob"),
    );
    let tables = format!("[auth]\ncertificates = true\n{echo}{add}");
    let setup = Setup::new(&https("client_ca = \"clients.pem\"", &tables));
    fs::write(setup.path("clients.pem"), clients.pem()).unwrap();
    let (_, key, _) = keys(&setup, &["add", "ci"]);
    let gateway = serve(setup, &authority).await;
    let show = |names: &[&str]| authority.client_with(&clients.issue(names, FUTURE));

    let ann = show(&["laptop.example", "other.example"]);
    let bob = show(&["bob.example", "spiffe://example/bob"]);
    let of_ann = Client::open_over(&gateway, &ann).await;
    let of_bob = Client::open_over(&gateway, &bob).await;
    let seen = async |client: &Client| {
        let tools = client.get("tools/list", json!({})).await;
        let names = names(&tools["tools"]);
        ["example__echo", "example__add"].map(|tool| names.contains(&tool))
    };
    assert_eq!(seen(&of_ann).await, [false, true]);
    assert_eq!(seen(&of_bob).await, [true, false]);

    let list = |session: &str, tls: &TlsClient| {
        let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let request = Http::post(gateway.address, body).over(Some(tls));
        request.header("Mcp-Session-Id", session)
    };
    assert_eq!(list(&of_ann.session, &ann).send().await.status, 200);
    assert_eq!(list(&of_ann.session, &bob).send().await.status, 404);
    // A key is another principal, and wins.
    for (key, status) in [(key.as_str(), 404), ("wrong", 401)] {
        let request = with_key(list(&of_ann.session, &ann), key);
        assert_eq!(request.send().await.status, status, "{key}");
    }

    // An address is no name.
    let nobody = Http::post(gateway.address, INITIALIZE).over(Some(&show(&["127.0.0.1"])));
    let refused = nobody.send().await;
    assert_eq!(refused.status, 401);
    let refused = refused.json().await.to_string();
    assert!(
        refused.contains("this gateway needs an API key"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_come_in() {
    let authority = CertificateAuthority::new();
    let gateway = serve(Setup::new(&https("", "")), &authority).await;
    let other = CertificateAuthority::new().client();
    assert!(other.connect(gateway.address).await.is_err());
    Client::open_over(&gateway, &authority.client()).await;
}

/// Why the gateway does not start.
fn refused(directory: &Path, setup: &Setup) -> String {
    let (succeeds, printed) = setup.run(&["serve"]);
    assert!(!succeeds, "{directory:?}: {printed}");
    let (succeeds, checked) = setup.run(&["check"]);
    assert!(!succeeds, "{checked}");
    let reason = printed.lines().last().unwrap().to_owned();
    assert!(checked.contains(&reason), "{checked}\n{reason}");
    reason
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = CertificateAuthority::new();
    let setup = Setup::new(&https("client_ca = \"clients.pem\"", ""));
    let place = setup.directory.path();
    let clients = place.join("clients.pem");
    let own = authority.issue(&["localhost"], FUTURE);
    let other = authority.issue(&["localhost"], FUTURE);
    let reason = refused(place, &setup);
    assert!(reason.contains("cert.pem` cannot be read"), "{reason}");
    own.write(place);
    fs::write(&clients, "no certificate").unwrap();
    let reason = refused(place, &setup);
    assert!(
        reason.contains("clients.pem` contains no certificate"),
        "{reason}"
    );
    fs::write(&clients, authority.pem()).unwrap();
    fs::write(place.join("key.pem"), &own.certificate).unwrap();
    let reason = refused(place, &setup);
    assert!(
        reason.contains("key.pem` contains no usable private key"),
        "{reason}"
    );
    fs::write(place.join("key.pem"), &other.key).unwrap();
    let reason = refused(place, &setup);
    assert!(
        reason.contains("does not match the certificate"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_certificate_and_a_key_that_others_could_replace_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;

    let authority = CertificateAuthority::new();
    let setup = Setup::new(&https("", ""));
    let directory = setup.path("open");
    fs::create_dir(&directory).unwrap();
    let pem = authority.issue(&["localhost", "127.0.0.1"], FUTURE);
    pem.write(&directory);
    pem.write(setup.directory.path());
    assert!(setup.run(&["check"]).0);
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    for file in ["cert.pem", "key.pem"] {
        let own = setup.path(file);
        fs::remove_file(&own).unwrap();
        std::os::unix::fs::symlink(directory.join(file), &own).unwrap();
        let (good, said) = setup.run(&["check"]);
        assert!(!good && said.contains("chmod o-w"), "{file}: {said}");
        fs::remove_file(&own).unwrap();
        fs::copy(directory.join(file), &own).unwrap();
    }
    assert!(setup.run(&["check"]).0);
}

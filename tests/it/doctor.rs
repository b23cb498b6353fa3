//! `mcpvisor doctor`: what is wrong, and what to do about it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::support::{Gateway, Setup, example, soon, until};

/// The report of `mcpvisor doctor --json`, and its exit code.
async fn doctor(setup: &Setup) -> (i32, Value) {
    doctor_with(setup, &[]).await
}

async fn doctor_with(setup: &Setup, more: &[&str]) -> (i32, Value) {
    let mut command = setup.command(&[&["doctor", "--json"], more].concat());
    let ran = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = soon("the command's end", ran).await.unwrap();
    let report = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code().unwrap(), report)
}

/// The level and the advice of the finding whose message has this part.
#[track_caller]
fn found<'r>(report: &'r Value, part: &str) -> (&'r str, &'r str) {
    let findings = report["findings"].as_array().unwrap();
    let is_it = |it: &&Value| it["message"].as_str().unwrap().contains(part);
    let finding = findings.iter().find(is_it);
    let finding = finding.unwrap_or_else(|| panic!("{part} in {report:#}"));
    (
        finding["level"].as_str().unwrap(),
        finding["advice"].as_str().unwrap_or_default(),
    )
}

#[tokio::test]
async fn a_gateway_that_is_well_has_no_errors() {
    let gateway = Gateway::start(&example("one")).await;
    gateway.wait_state("one", "up").await;
    let (code, report) = doctor(&gateway.setup).await;
    assert_eq!((code, &report["errors"]), (0, &0.into()), "{report:#}");
    let held = format!("{} is in use by this gateway", gateway.address);
    for part in [
        &held,
        "config.toml: 1 server",
        "for one",
        ".mcpvisor: only you can read it",
        "MiB are free",
    ] {
        assert_eq!(found(&report, part).0, "ok");
    }
    let text = gateway.setup.command(&["doctor"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains(&held), "{text}");
}

/// Else the directory that it stands in would be told to be closed to others.
#[tokio::test]
async fn a_configuration_that_cannot_be_read_names_no_data_directory() {
    let setup = Setup::new("");
    let (code, report) = doctor_with(&setup, &["--config", "missing.toml"]).await;
    assert_eq!((code, &report["errors"]), (1, &1.into()), "{report:#}");
    let findings = report["findings"].as_array().unwrap().iter();
    let checks: Vec<_> = findings.map(|it| it["check"].as_str().unwrap()).collect();
    assert!(!checks.contains(&"data directory"), "{checks:?}");
}

#[tokio::test]
async fn every_fault_is_found_with_what_to_do() {
    let setup = Setup::new("");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = format!(
        "[servers.gone]\ncommand = \"no-such-program\"\n\
         [servers.node]\ncommand = \"bin/node\"\n\
         [servers.newest]\ncommand = \"npx\"\nargs = [\"-y\", \"@a/b\"]\n\
         [servers.lacks]\ncommand = \"x\"\nenv = {{ T = \"${{NO_SUCH}}\" }}\n\
         [servers.shut]\nurl = \"http://{free}/mcp\"\n\
         [servers.nowhere]\nurl = \"https://no.such.invalid/mcp\"\n",
    );
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(setup.path(name), mode).unwrap();
    };
    mode("config.toml", 0o660);
    std::fs::create_dir(setup.path("bin")).unwrap();
    std::fs::write(setup.path("bin/node"), "#!/bin/sh\nexit 9\n").unwrap();
    mode("bin/node", 0o755);
    std::fs::create_dir(setup.path(".mcpvisor")).unwrap();
    mode(".mcpvisor", 0o755);
    let address = taken.local_addr().unwrap().to_string();
    let setup = setup.variable("MCPVISOR_LISTEN", &address);
    let (code, report) = doctor(&setup).await;
    assert_eq!(code, 1, "{report:#}");
    let table = [
        ("`no-such-program` was not found", "error", ""),
        ("bin/node --version` failed", "error", "reinstall node"),
        ("`NO_SUCH` is not set", "error", ""),
        (
            "`shut`, http://127.0.0.1",
            "error",
            "check that the server is running",
        ),
        (
            "`nowhere`, https://no.such.invalid/mcp: DNS",
            "error",
            "check the URL for typos",
        ),
        ("the address is in use by", "error", ""),
        ("its group can change it", "warning", "chmod g-w"),
        ("accessible to other users", "warning", "chmod 700"),
        ("no gateway runs", "note", "mcpvisor serve"),
        (
            "`newest` runs the newest version of @a/b",
            "note",
            "mcpvisor servers upgrade newest --to VERSION",
        ),
    ];
    for (part, level, advice) in table {
        let (found_level, found_advice) = found(&report, part);
        assert_eq!(found_level, level, "{part}");
        assert!(found_advice.contains(advice), "{part}: {found_advice}");
    }
    // A file that is no configuration is a finding as well.
    std::fs::write(setup.path("config.toml"), "[gateway]\nlissten = 1\n").unwrap();
    let (code, report) = doctor(&setup).await;
    assert_eq!((code, found(&report, "lissten").0), (1, "error"));
}

/// A server behind https that refuses everything, with a clock of its own; what it was sent.
fn refusing_server(days: u64) -> (String, String, mpsc::Receiver<String>) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let ends = SystemTime::now() + Duration::from_secs(days * 86_400 + 86_399);
    let ends = humantime::format_rfc3339(ends).to_string();
    let part = |at: std::ops::Range<usize>| ends.get(at).unwrap().parse::<i32>().unwrap();
    let small = |at| u8::try_from(part(at)).unwrap();
    params.not_after = rcgen::date_time_ymd(part(0..4), small(5..7), small(8..10));
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(
        builder
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!(
        "https://localhost:{}/mcp",
        listener.local_addr().unwrap().port()
    );
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(connection, stream.unwrap());
            let mut part = vec![0; 4096];
            let Ok(read) = stream.read(&mut part) else {
                continue;
            };
            let _ = said.send(String::from_utf8_lossy(&part[..read]).into_owned());
            let answer = "HTTP/1.1 403 Forbidden\r\nDate: Mon, 23 Nov 2020 07:00:00 GMT\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
            let _ = stream.flush();
        }
    });
    (url, pem(root.der()), heard)
}

/// A certificate as a file has it.
fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line));
    let lines: Vec<_> = lines.collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[tokio::test]
async fn a_url_is_followed_to_its_answer_without_telling_secrets() {
    let canary = "canary-8d1c";
    let (url, root, heard) = refusing_server(5);
    let config = format!(
        "[servers.web]\nurl = \"{url}?key=${{TOKEN}}\"\nheaders = {{ X-Key = \"${{TOKEN}}\" }}\n"
    );
    let setup = Setup::new(&config).variable("TOKEN", canary);
    // Nobody knows the authority yet.
    let (code, report) = doctor(&setup).await;
    let (level, advice) = found(&report, "UnknownIssuer");
    assert_eq!((code, level), (1, "error"), "{report:#}");
    assert!(advice.contains("SSL_CERT_FILE"), "{advice}");
    std::fs::write(setup.path("root.pem"), root).unwrap();
    let file = setup.path("root.pem").display().to_string();
    let setup = setup.variable("SSL_CERT_FILE", &file);
    let (code, report) = doctor(&setup).await;
    assert_eq!(code, 1);
    let (level, advice) = found(&report, "HTTP 403");
    assert_eq!(level, "error", "{report:#}");
    assert!(advice.contains("`headers`"), "{advice}");
    assert_eq!(found(&report, "its certificate expires in").0, "warning");
    assert_eq!(found(&report, "seconds behind ours").0, "warning");
    let request = heard.recv_timeout(Duration::from_secs(5)).unwrap();
    assert!(
        request.contains(&format!("X-Key: {canary}\r\n")),
        "{request}"
    );
    assert!(
        request.starts_with(&format!("GET /mcp?key={canary} ")),
        "{request}"
    );
    assert!(!report.to_string().contains(canary), "{report:#}");
}

#[tokio::test]
async fn the_proxy_of_a_server_is_shown_without_its_password() {
    let canary = "canary-77af";
    let config = format!(
        "[servers.web]\nurl = \"https://far.example/mcp\"\nproxy = \"http://me:{canary}@127.0.0.1:1\"\n"
    );
    let (code, report) = doctor(&Setup::new(&config)).await;
    let (level, _) = found(&report, "through the proxy http://***@127.0.0.1:1");
    assert_eq!((code, level), (1, "error"), "{report:#}");
    assert!(!report.to_string().contains(canary), "{report:#}");

    let gateway = Setup::new(&config).serve().await;
    until("it could not connect", || async {
        let reason = gateway.server("web").await["connection"]["shared"]["last_exit"].to_string();
        reason
            .contains("through the proxy http://***@127.0.0.1:1")
            .then_some(())
    })
    .await;
    let server = gateway.server("web").await;
    assert_eq!(server["connection"]["proxy"], "http://***@127.0.0.1:1");
    let text = gateway.setup.command(&["status"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("through the proxy http://***@"), "{text}");
    assert!(!text.contains(canary), "{text}");
}

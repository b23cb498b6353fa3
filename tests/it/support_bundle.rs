//! `mcpvisor support-bundle`: all that is needed, and nothing secret.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};

use crate::auth::KEYS;
use crate::operating::run;
use crate::support::{Setup, example, python, quick, until};

/// In everything that nobody else may read.
const CANARY: &str = "canary5f3e9b";

/// Every file of a bundle, by name.
fn unpacked(setup: &Setup, bundle: &str) -> Vec<(String, String)> {
    let output = setup.command_of("tar", &["-xzf", bundle]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let entries = std::fs::read_dir(setup.path("mcpvisor-support")).unwrap();
    let read = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    });
    read.collect()
}

fn file<'f>(files: &'f [(String, String)], name: &str) -> &'f str {
    let found = files.iter().find(|(it, _)| it == name);
    &found.unwrap_or_else(|| panic!("no {name}")).1
}

fn secret_config(listen: &str) -> String {
    let dies = "import os, sys; print('token', os.environ['T'], file=sys.stderr); sys.exit(3)";
    format!(
        "# {CANARY} in a comment\n{quick}\n[history]\nfile = true\n{KEYS}{one}\
         [servers.dies]\ncommand = \"python3\"\nargs = [\"-c\", \"{dies}\", \"--token\", \"{CANARY}\"]\n\
         env = {{ T = \"{CANARY}\", D = \"${{NONE:-{CANARY}}}\" }}\nera = \"legacy\"\n\
         [servers.web]\nurl = \"http://{listen}/mcp/{CANARY}?key={CANARY}\"\n\
         headers = {{ Authorization = \"Bearer {CANARY}\" }}\n{two}",
        quick = quick(),
        one = example("one"),
        two = python("two", ""),
    )
}

#[tokio::test]
async fn a_bundle_has_what_is_needed_and_no_secret() {
    let gateway = Setup::new(&secret_config("127.0.0.1:9")).serve().await;
    gateway.wait_state("one", "up").await;
    gateway.wait_state("two", "up").await;
    let call = |tool: &'static str, arguments: Value| {
        let arguments = format!("{arguments}");
        let gateway = &gateway;
        async move {
            let command = ["tools", "call", tool, "--args", &arguments];
            run(gateway, &command).await
        }
    };
    let said = call("two__echo", json!({"message": CANARY})).await.unwrap();
    assert!(said.contains(CANARY), "{said}");
    // Its last messages are those of the call.
    run(&gateway, &["servers", "kill", "two"]).await.unwrap();
    until("the reports", || async {
        let crashes = run(&gateway, &["servers", "crashes", "--json"])
            .await
            .unwrap();
        let both = ["\"two\"", "\"dies\""]
            .iter()
            .all(|name| crashes.contains(name));
        both.then_some(())
    })
    .await;
    let token = run(&gateway, &["token"]).await.unwrap();
    let said = run(&gateway, &["support-bundle", "b.tar.gz"])
        .await
        .unwrap();
    assert!(said.contains("wrote b.tar.gz: README.txt"), "{said}");
    let mode = std::fs::metadata(gateway.setup.path("b.tar.gz")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    let files = unpacked(&gateway.setup, "b.tar.gz");
    let hash = KEYS.split_once("sha256:").unwrap().1.get(..16).unwrap();
    for (name, text) in &files {
        for secret in [CANARY, token.trim(), hash] {
            assert!(!text.contains(secret), "{secret} in {name}: {text}");
        }
    }
    for (name, part) in [
        ("README.txt", "look through them before you send them"),
        ("config.json", "\"command\": \"python3\""),
        ("doctor.txt", "TCP: 127.0.0.1:9"),
        ("doctor.json", "\"errors\""),
        ("status.json", "\"generation\""),
        ("crashes.json", "process exited with code 3"),
        ("log.jsonl", "dies"),
        ("system.json", env!("CARGO_PKG_VERSION")),
    ] {
        let text = file(&files, name);
        assert!(text.contains(part), "{part} in {name}: {text}");
    }
    let crashes: Value = serde_json::from_str(file(&files, "crashes.json")).unwrap();
    let last = crashes["last"]["two"]["messages"].to_string();
    assert!(last.contains("\"tools/call\""), "{crashes:#}");
    // What is there is not replaced.
    let error = run(&gateway, &["support-bundle", "b.tar.gz"]).await;
    assert!(error.unwrap_err().contains("b.tar.gz: File exists"));
}

#[test]
fn without_a_gateway_and_with_a_broken_file_there_is_a_bundle() {
    let setup = Setup::new(&format!(
        "[servers.x]\ncommand = 3\nenv = {{ A = \"{CANARY}\" }}\n"
    ));
    let (succeeded, printed) = setup.run(&["support-bundle", "b.tar.gz"]);
    assert!(succeeded, "{printed}");
    let files = unpacked(&setup, "b.tar.gz");
    assert!(file(&files, "doctor.txt").contains("servers.x.command"));
    assert!(files.iter().all(|(_, text)| !text.contains(CANARY)));
    assert!(files.iter().all(|(name, _)| name != "status.json"));
}

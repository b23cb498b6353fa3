//! The key that kept tokens are sealed with: where it comes from, that it is replaced, and what is
//! readable without it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcpvisor::credentials::{Vault, VaultKey};
use serde_json::json;

use crate::logins::files_below;
use crate::support::login::{log_in, login_needed};
use crate::support::{
    Authority, Behaviour, Client, Gateway, HttpServer, Setup, example, quick, text_of, until,
};

/// A server that wants a token, who gives it, and a gateway that is signed in.
async fn signed_in(with: &str) -> (HttpServer, Authority, Gateway) {
    let server = HttpServer::start(Behaviour::default()).await;
    let authority = Authority::of(&server).await;
    let setup = Setup::new(&format!("{}{with}{}", quick(), server.config("docs")));
    fs::write(setup.path("printed"), key(1)).unwrap();
    let gateway = setup.serve().await;
    login_needed(&gateway).await;
    log_in(&gateway).await;
    gateway.wait_state("docs", "up").await;
    (server, authority, gateway)
}

fn key(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

const FILE: &str = "[credentials]\nkey_file = \"the.key\"\n";

const COMMAND: &str = "[credentials]\nkey_command = [\"cat\", \"printed\"]\n";

#[tokio::test]
async fn the_key_is_replaced_while_tokens_are_read_and_written() {
    let (_server, authority, mut gateway) = signed_in(FILE).await;
    let client = Client::open(&gateway).await;
    let file = gateway.setup.path("the.key");
    for n in 0..5 {
        let before = fs::read_to_string(&file).unwrap();
        authority.expire_tokens();
        // The call gets another token, which is kept, while all is re-encrypted.
        let rotating = gateway.setup.command(&["vault", "rotate"]);
        let mut rotating = { rotating }.stdout(Stdio::null()).spawn().unwrap();
        let result = client.call("docs__echo", json!({ "n": n })).await;
        assert_eq!(text_of(&result), format!("http {{\"n\":{n}}}"));
        assert!(rotating.wait().unwrap().success());
        assert_ne!(fs::read_to_string(&file).unwrap(), before);
    }
    let (good, said) = gateway.setup.run(&["doctor"]);
    assert!(
        said.contains("stored tokens are encrypted with the key in"),
        "{good}: {said}"
    );
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    let refreshed = authority.grants().refreshed;
    authority.expire_tokens();
    let client = Client::open(&gateway).await;
    let result = client.call("docs__echo", json!({ "n": 9 })).await;
    assert_eq!(text_of(&result), "http {\"n\":9}");
    assert_eq!(
        authority.grants().refreshed,
        refreshed + 1,
        "with the last token that was kept"
    );
}

#[tokio::test]
async fn a_rotation_that_is_killed_leaves_all_readable_and_goes_on() {
    let setup = Setup::new(&format!("{}{FILE}", quick()));
    let data_dir = setup.path(".mcpvisor");
    let file = VaultKey::File(setup.path("the.key"));
    let vault = Vault::new(data_dir.join("credentials"), file);
    let names: Vec<String> = (0..300).map(|n| format!("server-{n}")).collect();
    for name in &names {
        vault.write(name, name.as_bytes()).unwrap();
    }
    let read_all = || {
        for name in &names {
            assert_eq!(vault.read(name).unwrap().unwrap(), name.as_bytes());
        }
    };
    let mut rotating = setup.command(&["vault", "rotate"]).spawn().unwrap();
    let begun = || async { data_dir.join("vault.previous").exists().then_some(()) };
    until("the rotation to begin", begun).await;
    rotating.kill().unwrap();
    rotating.wait().unwrap();
    read_all();
    let (good, said) = setup.run(&["vault", "rotate"]);
    assert!(good && said.contains("re-encrypted"), "{said}");
    assert!(!data_dir.join("vault.previous").exists());
    read_all();
}

#[tokio::test]
async fn a_wrong_key_is_named_and_costs_nothing() {
    let (_server, authority, mut gateway) = signed_in(COMMAND).await;
    let printed = gateway.setup.path("printed");
    gateway.kill();
    fs::write(&printed, key(2)).unwrap();
    let sealed = gateway.data_dir().join("credentials");
    let kept = || files_below(&sealed);
    let before = kept();
    let (good, said) = gateway.setup.run(&["doctor"]);
    let wrong = "the key from the command `cat` does not match";
    assert!(!good && said.contains(wrong), "{said}");
    gateway.start_again().await;
    login_needed(&gateway).await;
    assert!(gateway.log().contains(wrong));
    assert!(!gateway.log().contains(&key(2)));
    assert_eq!(kept(), before, "nothing is written over");
    // With its key it is signed in as before.
    gateway.kill();
    fs::write(&printed, key(1)).unwrap();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    // The operator replaces it in the keyring, and says which it was.
    let old = gateway.setup.path("old");
    fs::write(&old, key(1)).unwrap();
    fs::write(&printed, key(3)).unwrap();
    let (good, said) = gateway.setup.run(&["vault", "rotate"]);
    assert!(!good && said.contains("--old-key-file"), "{said}");
    let rotate = ["vault", "rotate", "--old-key-file", old.to_str().unwrap()];
    // Another user could have put a key of their own there.
    fs::set_permissions(&old, Permissions::from_mode(0o666)).unwrap();
    let (good, said) = gateway.setup.run(&rotate);
    assert!(!good && said.contains("chmod o-w"), "{said}");
    fs::set_permissions(&old, Permissions::from_mode(0o600)).unwrap();
    let (good, said) = gateway.setup.run(&rotate);
    assert!(good && said.contains("re-encrypted 1 files"), "{said}");
    // The gateway that runs writes with the new one from now on.
    authority.expire_tokens();
    let client = Client::open(&gateway).await;
    let result = client.call("docs__echo", json!({ "n": 1 })).await;
    assert_eq!(text_of(&result), "http {\"n\":1}");
    gateway.kill();
    gateway.start_again().await;
    gateway.wait_state("docs", "up").await;
    assert_eq!(authority.grants().registered, 1);
}

#[tokio::test]
async fn a_backup_of_the_data_directory_tells_nothing() {
    let server = HttpServer::start(Behaviour::default()).await;
    let _authority = Authority::of(&server).await;
    let history = "[history]\nfile = true\nbodies = \"64KiB\"\n";
    let own = "headers = { X-Own = \"canary-header\" }\n\
               forward_headers = { X-Said = \"X-Said\" }\n";
    let crashing = example("one").replace("env = {", "env = { TOKEN = \"canary-env\",");
    let config = format!(
        "{}{FILE}{history}{}{own}{crashing}",
        quick(),
        server.config("docs")
    );
    let mut gateway = Setup::new(&config).serve().await;
    login_needed(&gateway).await;
    let answer = log_in(&gateway).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    gateway.all_up().await;
    let client = Client::open(&gateway).await;
    for tool in ["docs__echo", "one__echo"] {
        let arguments = json!({
            "message": "plain-words", "n": 1, "api_key": "canary-argument",
            "note": "Bearer canary-bearer, canary-env and canary-header",
        });
        client.call(tool, arguments).await;
    }
    let lost = gateway.generation("one").await;
    let pid = rustix::process::Pid::from_raw(gateway.server_pid("one")).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    gateway.wait_renewed("one", lost).await;
    // Pages and logs of the database as they are while it runs, and as a kill leaves them.
    until("the calls to be recorded", || async {
        files_below(&gateway.data_dir())
            .contains("plain-words")
            .then_some(())
    })
    .await;
    for is_killed in [false, true] {
        if is_killed {
            gateway.kill();
        }
        let kept = files_below(&gateway.data_dir());
        assert!(kept.contains("docs__echo") && kept.contains("SQLite format"));
        let canary = kept.split_once("canary").map(|(_, rest)| rest);
        let found: Option<String> = canary.map(|rest| rest.chars().take(40).collect());
        assert_eq!(found, None);
    }
    assert!(gateway.data_dir().join("crashes").is_dir());
}

#[tokio::test]
async fn who_needs_no_token_does_not_wait_for_the_command_that_prints_the_key() {
    let config = format!("{COMMAND}{}", example("one"));
    let (_server, authority, mut gateway) = signed_in(&config).await;
    gateway.kill();
    // The command ends when somebody writes the key.
    let printed = gateway.setup.path("printed");
    fs::remove_file(&printed).unwrap();
    let mut mkfifo = gateway.setup.command_of("mkfifo", &["printed"]);
    assert!(mkfifo.status().unwrap().success());
    gateway.start_again().await;
    gateway.wait_state("one", "up").await;
    let client = Client::open(&gateway).await;
    let result = client.call("one__echo", json!({ "message": "x" })).await;
    assert_ne!(result["isError"], true, "{result}");
    // Who needs one waits, and has it then.
    assert_ne!(gateway.server("docs").await["state"], "up");
    let writing = tokio::task::spawn_blocking(move || fs::write(printed, key(1)));
    gateway.wait_state("docs", "up").await;
    writing.await.unwrap().unwrap();
    let result = client.call("docs__echo", json!({ "n": 1 })).await;
    assert_eq!(text_of(&result), "http {\"n\":1}");
    assert_eq!(authority.grants().registered, 1);
}

use super::*;
use crate::config::environment::Environment;
use crate::masking::REDACTED;

const FILE: &str = r#"# The gateway's own.
[gateway]
watch = true # a remark

# Files, for everybody.
[servers.files]
command = "npx" # of node
args = ["-y", "@scope/files", "--token", "s3cret", "word"]
env = { TOKEN = "${FILES_TOKEN:-none}", PLAIN = "s3cret-too" }

[servers.docs]
url = "https://docs.example.com/mcp"
headers = { Authorization = "Bearer s3cret" }
"#;

struct NoVariables;

impl Environment for NoVariables {
    fn var(&self, _: &str) -> Option<std::ffi::OsString> {
        None
    }
}

pub(super) struct File(tempfile::TempDir);

impl File {
    pub(super) fn new(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.toml"), text).unwrap();
        Self(directory)
    }

    pub(super) fn text(&self) -> String {
        self.read("config.toml")
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    pub(super) fn order_with_tag(&self, order: EntryOrder) -> (Value, String) {
        let answer = self.order_if(order, None).unwrap().answer;
        (answer.body, answer.etag)
    }

    fn order_if(&self, order: EntryOrder, if_match: Option<&str>) -> Result<FileOutcome, Failure> {
        let path = self.0.path().join("config.toml");
        let mint = || Uuid::from_u128(7);
        let file = ServerFile::new(Some(&path), &NoVariables, mint).unwrap();
        file.carry_out(order.into(), if_match)
    }

    pub(super) fn order(&self, order: EntryOrder) -> Result<Value, Failure> {
        Ok(self.order_if(order, None)?.answer.body)
    }
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

pub(super) fn update(name: &str, body: Value) -> EntryOrder {
    EntryOrder::Update(name.to_owned(), object(body))
}

#[test]
fn no_secret_is_read() {
    let file = File::new(FILE);
    let listed = file.order(EntryOrder::List).unwrap();
    assert!(!listed.to_string().contains("s3cret"), "{listed}");
    assert!(!listed.to_string().contains("FILES_TOKEN"), "{listed}");
    let files = &listed["servers"][0];
    let args = json!(["-y", "@scope/files", "--token", REDACTED, "word"]);
    assert_eq!((&files["args"], &files["id"]), (&args, &json!("files")));
    assert_eq!(files["env"]["PLAIN"], REDACTED);
    let docs = &listed["servers"][1];
    assert_eq!(docs["url"], "https://docs.example.com/mcp");
    assert_eq!(docs["transport"], "streamableHttp");
    assert_eq!(file.text(), FILE);
}

#[test]
fn writing_back_what_was_read_changes_nothing() {
    let file = File::new(FILE);
    for name in ["files", "docs"] {
        let read = file.order(EntryOrder::Get(name.to_owned())).unwrap();
        let written = file.order(update(name, read.clone())).unwrap();
        assert_eq!(read, written);
    }
    let text = file.text();
    for kept in [
        "# The gateway's own.",
        "watch = true # a remark",
        "# Files, for everybody.",
        "\"s3cret\", \"word\"",
        "${FILES_TOKEN:-none}",
        "Bearer s3cret",
    ] {
        assert!(text.contains(kept), "{kept} in {text}");
    }
}

#[test]
fn texts_are_literal() {
    let file = File::new("");
    let odd = "${HOME} $$ $x";
    let body = json!({ "name": "a", "command": "true", "args": ["-x"], "env": { "A": odd } });
    let made = file.order(EntryOrder::Create(object(body))).unwrap();
    assert_eq!(made["id"], Uuid::from_u128(7).to_string());
    let text = file.text();
    assert!(text.contains("$${HOME} $$$$ $$x"), "{text}");
    let filled_in = crate::config::fill_in("$${HOME} $$$$ $$x", &NoVariables);
    assert_eq!(filled_in.unwrap(), odd);
}

#[test]
fn a_renamed_server_keeps_its_id() {
    let file = File::new(FILE);
    let renamed = file
        .order(update("files", json!({ "name": "disk" })))
        .unwrap();
    assert_eq!(
        (&renamed["id"], &renamed["name"]),
        (&json!("files"), &json!("disk"))
    );
    let found = file.order(EntryOrder::Get("files".to_owned())).unwrap();
    assert_eq!(found, renamed);
    assert!(file.text().contains("# Files, for everybody."));
    assert!(!file.text().contains("[servers.files]"));
    file.order(EntryOrder::Delete("files".to_owned())).unwrap();
    assert!(!file.text().contains("disk") && file.text().contains("docs"));
}

#[test]
fn invalid_requests_change_nothing() {
    let file = File::new(FILE);
    let create = |body| EntryOrder::Create(object(body));
    let table = [
        (create(json!({})), "invalid_config"),
        (create(json!({ "name": "a" })), "invalid_config"),
        (
            create(json!({ "name": "a b", "command": "x" })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "docs", "command": "x" })),
            "conflict",
        ),
        (
            create(json!({ "name": "a", "command": 3 })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "a", "command": "x", "url": "http://a" })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "a", "url": "nowhere" })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "a", "command": REDACTED })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "a", "command": "x", "oauth": {} })),
            "invalid_config",
        ),
        (
            create(json!({ "name": "a", "transport": "x", "url": "http://a" })),
            "invalid_config",
        ),
        (update("files", json!({ "id": "other" })), "invalid_config"),
        (update("files", json!({ "name": "docs" })), "conflict"),
        (update("files", json!({ "args": "x" })), "invalid_config"),
        (
            update("files", json!({ "env": { "NEW": REDACTED } })),
            "invalid_config",
        ),
        (
            update("files", json!({ "env": { "A=B": "x" } })),
            "invalid_config",
        ),
        (
            update("files", json!({ "timeouts": { "request": 0 } })),
            "invalid_config",
        ),
        (
            update("files", json!({ "connectionMode": "else" })),
            "invalid_config",
        ),
        (update("none", json!({})), "server_not_found"),
        (EntryOrder::Delete("none".to_owned()), "server_not_found"),
    ];
    for (order, expected) in table {
        let shown = format!("{order:?}");
        let refused = file.order(order).unwrap_err();
        assert_eq!(refused.kind.as_str(), expected, "{shown}: {refused}");
        assert!(!refused.message.contains("s3cret"), "{refused}");
        assert_eq!(file.text(), FILE, "{shown}");
    }
}

#[test]
fn an_invalid_oauth_table_changes_nothing() {
    let file = File::new(FILE);
    for oauth in [
        json!(3),
        json!({ "key": "x" }),
        json!({ "clientId": 3 }),
        json!({ "clientSecret": REDACTED }),
        json!({ "scopes": "read" }),
        json!({ "tokenUrl": "http://a.example/token", "clientId": "me" }),
        json!({ "tokenUrl": "https://a.example/token" }),
    ] {
        let body = json!({ "name": "a", "url": "http://a", "oauth": oauth });
        let refused = file.order(EntryOrder::Create(object(body))).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidConfig, "{oauth}");
        assert_eq!(file.text(), FILE, "{oauth}");
    }
}

#[test]
fn an_outdated_tag_is_refused() {
    let file = File::new(FILE);
    let read = file.order_if(EntryOrder::List, None).unwrap().answer.etag;
    let off = || update("files", json!({ "enabled": false }));
    let changed = file.order_if(off(), Some(&read)).unwrap().answer.etag;
    assert_ne!(read, changed);
    let refused = file.order_if(off(), Some(&read)).map(|_| ()).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::PreconditionFailed);
    for tag in ["*", &changed, &format!("\"x\", {changed}")] {
        assert!(file.order_if(off(), Some(tag)).is_ok(), "{tag}");
    }
}

#[test]
fn a_new_transport_replaces_the_old_one() {
    let file = File::new(FILE);
    let body = json!({ "transport": "sse", "url": "http://localhost:1/sse" });
    let now = file.order(update("files", body)).unwrap();
    assert_eq!(now["transport"], "sse");
    assert!(now.get("command").is_none(), "{now}");
    let body =
        json!({ "transport": "stdio", "command": "true", "timeouts": { "connection": 5000 } });
    let now = file.order(update("files", body)).unwrap();
    assert_eq!(now["transport"], "stdio");
    assert_eq!(now["timeouts"]["connection"], 5000);
}

#[test]
fn the_connection_mode_is_stored() {
    let file = File::new(FILE);
    let mode = |file: &File| {
        file.order(EntryOrder::Get("docs".to_owned())).unwrap()["connectionMode"].clone()
    };
    assert_eq!(mode(&file), "proxy");
    for wanted in ["direct", "proxy"] {
        file.order(update("docs", json!({ "connectionMode": wanted })))
            .unwrap();
        assert_eq!(mode(&file), wanted);
    }
    assert_eq!(file.text(), FILE);
}

#[test]
fn the_built_in_configuration_is_not_written() {
    let built_in = ServerFile::new(None, &NoVariables, Uuid::new_v4);
    assert!(built_in.is_err());
}

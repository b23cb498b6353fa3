//! Each page, whole and harmless.

use serde_json::json;

use super::{Browser, between, text_of};
use crate::support::{Answer, Client, Gateway, Http, INITIALIZE, Setup, example, quick, until};

const PAGES: [&str; 17] = [
    "/ui",
    "/ui/servers",
    "/ui/servers/one",
    "/ui/servers/new",
    "/ui/servers/one/edit",
    "/ui/tree",
    "/ui/sessions",
    "/ui/calls",
    "/ui/tools",
    "/ui/tool?name=one__add",
    "/ui/pins",
    "/ui/views",
    "/ui/logs",
    "/ui/config",
    "/ui/connect",
    "/ui/policies",
    "/ui/search?text=one",
];

fn check_headers(answer: &Answer, path: &str) {
    let policy = answer.header("content-security-policy").unwrap();
    assert!(
        policy.starts_with("default-src 'none'; "),
        "{path}: {policy}"
    );
    assert!(
        !policy.contains("unsafe") && !policy.contains('*'),
        "{path}: {policy}"
    );
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{path}");
    }
}

/// Whether every tag is closed, nothing is inline, and nothing comes from elsewhere.
pub(super) fn check_html(page: &str, path: &str) {
    const VOID: [&str; 5] = ["br", "input", "link", "meta", "option-"];
    assert!(page.starts_with("<!DOCTYPE html>"), "{path}");
    assert_eq!(page.matches("<main").count(), 1, "{path}");
    assert_eq!(page.matches("<h1").count(), 1, "{path}: {page}");
    let mut open: Vec<&str> = Vec::new();
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.split([' ', '/']).find(|name| !name.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{path}: {tag}");
        } else if !VOID.contains(&name) && !name.starts_with('!') {
            open.push(name);
        }
        let is_handler = |word: &str| word.starts_with("on") && word.contains('=');
        assert!(!tag.split(' ').any(is_handler), "{path}: {tag}");
        assert!(!tag.contains(" style="), "{path}: {tag}");
        assert!(!tag.contains("javascript:"), "{path}: {tag}");
        let loads = name == "script" || name == "link" || name == "img" || name == "form";
        assert!(!loads || !tag.contains("//"), "{path}: {tag}");
    }
    assert!(open.is_empty(), "{path}: {open:?}");
    assert!(!page.contains("<style"), "{path}");
    assert_eq!(page.matches("<script").count(), 1, "{path}");
}

#[tokio::test]
async fn every_page_is_whole_without_javascript() {
    let config = quick() + "[history]\nfile = true\n" + &example("one");
    let gateway = Gateway::start(&config).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let client = Client::open(&gateway).await;
    client.call("one__echo", json!({"message": "hello"})).await;
    let ids = until("the call in the history", || async {
        let page = browser.page("/ui/calls").await;
        let shown = page.contains("one__echo");
        shown.then(|| between(&page, "href=\"/ui/calls/", "\"").to_owned())
    });
    let call = format!("/ui/calls/{}", ids.await);
    let sessions = browser.page("/ui/sessions").await;
    let session = between(&sessions, "href=\"/ui/sessions/", "\"");
    let session = format!("/ui/sessions/{session}");
    for path in PAGES.into_iter().chain([call.as_str(), &session]) {
        let answer = browser.get(path).send().await;
        assert_eq!(answer.status, 200, "{path}");
        check_headers(&answer, path);
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        check_html(&text_of(answer).await, path);
    }
    let page = browser.page("/ui").await;
    for (start, content_type) in [
        ("rel=\"stylesheet\" href=\"", "text/css; charset=utf-8"),
        ("<script src=\"", "text/javascript; charset=utf-8"),
        ("data-plots=\"", "text/javascript; charset=utf-8"),
        (
            "rel=\"icon\" type=\"image/svg+xml\" href=\"",
            "image/svg+xml",
        ),
    ] {
        let path = between(&page, start, "\"");
        // Without a login: the page to sign in needs them.
        let file = gateway.get(path).send().await;
        assert_eq!(
            (file.status, file.header("content-type")),
            (200, Some(content_type))
        );
        assert!(file.header("cache-control").unwrap().contains("immutable"));
        check_headers(&file, path);
    }
}

#[tokio::test]
async fn failures_and_strange_paths_have_pages() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let browser = Browser::sign_in(&gateway).await;
    for path in [
        "/ui/nothing",
        "/ui/",
        "/ui/servers/nobody",
        "/ui/servers/one/nothing",
        "/ui/sessions/0",
        "/ui/tool?name=%3Cscript%3E",
        "/ui/calls/1",
        "/ui/logs?level=loud",
        "/ui/servers/%3Cscript%3Ealert(1)%3C%2Fscript%3E",
    ] {
        let answer = browser.get(path).send().await;
        check_headers(&answer, path);
        assert!(
            matches!(answer.status, 400 | 404 | 409) || path == "/ui/",
            "{path}: {answer:?}"
        );
        check_html(&text_of(answer).await, path);
    }
    let page = browser.page("/ui/calls").await;
    assert!(!page.contains("not recorded"), "{page}");
}

/// A server whose every text is hostile.
const HOSTILE: &str = r#"
import json, sys
evil = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>\u202e\u001b[31m" + "W" * 3000
print(evil, file=sys.stderr, flush=True)
def send(id, result):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        send(id, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                  "serverInfo": {"name": evil, "title": evil, "version": evil}, "instructions": evil})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {evil: {"type": "string", "description": evil,
                  "default": evil}, "choice": {"enum": [evil]}}}
        send(id, {"tools": [{"name": "evil", "title": evil, "description": evil,
                             "inputSchema": schema}]})
    elif method == "tools/call":
        send(id, {"content": [{"type": "text", "text": evil}, {"type": evil}], "isError": True})
    elif id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id,
                          "error": {"code": -32601, "message": evil}}), flush=True)
"#;

pub(super) fn check_harmless(page: &str, path: &str) {
    for wrong in ["<script>", "<img", "\u{202e}", "\u{1b}", &"W".repeat(3001)] {
        assert!(!page.contains(wrong), "{path}: {wrong:?}");
    }
    assert_eq!(page.matches("<script").count(), 1, "{path}");
}

#[tokio::test]
async fn hostile_texts_stay_texts() {
    let setup = Setup::new("");
    let script = setup.path("hostile.py");
    std::fs::write(&script, HOSTILE).unwrap();
    let script = script.display();
    let config = quick()
        + &format!(
            "[history]\nfile = true\n[views.all]\n[servers.evil]\ncommand = \"python3\"\nargs = [\"{script}\"]\n"
        );
    std::fs::write(setup.path("config.toml"), config).unwrap();
    let gateway = setup.serve().await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let name = json!("<script>alert(3)</script>\u{202e}");
    let hello = INITIALIZE.replace("\"it\"", &name.to_string());
    assert_eq!(Http::post(gateway.address, hello).send().await.status, 200);
    let tried = browser.sent("/ui/tool?name=evil__evil", &[]).await;
    let tried = super::shown(&browser, &tried, "the tool failed").await;
    assert!(
        tried.contains("the tool failed") && tried.contains("&lt;script&gt;alert(1)"),
        "{tried}"
    );
    check_harmless(&tried, "the result");
    let pages = [
        "/ui",
        "/ui/servers/evil",
        "/ui/tools",
        "/ui/tool?name=evil__evil",
        "/ui/views",
        "/ui/views/all",
        "/ui/tool?name=evil__evil&view=all",
        "/ui/logs",
    ];
    for path in pages
        .into_iter()
        .chain(["/ui/sessions", "/ui/calls", "/ui/tree"])
    {
        let page = browser.page(path).await;
        check_harmless(&page, path);
    }
    let page = browser.page("/ui/servers/evil?tab=logs").await;
    check_harmless(&page, "the log of the server");
    assert!(page.contains("&lt;img src=x"), "{page}");
    let page = browser.page("/ui/sessions").await;
    assert!(page.contains("&lt;script&gt;alert(3)"), "{page}");
}

#[tokio::test]
async fn no_page_has_a_secret() {
    const SECRET: &str = "canary-secret-word";
    let config = quick()
        + &format!("[history]\nfile = true\n{}", example("one"))
        + &format!(
            "[servers.two]\nurl = \"http://127.0.0.1:9/mcp?key={SECRET}\"\n\
             headers = {{ Authorization = \"Bearer {SECRET}\" }}\n\
             [servers.three]\ncommand = \"sh\"\nargs = [\"-c\", \"echo $A >&2; exit 1\", \"--token\", \
             \"{SECRET}\"]\nenv = {{ A = \"{SECRET}\" }}\n"
        );
    let gateway = Setup::new(&config).serve().await;
    gateway.wait_state("one", "up").await;
    gateway.wait_state("two", "broken").await;
    gateway.wait_state("three", "broken").await;
    let browser = Browser::sign_in(&gateway).await;
    let more = ["two", "three"].map(|name| format!("/ui/servers/{name}"));
    let edits = ["two", "three"].map(|name| format!("/ui/servers/{name}/edit"));
    let tabs = [
        "two?tab=settings",
        "three?tab=settings",
        "three?tab=logs",
        "three?tab=crashes",
    ];
    let tabs = tabs.map(|tab| format!("/ui/servers/{tab}"));
    let more = more.iter().chain(&edits).chain(&tabs).map(String::as_str);
    for path in PAGES.into_iter().chain(more) {
        let page = browser.get(path).send().await;
        let page = text_of(page).await;
        assert!(!page.contains(SECRET), "{path}: {page}");
        assert!(!page.contains(&crate::api::token_of(&gateway)), "{path}");
    }
}

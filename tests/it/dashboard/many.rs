//! Lists with more rows than a page has.

use std::collections::BTreeSet;

use super::pages::check_html;
use super::{Browser, between};
use crate::support::{Client, Gateway, Setup, example, quick};

/// Rows on a page.
const ROWS: usize = 50;

/// The keys of all rows of a list, from its pages, which begin behind each other. A key follows the
/// text `row`.
async fn walk(browser: &Browser<'_>, first: &str, row: &str) -> Vec<String> {
    let (mut path, mut keys) = (first.to_owned(), Vec::new());
    loop {
        let page = browser.page(&path).await;
        check_html(&page, &path);
        let rows = page.split(row).skip(1);
        let rows: Vec<&str> = rows.map(|rest| rest.split('"').next().unwrap()).collect();
        assert!(rows.len() <= ROWS, "{path}: {} rows", rows.len());
        keys.extend(rows.into_iter().map(str::to_owned));
        let Some((before, _)) = page.split_once("\">Next<") else {
            return keys;
        };
        let (_, next) = before.rsplit_once("href=\"").unwrap();
        path = next.replace("&amp;", "&");
    }
}

fn is_unique(keys: &[String]) -> bool {
    keys.iter().collect::<BTreeSet<_>>().len() == keys.len()
}

#[tokio::test]
async fn many_servers_are_listed_in_pages_with_those_in_trouble_first() {
    let server = |number| format!("[servers.s{number:03}]\ncommand = \"true\"\nenabled = false\n");
    let servers: String = (0..120).map(server).collect();
    let lacks = "[servers.z]\ncommand = \"true\"\nenv = { A = \"${NOT_SET_ANYWHERE}\" }\n";
    let gateway = Setup::new(&(quick() + &servers + lacks)).serve().await;
    let browser = Browser::sign_in(&gateway).await;
    let names = (0..120).map(|number| format!("s{number:03}"));
    let expected: Vec<String> = std::iter::once("z".to_owned()).chain(names).collect();
    for (path, row) in [
        ("/ui/servers", "<tr id=\"server-"),
        ("/ui/tree", "<li id=\"node-"),
    ] {
        assert_eq!(walk(&browser, path, row).await, expected, "{path}");
        let found = walk(&browser, &format!("{path}?text=S11"), row).await;
        assert_eq!(found.len(), 10, "{path}: {found:?}");
        let none = browser.page(&format!("{path}?text=nobody")).await;
        assert!(none.contains("No matching servers"), "{none}");
    }
    let overview = browser.page("/ui").await;
    assert!(overview.contains("100 more"), "{overview}");
    assert!(overview.matches("<li id=\"well-").count() < ROWS);
    // Too many to choose from.
    for path in ["/ui/logs", "/ui/tools"] {
        let page = browser.page(path).await;
        assert!(!page.contains("<option value=\"s001\""), "{path}: {page}");
    }
}

#[tokio::test]
async fn many_sessions_are_listed_in_pages() {
    let gateway = Gateway::start(&(quick() + &example("one"))).await;
    let mut clients = Vec::new();
    for _ in 0..2 * ROWS + 3 {
        clients.push(Client::open(&gateway).await);
    }
    let browser = Browser::sign_in(&gateway).await;
    let handles = walk(&browser, "/ui/sessions", "<tr id=\"session-").await;
    assert!(is_unique(&handles) && handles.len() == clients.len());
    let page = browser.page("/ui/sessions").await;
    assert!(page.contains("103 sessions"), "{page}");
    // A page begins behind its key, whatever has become of the rows before it.
    let next = between(&page, "?after=", "\"").to_owned();
    let second = format!("/ui/sessions?after={next}");
    let before = walk(&browser, &second, "<tr id=\"session-").await;
    let path = format!("/ui/sessions/{}/end", handles[0]);
    browser.sent(&path, &[("sure", "yes")]).await;
    let after = walk(&browser, &second, "<tr id=\"session-").await;
    assert_eq!(before, after);
}

#[tokio::test]
async fn many_tools_are_listed_in_pages() {
    let servers: String = (0..9)
        .map(|number| example(&format!("s{number}")))
        .collect();
    let gateway = Gateway::start(&(quick() + &servers)).await;
    gateway.all_up().await;
    let browser = Browser::sign_in(&gateway).await;
    let row = "href=\"/ui/tool?name=";
    let all = walk(&browser, "/ui/tools", row).await;
    assert!(is_unique(&all) && all.len() > ROWS, "{all:?}");
    let total = format!("{} tools", all.len());
    assert!(browser.page("/ui/tools").await.contains(&total), "{total}");
    let found = walk(&browser, "/ui/tools?server=s3&text=two+numbers", row).await;
    assert_eq!(found, ["s3__add"]);
}

//! The dashboard at `/ui`, as a browser without JavaScript meets it; `tests/browser` drives a real
//! one.

mod config;
mod forms;
mod items;
mod keys;
mod live;
mod login;
mod many;
mod pages;
mod pins;
mod playground;
mod plots;
mod search;
mod servers;
mod sessions;
mod views;

use url::form_urlencoded::Serializer;

use crate::api::token_of;
use crate::support::{Answer, Gateway, Http, until};

/// Somebody who has signed in.
pub(crate) struct Browser<'g> {
    gateway: &'g Gateway,
    cookie: String,
}

impl<'g> Browser<'g> {
    pub(crate) async fn sign_in(gateway: &'g Gateway) -> Self {
        let token = token_of(gateway);
        let answer = post(gateway, "/ui/login", &[("token", &token)])
            .send()
            .await;
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = cookie_of(&answer);
        Self { gateway, cookie }
    }

    fn get(&self, path: &str) -> Http {
        self.gateway.get(path).header("Cookie", &self.cookie)
    }

    /// The text of a page that is there.
    pub(crate) async fn page(&self, path: &str) -> String {
        let answer = self.get(path).send().await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        text_of(answer).await
    }

    /// Sends a form that leads to another page; the path of that one.
    async fn sent(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.form(path, fields).await.send().await;
        let to = answer.header("location").map(str::to_owned);
        to.unwrap_or_else(|| panic!("{path}: {answer:?}"))
    }

    /// A form with the token that the page has.
    pub(crate) async fn form(&self, path: &str, fields: &[(&str, &str)]) -> Http {
        let page = self.page("/ui").await;
        let token = between(&page, "name=\"form_token\" value=\"", "\"").to_owned();
        let mut all = vec![("form_token", token.as_str())];
        all.extend(fields);
        post(self.gateway, path, &all).header("Cookie", &self.cookie)
    }
}

/// Waits for a text on a page.
async fn shown(browser: &Browser<'_>, path: &str, text: &str) -> String {
    let look = || async {
        let page = browser.page(path).await;
        page.contains(text).then_some(page)
    };
    until(text, look).await
}

fn post(gateway: &Gateway, path: &str, fields: &[(&str, &str)]) -> Http {
    let mut body = Serializer::new(String::new());
    for (name, value) in fields {
        body.append_pair(name, value);
    }
    Http::new(gateway.address, "POST", path)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(body.finish())
}

/// The cookie that an answer sets, as the browser sends it back.
fn cookie_of(answer: &Answer) -> String {
    let cookie = answer.header("set-cookie").unwrap();
    cookie.split(';').next().unwrap().to_owned()
}

async fn text_of(answer: Answer) -> String {
    String::from_utf8(answer.bytes().await).unwrap()
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> &'t str {
    let (_, rest) = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start}: {text}"));
    rest.split_once(end).unwrap().0
}

//! A browser's path through a sign-in: the link that starts it, and the cookie that ties the
//! callback to the browser.

use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use url::Url;

use crate::id::{Principal, ServerName};

/// A request for a sign-in.
#[derive(Clone, Debug)]
pub struct SignInRequest {
    /// The redirect URL for the authorization server.
    pub redirect_uri: Url,
    pub link: LinkKind,
    /// Who asks for the sign-in, shown on the page; the text can come from a client.
    pub requester: String,
}

/// Where the sign-in link leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// To a page of the gateway that names the user of the sign-in. Only the browser in which a
    /// person continues from that page may deliver the callback.
    Page,
    /// Directly to the authorization server: an operator requested the link, and forwards it or
    /// handles the callback with a program.
    Direct,
}

/// The links of a pending sign-in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInLinks {
    /// The link for the person who signs in.
    pub link: Url,
    /// The page of the authorization server, for a browser that cannot reach the gateway.
    pub authorization: Url,
}

/// The facts shown on the gateway's page before a person continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignInOffer {
    pub server: ServerName,
    /// The user whose calls will use the token; `None` if all clients use it.
    pub principal: Option<Principal>,
    pub issuer: String,
    pub requester: String,
    pub redirect_uri: Url,
}

/// Who delivers an authorization server's callback.
#[derive(Clone, Copy, Debug)]
pub enum Bearer<'a> {
    /// The control socket, which only the gateway's own user can open.
    Operator,
    /// A browser, with its cookie for this sign-in.
    Browser(Option<&'a str>),
}

/// Which browser may deliver the callback.
#[derive(Debug)]
pub(super) enum ExpectedBrowser {
    Any,
    /// The browser with this cookie; none before a person continued from the page.
    Continued(Option<SecretString>),
}

impl ExpectedBrowser {
    pub(super) fn of(link: LinkKind) -> Self {
        match link {
            LinkKind::Direct => Self::Any,
            LinkKind::Page => Self::Continued(None),
        }
    }

    /// Binds the sign-in to the last browser in which a person continued.
    pub(super) fn bind(&mut self, cookie: &str) {
        if let Self::Continued(expected) = self {
            *expected = Some(cookie.into());
        }
    }

    pub(super) fn admits(&self, bearer: Bearer<'_>) -> bool {
        match (self, bearer) {
            (Self::Any, _) | (_, Bearer::Operator) => true,
            (Self::Continued(Some(expected)), Bearer::Browser(Some(cookie))) => {
                let expected = expected.expose_secret().as_bytes();
                bool::from(expected.ct_eq(cookie.as_bytes()))
            }
            (Self::Continued(_), Bearer::Browser(_)) => false,
        }
    }
}

/// The gateway's page for the sign-in with this state. Its path is below the redirect URL, so that
/// a proxy that forwards callbacks also forwards the page.
pub(super) fn page_of(redirect_uri: &Url, state: &str) -> Url {
    let mut page = redirect_uri.clone();
    page.set_query(None);
    page.set_fragment(None);
    if let Ok(mut segments) = page.path_segments_mut() {
        segments.pop_if_empty().push(state);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_browser_that_continued_last_brings_the_answer() {
        let mut expected = ExpectedBrowser::of(LinkKind::Page);
        let browser = |cookie| Bearer::Browser(cookie);
        for stranger in [browser(None), browser(Some("")), browser(Some("ada"))] {
            assert!(!expected.admits(stranger), "{stranger:?}");
        }
        expected.bind("eve");
        for (bearer, admitted) in [
            (browser(Some("eve")), true),
            (browser(Some("ada")), false),
            (browser(Some("ev")), false),
            (browser(Some("eve ")), false),
            (browser(Some("")), false),
            (browser(None), false),
            (Bearer::Operator, true),
        ] {
            assert_eq!(expected.admits(bearer), admitted, "{bearer:?}");
        }
        expected.bind("ada");
        assert!(expected.admits(browser(Some("ada"))) && !expected.admits(browser(Some("eve"))));
        let mut any = ExpectedBrowser::of(LinkKind::Direct);
        any.bind("eve");
        assert!(any.admits(browser(None)));
    }

    #[test]
    fn the_sign_in_page_is_below_the_redirect_url() {
        for (callback, expected) in [
            ("http://a:1/oauth/callback", "http://a:1/oauth/callback/s-_"),
            (
                "https://a/x/oauth/callback/",
                "https://a/x/oauth/callback/s-_",
            ),
            ("https://a/back?tenant=1#x", "https://a/back/s-_"),
        ] {
            let page = page_of(&callback.parse().unwrap(), "s-_");
            assert_eq!(page.as_str(), expected);
        }
    }
}

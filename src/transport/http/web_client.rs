//! Sends the requests of an OAuth client. A server on the public internet cannot make the gateway
//! call a private address: the address is checked after its name is resolved, and the connection
//! goes to exactly that address.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use awc::http::Version;
use awc::http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, USER_AGENT,
};
use awc::{Client, ClientResponse};
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use secrecy::ExposeSecret as _;
use tokio::net::lookup_host;
use tokio::time::timeout;
use url::Url;

use super::authorized::{DPOP, DPOP_NONCE};
use super::body;
use super::dialer::{Dialer, wire_uri};
use crate::credentials::{ANSWER_MAX, Web, WebAnswer, WebBody, WebRequest};
use crate::protocol::without_bom;
use crate::transport::{LinkError, Proxy, ProxyChoice, Tls};

/// Maximum duration of a request, including its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// HTTP client for the OAuth requests of one server.
#[derive(Clone, Debug)]
pub struct WebClient {
    tls: Tls,
    /// Configured URLs whose answers name further URLs. If one of them has only private addresses,
    /// the further URLs can also have private ones.
    speakers: Vec<Url>,
    /// Other configured URLs, whose hosts can have private addresses.
    written: Vec<Url>,
    answer_max: usize,
    proxy: ProxyChoice,
}

impl WebClient {
    /// Creates a client for configured URLs whose answers name others.
    pub fn new(tls: Tls, speakers: Vec<Url>) -> Self {
        Self {
            tls,
            speakers,
            written: Vec::new(),
            answer_max: ANSWER_MAX,
            proxy: ProxyChoice::default(),
        }
    }

    /// Limits answers to `answer_max` bytes instead of [`ANSWER_MAX`].
    #[must_use]
    pub fn with_answer_max(self, answer_max: usize) -> Self {
        Self { answer_max, ..self }
    }

    /// Adds configured URLs whose answers name no others.
    #[must_use]
    pub fn with_written(self, written: Vec<Url>) -> Self {
        Self { written, ..self }
    }

    /// Uses this proxy, or none, regardless of the environment.
    #[must_use]
    pub fn with_proxy(self, proxy: ProxyChoice) -> Self {
        Self { proxy, ..self }
    }

    async fn exchange(self, request: WebRequest) -> Result<WebAnswer, String> {
        let url = &request.url;
        let proxy = self.proxy.for_url(url)?;
        let address = match &proxy {
            None => Some(self.address(url).await?),
            Some(_) => self.check_behind_proxy(url).await?,
        };
        let mut sent = self.client(url, proxy).await?.request(
            match request.body {
                Some(_) => awc::http::Method::POST,
                None => awc::http::Method::GET,
            },
            wire_uri(url)?,
        );
        if let Some(address) = address {
            sent = sent.address(address);
        }
        sent = sent
            .no_decompress()
            .insert_header((ACCEPT, "application/json"))
            .insert_header((ACCEPT_ENCODING, "identity"))
            .insert_header((USER_AGENT, concat!("mcpvisor/", env!("CARGO_PKG_VERSION"))));
        if let Some(authorization) = &request.authorization {
            let value = HeaderValue::from_str(authorization.expose_secret());
            let mut value = value.map_err(|_| "credentials do not fit into a header".to_owned())?;
            value.set_sensitive(true);
            sent = sent.insert_header((AUTHORIZATION, value));
        }
        if let Some(proof) = &request.dpop {
            sent = sent.insert_header((DPOP, proof.as_str()));
        }
        let (kind, text) = match &request.body {
            Some(WebBody::Form(text)) => ("application/x-www-form-urlencoded", text),
            Some(WebBody::Json(text)) => ("application/json", text),
            None => return read(sent.send().await, self.answer_max).await,
        };
        let sent = sent.insert_header((CONTENT_TYPE, kind));
        let sent = sent.send_body(text.expose_secret().to_owned()).await;
        read(sent, self.answer_max).await
    }

    async fn client(&self, url: &Url, proxy: Option<Proxy>) -> Result<Client, String> {
        let mut dialer = Dialer {
            socket: None,
            proxy: proxy.map(Arc::new),
            tls: None,
        };
        if url.scheme() == "https" {
            let tls = self.tls.clone();
            let config = actix_rt::task::spawn_blocking(move || tls.read()).await;
            let config = config.map_err(|error| error.to_string())?;
            dialer.tls = Some(config.map_err(|error| error.to_string())?);
        }
        Ok(dialer.client(ANSWER_WITHIN, 0))
    }

    /// Resolves the address to connect to, and checks that it is allowed.
    async fn address(&self, url: &Url) -> Result<SocketAddr, String> {
        let addresses = addresses(url).await?;
        let first = addresses.first().copied();
        let first = first.ok_or_else(|| "host name has no address".to_owned())?;
        if !addresses.iter().any(|address| is_private(address.ip()))
            || self.may_be_private(url).await
        {
            return Ok(first);
        }
        let host = url.host_str().unwrap_or_default();
        Err(format!(
            "{host} is a private address, but the server is public"
        ))
    }

    /// Checks the address if it can be resolved. A proxy also resolves names that this machine
    /// cannot, but a name that resolves to a private address here is still refused.
    async fn check_behind_proxy(&self, url: &Url) -> Result<Option<SocketAddr>, String> {
        if addresses(url).await.is_ok() {
            self.address(url).await?;
        }
        Ok(None)
    }

    async fn may_be_private(&self, url: &Url) -> bool {
        let place = |url: &Url| {
            (
                url.host_str().map(str::to_owned),
                url.port_or_known_default(),
            )
        };
        let mut own = self.speakers.iter().chain(&self.written);
        if own.any(|own| place(own) == place(url)) {
            return true;
        }
        for speaker in &self.speakers {
            if is_wholly_private(&addresses(speaker).await.unwrap_or_default()) {
                return true;
            }
        }
        false
    }
}

impl Web for WebClient {
    fn send(&self, request: WebRequest) -> LocalBoxFuture<'static, Result<WebAnswer, String>> {
        let exchange = timeout(ANSWER_WITHIN, self.clone().exchange(request));
        let late = |_| Err("it did not answer in time".to_owned());
        exchange
            .map(move |done| done.unwrap_or_else(late))
            .boxed_local()
    }
}

async fn read(
    sent: Result<ClientResponse, awc::error::SendRequestError>,
    answer_max: usize,
) -> Result<WebAnswer, String> {
    let mut response = sent.map_err(|error| error.to_string())?;
    let status = response.status().as_u16();
    let body = body::read(&mut response, answer_max, ANSWER_WITHIN).await;
    let body = body.map_err(|error| match error {
        LinkError::TooLarge { limit, .. } => format!("answer is larger than {limit} bytes"),
        error => error.to_string(),
    })?;
    let nonce = response.headers().get(DPOP_NONCE);
    let dpop_nonce = nonce.and_then(|nonce| nonce.to_str().ok().map(str::to_owned));
    let is_whole = status == 204
        || response.version() == Version::HTTP_2
        || response.headers().contains_key(CONTENT_LENGTH);
    Ok(WebAnswer {
        status,
        body: without_bom(body),
        is_whole,
        dpop_nonce,
    })
}

async fn addresses(url: &Url) -> Result<Vec<SocketAddr>, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let found = lookup_host((host, port)).await;
    let found = found.map_err(|error| format!("{host} cannot be resolved: {error}"))?;
    Ok(found.collect())
}

/// Whether a host has only private addresses. A host with addresses of both kinds counts as public,
/// because the owner of a public name can add a private address to it at will.
fn is_wholly_private(addresses: &[SocketAddr]) -> bool {
    !addresses.is_empty() && addresses.iter().all(|address| is_private(address.ip()))
}

/// Whether an address is not on the public internet.
fn is_private(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            let is_shared = a == 100 && (64..128).contains(&b);
            let is_special =
                v4.is_unspecified() || v4.is_broadcast() || v4.is_multicast() || a == 0;
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared || is_special
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || is_translated(v6)
        }
    }
}

/// NAT64 and 6to4 addresses embed an IPv4 address, which can be private.
fn is_translated(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0x64, 0xff9b, ..] | [0x2002, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses_are_known_in_every_spelling() {
        let private = [
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "::",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "ff02::1",
        ];
        for address in private {
            assert!(is_private(address.parse().unwrap()), "{address}");
        }
        for address in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111"] {
            assert!(!is_private(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn a_host_with_public_and_private_addresses_is_a_public_one() {
        let of = |addresses: &[&str]| {
            let addresses = addresses
                .iter()
                .map(|it| SocketAddr::new(it.parse().unwrap(), 443));
            is_wholly_private(&addresses.collect::<Vec<_>>())
        };
        assert!(of(&["10.0.0.1"]) && of(&["::1", "127.0.0.1"]));
        for mixed in [
            &["1.1.1.1", "10.0.0.1"][..],
            &["10.0.0.1", "1.1.1.1"],
            &["2606:4700::1111", "127.0.0.1"],
            &["1.1.1.1"],
            &[],
        ] {
            assert!(!of(mixed), "{mixed:?}");
        }
    }

    #[tokio::test]
    async fn a_private_address_that_was_written_down_opens_no_other() {
        let url = |text: &str| Url::parse(text).unwrap();
        let public = || vec![url("https://1.1.1.1/mcp")];
        let web = WebClient::new(Tls::system(), public());
        let web = web.with_written(vec![url("https://10.0.0.1/token")]);
        for (asked, allowed) in [
            ("https://10.0.0.1/register", true),
            ("https://10.0.0.1:444/register", false),
            ("https://10.0.0.2/token", false),
            ("https://127.0.0.1/", false),
        ] {
            assert_eq!(web.may_be_private(&url(asked)).await, allowed, "{asked}");
        }
        let private = WebClient::new(Tls::system(), vec![url("http://10.0.0.1/mcp")]);
        assert!(private.may_be_private(&url("https://10.0.0.2/token")).await);
    }

    #[tokio::test]
    async fn a_public_server_cannot_make_the_gateway_ask_a_private_address() {
        let trusted = vec![Url::parse("https://1.1.1.1/mcp").unwrap()];
        let web = WebClient::new(Tls::system(), trusted);
        for url in ["https://10.0.0.1/", "http://127.0.0.1:1/", "https://[::1]/"] {
            let request = WebRequest::get(Url::parse(url).unwrap());
            let error = web.send(request).await.unwrap_err();
            assert!(error.contains("is a private address"), "{error}");
        }
    }
}

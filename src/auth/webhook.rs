//! A webhook that verifies tokens, by its status or a JSON response.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use url::Url;

use super::token_answer::{TokenAnswer, TokenMembers};
use super::verified_token::{PresentedToken, TokenError, VerifiedToken};
use crate::credentials::{Web, WebAnswer, WebBody, WebRequest};

/// Number of hash characters that identify a token's holder if the webhook does not.
const NAME_LENGTH: usize = 32;

/// Settings of the webhook; disabled without a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    pub url: Option<String>,
    /// How long a response is cached.
    pub cache_for: Duration,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self {
            url: None,
            cache_for: Duration::from_secs(60),
        }
    }
}

pub(super) struct Webhook {
    web: Arc<dyn Web>,
    url: Url,
    /// The body that is sent with each token.
    body: String,
}

impl Webhook {
    /// `None` without a URL.
    pub(super) fn new(
        settings: &WebhookSettings,
        resource: Option<&str>,
        web: &Arc<dyn Web>,
    ) -> Option<Self> {
        Some(Self {
            web: Arc::clone(web),
            url: Url::parse(settings.url.as_deref()?).ok()?,
            body: json!({ "resource": resource }).to_string(),
        })
    }

    /// # Errors
    ///
    /// Returns why the token is refused, or why it cannot be verified.
    pub(super) async fn verify(
        &self,
        token: PresentedToken<'_>,
        claims: &[String],
    ) -> Result<VerifiedToken, TokenError> {
        let answer = self.web.send(WebRequest {
            authorization: Some(format!("Bearer {}", token.text).into()),
            body: Some(WebBody::Json(self.body.clone().into())),
            ..WebRequest::get(self.url.clone())
        });
        let unavailable = |why| TokenError::Unavailable(format!("{}: {why}", self.url));
        let answer = answer.await.map_err(unavailable)?;
        if !verdict_of_status(&answer).map_err(unavailable)? {
            return Err(TokenError::Inactive);
        }
        let answer = match (answer.body.is_empty(), answer.is_whole) {
            // If there is no body, the status decides.
            (true, true) => TokenAnswer::Yes(TokenMembers::default()),
            (true, false) => {
                let why = "its response has neither a body nor `Content-Length: 0`, so it \
                           could be truncated";
                return Err(unavailable(why.to_owned()));
            }
            (false, _) => TokenAnswer::read(&answer.body, false).map_err(unavailable)?,
        };
        let TokenAnswer::Yes(members) = answer else {
            return Err(TokenError::Inactive);
        };
        // The same token always identifies the same client.
        let digits = token.hash.to_string().replace(':', "-");
        let name = || digits.chars().take(NAME_LENGTH).collect();
        let subject = members.subject().map_err(unavailable)?;
        let subject = subject.unwrap_or_else(name);
        members.verified(Some(&subject), claims)
    }
}

/// Reads the verdict from the status alone; an outage is not a verdict.
fn verdict_of_status(answer: &WebAnswer) -> Result<bool, String> {
    match answer.status {
        200..=299 => Ok(true),
        408 | 429 => Err(format!("it returns status {}", answer.status)),
        400..=499 => Ok(false),
        other => Err(format!("it returns status {other}")),
    }
}

//! Builds requests to a token endpoint.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use url::{Url, form_urlencoded};

use super::{Scopes, SubjectToken, SubjectTokenType, Verifier};

/// RFC 8693, section 2.1.
pub(super) const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";

/// RFC 7523, section 2.1.
pub(super) const JWT_BEARER_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// The type of an identity assertion for another authorization server
/// (draft-ietf-oauth-identity-assertion-authz-grant).
pub(super) const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// RFC 7523, section 2.2.
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The grant of a token request.
#[derive(Debug)]
pub enum Grant {
    /// A user signed in.
    AuthorizationCode {
        code: SecretString,
        verifier: Verifier,
        redirect_uri: Url,
    },
    RefreshToken(SecretString),
    ClientCredentials,
    /// The client's token for the gateway is exchanged (RFC 8693).
    TokenExchange {
        subject: Arc<SubjectToken>,
        subject_type: SubjectTokenType,
        /// Sent instead of `resource`.
        audience: Option<String>,
    },
    /// The client's token is exchanged at its identity provider for an ID-JAG.
    IdJag {
        subject: Arc<SubjectToken>,
        subject_type: SubjectTokenType,
        /// The authorization server that the ID-JAG is for.
        audience: String,
    },
    /// A JWT of another issuer is the grant (RFC 7523).
    JwtBearer(SecretString),
}

impl Grant {
    /// Whether the request states the scopes; the other grants use those that the user agreed to.
    fn names_scopes(&self) -> bool {
        !matches!(self, Self::AuthorizationCode { .. } | Self::RefreshToken(_))
    }
}

/// A client's secret, if it has one, and how it is sent.
#[derive(Clone, Debug)]
pub enum ClientSecret {
    None,
    Basic(SecretString),
    Post(SecretString),
    /// A JWT signed by the client.
    Assertion(SecretString),
}

impl ClientSecret {
    /// Selects how a secret, if there is one, is sent by this authentication method.
    pub(super) fn sent_as(secret: Option<SecretString>, method: &str) -> Self {
        match (secret, method) {
            (None, _) | (_, "none") => Self::None,
            (Some(secret), "client_secret_post") => Self::Post(secret),
            (Some(secret), _) => Self::Basic(secret),
        }
    }

    pub(super) fn method(&self) -> &'static str {
        match self {
            Self::None | Self::Assertion(_) => "none",
            Self::Basic(_) => "client_secret_basic",
            Self::Post(_) => "client_secret_post",
        }
    }

    pub(super) fn secret(&self) -> Option<&SecretString> {
        match self {
            Self::None | Self::Assertion(_) => None,
            Self::Basic(secret) | Self::Post(secret) => Some(secret),
        }
    }
}

/// A request to a token endpoint: a form, and a header if the client's secret is sent in one.
#[derive(Debug)]
pub struct TokenRequest {
    pub authorization: Option<SecretString>,
    pub body: SecretString,
}

impl TokenRequest {
    pub fn new(
        grant: &Grant,
        client_id: &str,
        secret: &ClientSecret,
        resource: &str,
        scopes: &Scopes,
    ) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        let mut target = ("resource", resource);
        match grant {
            Grant::AuthorizationCode {
                code,
                verifier,
                redirect_uri,
            } => {
                form.append_pair("grant_type", "authorization_code");
                form.append_pair("code", code.expose_secret());
                form.append_pair("code_verifier", verifier.expose());
                form.append_pair("redirect_uri", redirect_uri.as_str());
            }
            Grant::RefreshToken(token) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("refresh_token", token.expose_secret());
            }
            Grant::ClientCredentials => {
                form.append_pair("grant_type", "client_credentials");
            }
            Grant::TokenExchange {
                subject,
                subject_type,
                audience,
            } => {
                let wanted = SubjectTokenType::AccessToken.uri();
                append_exchange(&mut form, subject, *subject_type, wanted);
                if let Some(audience) = audience {
                    target = ("audience", audience);
                }
            }
            Grant::IdJag {
                subject,
                subject_type,
                audience,
            } => {
                append_exchange(&mut form, subject, *subject_type, ID_JAG);
                form.append_pair("audience", audience);
            }
            Grant::JwtBearer(assertion) => {
                form.append_pair("grant_type", JWT_BEARER_GRANT);
                form.append_pair("assertion", assertion.expose_secret());
            }
        }
        if grant.names_scopes() && !scopes.is_empty() {
            form.append_pair("scope", &scopes.to_string());
        }
        form.append_pair(target.0, target.1);
        Self::authenticated(form, client_id, secret)
    }

    /// A request about a token: introspection (RFC 7662) or revocation (RFC 7009).
    pub fn about(token: &str, client_id: &str, secret: &ClientSecret) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", token);
        Self::authenticated(form, client_id, secret)
    }

    fn authenticated(
        mut form: form_urlencoded::Serializer<'_, String>,
        client_id: &str,
        secret: &ClientSecret,
    ) -> Self {
        // Authorization servers that use the official Python SDK require it even with the header.
        form.append_pair("client_id", client_id);
        let mut authorization = None;
        match secret {
            ClientSecret::None => {}
            ClientSecret::Basic(secret) => authorization = Some(basic(client_id, secret)),
            ClientSecret::Post(secret) => {
                form.append_pair("client_secret", secret.expose_secret());
            }
            ClientSecret::Assertion(assertion) => {
                form.append_pair("client_assertion_type", ASSERTION_TYPE);
                form.append_pair("client_assertion", assertion.expose_secret());
            }
        }
        let body = form.finish().into();
        Self {
            authorization,
            body,
        }
    }
}

fn append_exchange(
    form: &mut form_urlencoded::Serializer<'_, String>,
    subject: &SubjectToken,
    subject_type: SubjectTokenType,
    wanted: &str,
) {
    form.append_pair("grant_type", EXCHANGE_GRANT);
    form.append_pair("subject_token", subject.text.expose_secret());
    form.append_pair("subject_token_type", subject_type.uri());
    form.append_pair("requested_token_type", wanted);
}

/// Both parts are form-encoded before they are joined (RFC 6749, section 2.3.1).
fn basic(client_id: &str, secret: &SecretString) -> SecretString {
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(client_id), encode(secret.expose_secret()));
    format!("Basic {}", STANDARD.encode(pair)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::SubjectTokens;
    use crate::id::{Principal, Subject};

    fn body(grant: &Grant, secret: &ClientSecret) -> (Option<String>, String) {
        let scopes = Scopes::parse("a b").unwrap();
        let request = TokenRequest::new(grant, "me", secret, "https://a.example", &scopes);
        let header = request
            .authorization
            .map(|value| value.expose_secret().to_owned());
        (header, request.body.expose_secret().to_owned())
    }

    #[test]
    fn every_grant_names_the_resource() {
        let end = "resource=https%3A%2F%2Fa.example";
        let (header, form) = body(&Grant::RefreshToken("r+1".into()), &ClientSecret::None);
        let expected = format!("grant_type=refresh_token&refresh_token=r%2B1&{end}&client_id=me");
        assert_eq!((header, form), (None, expected));
        let secret = ClientSecret::Basic("s:%".into());
        let (header, form) = body(&Grant::ClientCredentials, &secret);
        assert_eq!(
            form,
            format!("grant_type=client_credentials&scope=a+b&{end}&client_id=me")
        );
        let basic = format!("Basic {}", STANDARD.encode("me:s%3A%25"));
        assert_eq!(header, Some(basic));
        let (_, form) = body(&Grant::ClientCredentials, &ClientSecret::Post("s&".into()));
        assert!(form.ends_with("&client_id=me&client_secret=s%26"), "{form}");
        let verifier = Verifier::random().unwrap();
        let kept = verifier.expose().to_owned();
        let redirect_uri = Url::parse("http://127.0.0.1/cb").unwrap();
        let grant = Grant::AuthorizationCode {
            code: "c".into(),
            verifier,
            redirect_uri,
        };
        let (_, form) = body(&grant, &ClientSecret::None);
        let start = format!("grant_type=authorization_code&code=c&code_verifier={kept}&");
        assert!(form.starts_with(&start) && form.contains(end), "{form}");
    }

    #[test]
    fn an_exchange_names_both_token_types() {
        let subjects = SubjectTokens::default();
        subjects.set_wanted(true);
        let ada = Subject {
            principal: Principal::of("https://as.example", "ada"),
            claims_digest: [0; 32],
        };
        subjects.keep(ada.clone(), "s+1", u64::MAX);
        let exchange = |audience: Option<&str>| Grant::TokenExchange {
            subject: subjects.get(&ada).unwrap(),
            subject_type: SubjectTokenType::Jwt,
            audience: audience.map(str::to_owned),
        };
        let kind = "urn%3Aietf%3Aparams%3Aoauth%3A";
        let start = format!(
            "grant_type={kind}grant-type%3Atoken-exchange&subject_token=s%2B1&\
             subject_token_type={kind}token-type%3Ajwt&\
             requested_token_type={kind}token-type%3Aaccess_token&scope=a+b"
        );
        let secret = ClientSecret::Post("s".into());
        let end = "client_id=me&client_secret=s";
        let (_, form) = body(&exchange(None), &secret);
        let resource = "resource=https%3A%2F%2Fa.example";
        assert_eq!(form, format!("{start}&{resource}&{end}"));
        let (_, form) = body(&exchange(Some("docs")), &secret);
        assert_eq!(form, format!("{start}&audience=docs&{end}"));
        assert!(!format!("{:?}", exchange(None)).contains("s+1"));
        // An identity provider has to know both: who redeems the ID-JAG, and for which server.
        let id_jag = Grant::IdJag {
            subject: subjects.get(&ada).unwrap(),
            subject_type: SubjectTokenType::IdToken,
            audience: "https://as.example".to_owned(),
        };
        let (_, form) = body(&id_jag, &secret);
        let start = start.replace("token-type%3Ajwt", "token-type%3Aid_token");
        let start = start.replace(
            "access_token&scope",
            "id-jag&audience=https%3A%2F%2Fas.example&scope",
        );
        assert_eq!(form, format!("{start}&{resource}&{end}"));
        let (_, form) = body(&Grant::JwtBearer("j+w".into()), &ClientSecret::None);
        let start = format!("grant_type={kind}grant-type%3Ajwt-bearer&assertion=j%2Bw&scope=a+b");
        assert_eq!(form, format!("{start}&{resource}&client_id=me"));
    }
}

//! Tokens that only the holder of a key can use (DPoP, RFC 9449): each request proves that its
//! sender has the key, and no proof is accepted twice.

use std::collections::{HashSet, VecDeque};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use url::Url;

use super::identity::Identity;
use super::jwt::Proof;
use super::key_thumbprint::KeyThumbprint;
use super::{TokenScheme, unauthorized};
use crate::protocol::Failure;

/// How long a proof holds, in seconds.
const HOLDS_FOR: u64 = 60;

/// How far a client's clock can be ahead, in seconds.
const AHEAD_BY: u64 = 10;

/// Maximum number of remembered proofs. Above it, the oldest is forgotten, and proofs that were made
/// before it arrived are no longer accepted, so that none can be repeated.
const PROOFS_MAX: usize = 262_144;

/// A request with a token, as its proof has to describe it.
#[derive(Clone, Copy, Debug)]
pub struct ProvenRequest<'a> {
    pub scheme: TokenScheme,
    pub token: &'a str,
    /// The value of the header `DPoP`.
    pub proof: Option<&'a str>,
    pub method: &'a str,
    pub path: &'a str,
    /// The gateway's endpoint as clients know it, or else its address in the request.
    pub resource: &'a str,
    /// In Unix seconds.
    pub now: u64,
}

/// The proofs that were accepted lately.
#[derive(Debug, Default)]
pub struct SeenProofs(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    known: HashSet<ProofId>,
    /// In the order of their arrival, in Unix seconds.
    arrived: VecDeque<(u64, ProofId)>,
    /// Proofs that were made before this time could have been forgotten.
    since: u64,
}

/// A hash of the key and the `jti`, because different clients can use the same `jti`.
type ProofId = [u8; 16];

impl SeenProofs {
    /// Checks that the sender of a request has the key that its token is bound to.
    ///
    /// # Errors
    ///
    /// Returns the failure to send to the client.
    pub fn check(&self, identity: &Identity, request: &ProvenRequest<'_>) -> Result<(), Failure> {
        let Some(key) = identity.key.as_deref().map(KeyThumbprint::as_str) else {
            return match request.scheme {
                TokenScheme::Bearer => Ok(()),
                TokenScheme::Dpop => Err(unauthorized(
                    "the token is not bound to a key: send it as `Bearer`",
                )),
            };
        };
        if request.scheme == TokenScheme::Bearer {
            let message = "the token is bound to a key: send it as `Authorization: DPoP …`, with a \
                           proof in `DPoP`";
            return Err(unauthorized(message));
        }
        let refused = |why: &str| unauthorized(&format!("the DPoP proof {why}"));
        let proof = request.proof.ok_or_else(|| refused("is missing"))?;
        let proof =
            Proof::read(proof).ok_or_else(|| refused("is malformed or not signed by its key"))?;
        if let Some(why) = mismatch(&proof, key, request) {
            return Err(refused(why));
        }
        match self.0.lock().take(&proof, request.now) {
            true => Ok(()),
            false => Err(refused("was used before, or is too old")),
        }
    }
}

/// Why a proof does not describe this request.
fn mismatch(proof: &Proof, key: &str, request: &ProvenRequest<'_>) -> Option<&'static str> {
    let hash = digest(&SHA256, request.token.as_bytes());
    let (oldest, newest) = (
        request.now.saturating_sub(HOLDS_FOR),
        request.now.saturating_add(AHEAD_BY),
    );
    if proof.key != key {
        return Some("is signed by another key than the token's");
    }
    if proof.ath != URL_SAFE_NO_PAD.encode(hash) {
        return Some("is for another token");
    }
    if proof.htm != request.method || !is_target(&proof.htu, request) {
        return Some("is for another request");
    }
    let is_now = (oldest..=newest).contains(&proof.iat);
    (!is_now).then_some("is too old, or the client's clock is wrong")
}

/// Whether a URL is the one of this request. A proxy can have removed the start of its path, which
/// is then also the start of the resource's path.
fn is_target(htu: &str, request: &ProvenRequest<'_>) -> bool {
    let (Ok(target), Ok(resource)) = (Url::parse(htu), Url::parse(request.resource)) else {
        return false;
    };
    let removed = target.path().strip_suffix(request.path);
    target.origin() == resource.origin()
        && removed.is_some_and(|removed| resource.path().starts_with(removed))
}

impl Seen {
    /// Remembers a proof; returns whether it can be accepted.
    fn take(&mut self, proof: &Proof, now: u64) -> bool {
        // After this time, no proof that arrived before can be young enough.
        let gone = now.saturating_sub(HOLDS_FOR + AHEAD_BY);
        while self.arrived.len() >= PROOFS_MAX
            || self.arrived.front().is_some_and(|(at, _)| *at < gone)
        {
            let Some((at, id)) = self.arrived.pop_front() else {
                break;
            };
            self.known.remove(&id);
            self.since = self.since.max(at.saturating_add(AHEAD_BY) + 1);
        }
        if proof.iat < self.since {
            return false;
        }
        let text = format!("{}.{}", proof.key, proof.jti);
        let mut id = ProofId::default();
        id.copy_from_slice(&digest(&SHA256, text.as_bytes()).as_ref()[..16]);
        let is_new = self.known.insert(id);
        if is_new {
            self.arrived.push_back((now, id));
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::auth::jwt::proof_tests::Holder;

    const RESOURCE: &str = "https://gateway.example/base/mcp";

    fn request<'a>(proof: &'a str, now: u64) -> ProvenRequest<'a> {
        ProvenRequest {
            scheme: TokenScheme::Dpop,
            token: "token",
            proof: Some(proof),
            method: "POST",
            path: "/mcp",
            resource: RESOURCE,
            now,
        }
    }

    fn claims() -> Value {
        json!({
            "jti": "1", "htm": "POST", "htu": RESOURCE, "iat": 1000,
            "ath": "PEaenWxYddN6Q_NT1PiOYfz4EsZu7jRXRlpAsNpBU-A",
        })
    }

    fn bound_to(holder: &Holder) -> Identity {
        let claims = json!({ "cnf": { "jkt": holder.thumbprint() } });
        Identity {
            key: KeyThumbprint::of(&claims).unwrap().map(Arc::new),
            ..Identity::default()
        }
    }

    fn outcome(seen: &SeenProofs, identity: &Identity, request: &ProvenRequest<'_>) -> String {
        let checked = seen.check(identity, request);
        checked.map_or_else(
            |failure| failure.message.to_string(),
            |()| "good".to_owned(),
        )
    }

    #[test]
    fn each_claim_of_a_proof_has_to_describe_the_request() {
        let (holder, other) = (Holder::new(), Holder::new());
        let identity = bound_to(&holder);
        let table = [
            ("jti", json!("2"), "good"),
            ("iat", json!(940), "good"),
            ("iat", json!(1010), "good"),
            ("iat", json!(939), "too old"),
            ("iat", json!(1011), "clock is wrong"),
            ("htm", json!("GET"), "another request"),
            ("htu", json!("https://gateway.example/mcp"), "good"),
            (
                "htu",
                json!("https://gateway.example/other"),
                "another request",
            ),
            (
                "htu",
                json!("https://gateway.example/evil/mcp"),
                "another request",
            ),
            (
                "htu",
                json!("http://gateway.example/base/mcp"),
                "another request",
            ),
            (
                "htu",
                json!("https://evil.example/base/mcp"),
                "another request",
            ),
            ("htu", json!("/mcp"), "another request"),
            ("ath", json!("other"), "another token"),
            ("ath", json!(1), "malformed"),
        ];
        for (name, value, expected) in table {
            let mut claims = claims();
            claims[name] = value;
            let proof = holder.sign(&holder.header(), &claims);
            let seen = SeenProofs::default();
            let outcome = outcome(&seen, &identity, &request(&proof, 1000));
            assert!(outcome.contains(expected), "{claims}: {outcome}");
        }
        let stolen = other.sign(&other.header(), &claims());
        let seen = SeenProofs::default();
        let refused = outcome(&seen, &identity, &request(&stolen, 1000));
        assert!(refused.contains("another key"), "{refused}");
    }

    #[test]
    fn a_bound_token_is_no_bearer_token_and_the_reverse() {
        let holder = Holder::new();
        let proof = holder.sign(&holder.header(), &claims());
        let seen = SeenProofs::default();
        let bearer = ProvenRequest {
            scheme: TokenScheme::Bearer,
            ..request(&proof, 1000)
        };
        let refused = outcome(&seen, &bound_to(&holder), &bearer);
        assert!(
            refused.contains("send it as `Authorization: DPoP"),
            "{refused}"
        );
        let unproven = ProvenRequest {
            proof: None,
            ..request(&proof, 1000)
        };
        let refused = outcome(&seen, &bound_to(&holder), &unproven);
        assert!(refused.contains("is missing"), "{refused}");
        let unbound = Identity::default();
        assert_eq!(outcome(&seen, &unbound, &bearer), "good");
        let refused = outcome(&seen, &unbound, &request(&proof, 1000));
        assert!(refused.contains("not bound"), "{refused}");
        let damaged = KeyThumbprint::of(&json!({ "cnf": { "jkt": 1 } }));
        assert!(damaged.is_err());
    }

    fn proof(jti: usize, iat: u64) -> Proof {
        Proof {
            key: "k".to_owned(),
            jti: jti.to_string(),
            htm: String::new(),
            htu: String::new(),
            iat,
            ath: String::new(),
        }
    }

    #[test]
    fn no_proof_is_accepted_twice_however_many_come() {
        let mut seen = Seen::default();
        assert!(seen.take(&proof(0, 1000), 1000));
        assert!(!seen.take(&proof(0, 1000), 1000));
        // The table is full: the oldest is forgotten, and is still not accepted again.
        for jti in 1..=PROOFS_MAX {
            assert!(seen.take(&proof(jti, 1030), 1030), "{jti}");
        }
        assert_eq!(seen.known.len(), PROOFS_MAX);
        assert_eq!(seen.arrived.len(), PROOFS_MAX);
        assert!(!seen.take(&proof(0, 1000), 1030));
        assert!(!seen.take(&proof(1, 1030), 1030), "it is still remembered");
        assert!(seen.take(&proof(PROOFS_MAX + 1, 1060), 1060));
        // Time frees the table.
        let later = 1060 + HOLDS_FOR + AHEAD_BY + 1;
        assert!(seen.take(&proof(0, later), later));
        assert_eq!(seen.known.len(), 1);
    }
}

//! The callers of requests without a session, by their `_meta`. The requests of one client mostly
//! have the same, so that it is read once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::Requester;
use crate::downstream::Caller;
use crate::id::{QuickCache, quick_cache};
use crate::protocol::{Request, RequestId};

/// Maximum cached callers; more evict the least used.
const CALLERS_MAX: usize = 256;

/// A longer `_meta`, in bytes, is read each time.
const META_KEY_MAX: usize = 2048;

/// The callers that one worker knows.
pub(super) struct CallerCache(RefCell<QuickCache<MetaKey, Arc<Caller>>>);

impl Default for CallerCache {
    fn default() -> Self {
        Self(RefCell::new(quick_cache(CALLERS_MAX)))
    }
}

/// `_meta` of a request as it was written, but for the progress token.
type MetaKey = Vec<u8>;

impl CallerCache {
    /// The caller that had the same `_meta` before, is the same principal with the same scopes, and entered by the
    /// same view.
    pub(super) fn find(&self, key: &[u8], requester: &Requester) -> Option<Arc<Caller>> {
        let cache = self.0.borrow();
        let caller = cache.get(key)?;
        let owner = &requester.owner;
        let is_theirs = caller.principal == owner.principal
            && caller.view == owner.view
            && caller.scopes == requester.scopes;
        is_theirs.then(|| caller.clone())
    }

    pub(super) fn insert(&self, key: &[u8], caller: &Arc<Caller>) {
        self.0.borrow_mut().insert(key.to_vec(), caller.clone());
    }
}

/// `None` without `_meta`, and where it is too long or its progress token is wrong.
pub(super) fn meta_key_of(request: &Request) -> Option<Cow<'_, [u8]>> {
    let frame = request.frame.as_bytes();
    let meta = request.params.meta.clone()?;
    if meta.len() > META_KEY_MAX {
        return None;
    }
    let Some(token) = request.params.progress_token.clone() else {
        return frame.get(meta).map(Cow::Borrowed);
    };
    RequestId::try_new(request.member(Some(&token))?).ok()?;
    // No JSON has a zero byte: the two halves cannot be mistaken for others.
    let (before, after) = (meta.start..token.start, token.end..meta.end);
    let halves = [frame.get(before)?, &[0], frame.get(after)?];
    Some(halves.concat().into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::bridge::meta::RequestMeta;
    use crate::credentials::Scopes;
    use crate::protocol::Envelope;

    fn request(meta: &str) -> Request {
        let frame = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"_meta":{{{meta}"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        );
        match Envelope::parse(Bytes::from(frame)) {
            Ok(Envelope::Request(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_who_says_the_same_is_recognised_whatever_the_progress_token() {
        let cache = CallerCache::default();
        let anybody = Requester::default();
        let first = request(r#""progressToken":1,"#);
        let claim = RequestMeta::read(&first).unwrap();
        let caller = Arc::new(Caller::sessionless(&claim, anybody.clone()).unwrap());
        cache.insert(&meta_key_of(&first).unwrap(), &caller);
        let table = [
            (r#""progressToken":1,"#, true),
            (r#""progressToken":"another","#, true),
            (r#""progressToken": 1,"#, false),
            (r#""progressToken":1.5,"#, false),
            (r#""progressToken":{},"#, false),
            ("", false),
            (
                r#""progressToken":1,"io.modelcontextprotocol/logLevel":"debug","#,
                false,
            ),
        ];
        for (meta, expected) in table {
            let request = request(meta);
            let key = meta_key_of(&request);
            let found = key.and_then(|key| cache.find(&key, &anybody));
            assert_eq!(found.is_some(), expected, "{meta}");
        }
        let scopes = Scopes::of(["admin"]).unwrap();
        let other = Requester {
            scopes: Some(Arc::new(scopes.into())),
            ..anybody
        };
        let key = meta_key_of(&first).unwrap();
        assert!(cache.find(&key, &other).is_none());
    }

    #[test]
    fn the_cache_is_bounded_and_callers_in_use_stay() {
        let cache = CallerCache::default();
        let claim = RequestMeta::read(&request("")).unwrap();
        let caller = Caller::sessionless(&claim, Requester::default());
        let caller = Arc::new(caller.unwrap());
        let anybody = Requester::default();
        cache.insert(b"in use", &caller);
        for number in 0..4 * CALLERS_MAX {
            assert!(
                cache.find(b"in use", &anybody).is_some(),
                "evicted by {number} others"
            );
            cache.insert(number.to_string().as_bytes(), &caller);
            assert!(cache.0.borrow().len() <= CALLERS_MAX);
        }
        let long = format!(r#""a":"{}","#, "x".repeat(META_KEY_MAX));
        assert!(meta_key_of(&request(&long)).is_none());
    }
}

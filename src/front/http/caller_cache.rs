//! Cache of the callers of requests without a session, keyed by `_meta`. A client usually sends the
//! same `_meta` with every request, so it only needs to be parsed once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use crate::auth::Requester;
use crate::downstream::Caller;
use crate::id::{QuickCache, quick_cache};
use crate::protocol::{Request, RequestId};

/// Maximum number of cached callers; further ones evict the least used.
const CALLERS_MAX: usize = 256;

/// Maximum length of a cached `_meta`, in bytes; a longer one is parsed for each request.
const META_KEY_MAX: usize = 2048;

/// The cached callers of one worker.
pub(super) struct CallerCache(RefCell<QuickCache<MetaKey, Arc<Caller>>>);

impl Default for CallerCache {
    fn default() -> Self {
        Self(RefCell::new(quick_cache(CALLERS_MAX)))
    }
}

/// The bytes of a request's `_meta`, without the progress token.
type MetaKey = Vec<u8>;

impl CallerCache {
    /// Returns the cached caller with the same `_meta`, principal, scopes and view.
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

/// Returns the cache key of a request; `None` if it has no `_meta`, if `_meta` is too long, or if
/// the progress token is invalid.
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
    // JSON contains no zero byte, so the separator keeps different pairs of halves distinct.
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

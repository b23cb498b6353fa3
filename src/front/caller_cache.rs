//! Who asks, by the words in which requests without a session say it. Those of one client mostly
//! say the same, so they are read once.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::downstream::Caller;
use crate::id::Principal;
use crate::protocol::{Request, RequestId};

/// Callers that are remembered; with more, all are read anew.
const CALLERS_MAX: usize = 256;

/// Words that are longer, in bytes, are read each time.
const META_KEY_MAX: usize = 2048;

/// The callers that one worker knows.
#[derive(Default)]
pub(super) struct CallerCache(RefCell<BTreeMap<MetaKey, Arc<Caller>>>);

/// `_meta` of a request as it was written, but for the progress token.
type MetaKey = Vec<u8>;

impl CallerCache {
    /// The caller that said the same before.
    pub(super) fn find(&self, words: &[u8], principal: &Principal) -> Option<Arc<Caller>> {
        let cache = self.0.borrow();
        let caller = cache.get(words)?;
        (caller.principal == *principal).then(|| caller.clone())
    }

    pub(super) fn insert(&self, words: &[u8], caller: &Arc<Caller>) {
        let mut cache = self.0.borrow_mut();
        if cache.len() >= CALLERS_MAX {
            cache.clear();
        }
        cache.insert(words.to_vec(), caller.clone());
    }
}

/// `None` where there is nothing to be recognised, or something is wrong with it.
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
    // No JSON has a zero byte: the halves cannot be those of other words.
    let (before, after) = (meta.start..token.start, token.end..meta.end);
    let halves = [frame.get(before)?, &[0], frame.get(after)?];
    Some(halves.concat().into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::bridge::meta::RequestMeta;
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
        let anybody = Principal::Anonymous;
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
            let words = meta_key_of(&request);
            let found = words.and_then(|words| cache.find(&words, &anybody));
            assert_eq!(found.is_some(), expected, "{meta}");
        }
    }

    #[test]
    fn no_more_are_remembered_than_may_be() {
        let cache = CallerCache::default();
        let claim = RequestMeta::read(&request("")).unwrap();
        let caller = Arc::new(Caller::sessionless(&claim, Principal::Anonymous).unwrap());
        for number in 0..=CALLERS_MAX {
            cache.insert(number.to_string().as_bytes(), &caller);
        }
        assert_eq!(cache.0.borrow().len(), 1);
        let long = format!(r#""a":"{}","#, "x".repeat(META_KEY_MAX));
        assert!(meta_key_of(&request(&long)).is_none());
    }
}

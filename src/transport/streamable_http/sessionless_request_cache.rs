//! Cache of requests of the sessionless revision, because many calls have the same headers.

use std::cell::RefCell;

use awc::FrozenClientRequest;
use awc::error::FreezeRequestError;

use super::requests::sessionless;
use crate::bridge::headers::StandardHeaders;
use crate::id::{QuickCache, quick_cache};
use crate::transport::http::request_factory::RequestFactory;

/// Maximum cached requests; the least recently used are evicted.
const KEPT_MAX: usize = 256;

/// Longest name whose request is cached, in bytes.
const NAME_MAX: usize = 256;

pub(super) struct SessionlessRequestCache(
    RefCell<QuickCache<StandardHeaders, FrozenClientRequest>>,
);

impl Default for SessionlessRequestCache {
    fn default() -> Self {
        Self(RefCell::new(quick_cache(KEPT_MAX)))
    }
}

impl SessionlessRequestCache {
    /// # Errors
    ///
    /// Returns [`FreezeRequestError`] if the HTTP client rejects the request.
    pub(super) fn of(
        &self,
        headers: &StandardHeaders,
        server: &RequestFactory,
    ) -> Result<FrozenClientRequest, FreezeRequestError> {
        if let Some(request) = self.0.borrow().get(headers) {
            return Ok(request.clone());
        }
        let request = sessionless(server, headers)?;
        let name = headers.name.as_ref();
        if name.is_none_or(|name| name.len() <= NAME_MAX) {
            let mut kept = self.0.borrow_mut();
            kept.insert(detached_copy(headers), request.clone());
        }
        Ok(request)
    }
}

/// Copies the headers, so that the cache does not keep the message alive from which the name was
/// sliced.
fn detached_copy(headers: &StandardHeaders) -> StandardHeaders {
    StandardHeaders {
        name: headers.name.as_ref().map(|name| name.to_string().into()),
        ..headers.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::headers::{Headers, NAME};
    use crate::protocol::Method;
    use crate::transport::http::request_factory::tests::server;

    #[test]
    fn each_name_has_its_own_request_however_many_there_are() {
        let server = server("http://localhost/mcp", &[]).ok().unwrap();
        let prepared = SessionlessRequestCache::default();
        let names = (0..=KEPT_MAX).map(|number| number.to_string());
        let long = "n".repeat(NAME_MAX + 1);
        let names: Vec<_> = names.chain([long]).collect();
        for name in names.iter().chain(&names) {
            let headers =
                Headers::new("2026-07-28", &Method::ToolsCall, Some(name.as_str().into()));
            let request = prepared.of(&headers.standard, &server).unwrap();
            assert_eq!(request.headers().get(NAME).unwrap(), name.as_str());
            assert!(prepared.0.borrow().len() <= KEPT_MAX);
        }
        let kept = prepared.0.borrow();
        let mut kept = kept.iter().filter_map(|(kept, _)| kept.name.as_ref());
        assert!(kept.all(|name| name.len() <= NAME_MAX));
    }
}

//! Which era a message belongs to.

use memchr::memmem;

use super::meta::VERSION;
use crate::protocol::Request;

/// Whether a request says of itself which revision it is in, as sessionless ones do.
pub fn claims_modern(request: &Request) -> bool {
    let meta = request.member(request.params.meta.as_ref());
    meta.is_some_and(|meta| memmem::find(&meta, VERSION.as_bytes()).is_some())
}

//! Who a request comes from, and what that principal may do: the places of authentication and
//! policy. Both allow everything so far, which is why the gateway listens beyond loopback only when
//! the configuration allows that.

use crate::id::{Principal, ServerName};
use crate::protocol::Failure;

/// Asked for every request: a session is no authentication (S-SESS-09).
pub trait Authenticate: Send + Sync {
    /// `authorization` is the value of the header of that name.
    ///
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    fn authenticate(&self, authorization: Option<&str>) -> Result<Principal, Failure>;
}

/// Decides what a principal may call.
pub trait Policy: Send + Sync {
    /// # Errors
    ///
    /// Returns the failure that the client is to read.
    fn may_call(
        &self,
        principal: &Principal,
        server: &ServerName,
        item: &str,
    ) -> Result<(), Failure>;
}

/// Takes everybody as [`Principal::Anonymous`].
pub struct AllowAnonymous;

impl Authenticate for AllowAnonymous {
    fn authenticate(&self, _: Option<&str>) -> Result<Principal, Failure> {
        Ok(Principal::Anonymous)
    }
}

/// Allows every call.
pub struct AllowAll;

impl Policy for AllowAll {
    fn may_call(&self, _: &Principal, _: &ServerName, _: &str) -> Result<(), Failure> {
        Ok(())
    }
}

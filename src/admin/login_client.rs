//! Logins at servers, for the command line.

use serde_json::{Value, json};

use super::client::OperatorClient;
use super::client_error::ClientError;
use super::messages::{Forgotten, LoginRedirect, SignedIn};
use super::operator::LoginPage;

impl OperatorClient {
    /// Selects a login at a server: the gateway's own, or a user's.
    pub fn login<'a>(&'a self, server: &'a str, principal: Option<&'a str>) -> LoginClient<'a> {
        LoginClient {
            client: self,
            server,
            principal: principal.map(|name| ("principal", name)),
        }
    }
}

/// Client for one login.
#[derive(Clone, Copy)]
pub struct LoginClient<'a> {
    client: &'a OperatorClient,
    server: &'a str,
    /// The query parameter that names the user.
    principal: Option<(&'a str, &'a str)>,
}

impl LoginClient<'_> {
    /// Starts a login, and returns the page to open.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn begin(self) -> Result<LoginPage, ClientError> {
        let body = json!(LoginRedirect::default());
        let path = ["api", "servers", self.server, "login"];
        let query = self.principal.as_slice();
        self.client.post(&path, query, Some(body)).await
    }

    /// The time of the last login, in seconds since 1970.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn signed_in_at(self) -> Result<Option<u64>, ClientError> {
        let path = ["api", "servers", self.server, "login"];
        let login: SignedIn = self.client.get(&path, self.principal.as_slice()).await?;
        Ok(login.signed_in_at)
    }

    /// Renews the token.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn refresh(self) -> Result<(), ClientError> {
        let path = ["oauth", "refresh", self.server];
        let query = self.principal.as_slice();
        let _: Value = self.client.post(&path, query, None).await?;
        Ok(())
    }

    /// Forgets the token and revokes it. Returns whether one existed.
    ///
    /// # Errors
    ///
    /// As [`OperatorClient::status`].
    pub async fn forget(self) -> Result<bool, ClientError> {
        let path = ["api", "servers", self.server, "logout"];
        let query = self.principal.as_slice();
        let done: Forgotten = self.client.post(&path, query, None).await?;
        Ok(done.forgotten)
    }
}

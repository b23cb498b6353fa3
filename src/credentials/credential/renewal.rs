//! Retries and counts token renewals of any grant.

use std::time::Duration;

use tokio::time::sleep;

use super::{Credential, HeldSignIn, SignInError};
use crate::credentials::GrantKind;
use crate::telemetry::Counter;

/// Delays between attempts to renew a token while the authorization server is unavailable.
const RETRY_AFTER: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

impl Credential {
    /// Renews, retrying for some seconds while the authorization server is unavailable.
    pub(super) async fn renew_with_retries(
        &self,
        held: &mut HeldSignIn,
    ) -> Result<(), SignInError> {
        for pause in RETRY_AFTER {
            match self.renew_once(held).await {
                Err(error) if error.is_passing() => {
                    log::info!(server = self.name.as_str(), error:%; "token renewal failed; retrying");
                    sleep(pause).await;
                }
                done => return done,
            }
        }
        self.renew_once(held).await
    }

    pub(super) async fn renew_once(&self, held: &mut HeldSignIn) -> Result<(), SignInError> {
        let renewed = match self.settings.grant {
            GrantKind::AuthorizationCode => self.refresh_once(held).await,
            GrantKind::ClientCredentials => self.obtain(held).await,
            GrantKind::TokenExchange => self.exchange_token(held).await,
        };
        self.counters.add(match &renewed {
            Ok(()) => Counter::TokensRenewed,
            // There is nothing to renew.
            Err(SignInError::NotSignedIn | SignInError::NoSubject) => return renewed,
            Err(error) if error.is_passing() => Counter::RenewalsFailed,
            Err(_) => Counter::RenewalsRefused,
        });
        renewed
    }
}

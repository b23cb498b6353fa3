//! The public view of a credential.

use super::{Credential, CredentialView, Granted, HeldSignIn, NotRenewed, SignInError};
use crate::credentials::GrantKind;
use crate::credentials::stored_sign_in::unix_now;

impl Credential {
    /// The state shown to operators.
    pub async fn view(&self) -> CredentialView {
        let held = self.held().await;
        let kept = held.kept.as_ref().filter(|kept| kept.access.is_some());
        CredentialView {
            server: self.name.to_string(),
            principal: self.principal().map(|it| it.name().to_owned()),
            state: match (kept, self.refused()) {
                (Some(_), Some(NotRenewed::MoreScopes(_))) => "wants more permissions",
                (Some(_), _) => "signed in",
                (None, Some(NotRenewed::LoginNeeded(_))) if self.user.is_none() => "needs login",
                (None, _) if self.user.is_some() => self.need().unwrap_or("none"),
                (None, _) => "none",
            }
            .into(),
            issuer: kept.map(|kept| kept.issuer.clone()),
            scope: kept.map(|kept| kept.scopes.clone()),
            expires_at: kept.and_then(|kept| kept.expires_at),
            signed_in_at: kept.and_then(|kept| kept.signed_in_at),
            is_renewable: kept.is_some_and(|kept| kept.refresh.is_some())
                || self.settings.grant != GrantKind::AuthorizationCode,
        }
    }

    pub(super) fn granted(&self, held: &HeldSignIn) -> Result<Granted, SignInError> {
        let kept = held.kept.as_ref().ok_or(SignInError::NotSignedIn)?;
        Ok(Granted {
            server: self.name.clone(),
            token_type: "Bearer",
            expires_in: kept.expires_at.map(|at| at.saturating_sub(unix_now())),
            expires_at: kept.expires_at,
            scope: kept.scopes.clone(),
            principal: self.principal().cloned(),
            is_another: false,
        })
    }
}

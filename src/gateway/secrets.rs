//! The secrets of a configuration, for the registry of all that exist.

use secrecy::ExposeSecret as _;

use super::configured::ready_servers;
use crate::config::Config;
use crate::masking::{LiveSecrets, SecretOrigin};

/// Adds the secrets of a configuration: of its servers, its sources and its issuer of tokens. Those of
/// the one before stay, since texts that have them may still come.
pub fn add_secrets_of(config: &Config, secrets: &LiveSecrets) {
    let servers = ready_servers(config).into_iter();
    let servers = servers.flat_map(|server| server.transport.secrets());
    let sources = config
        .sources
        .iter()
        .filter_map(|source| source.key.as_ref());
    let tokens = config
        .front
        .auth
        .tokens
        .introspection
        .client_secret
        .as_ref();
    let texts = sources.map(|key| key.expose_secret().to_owned());
    let texts = texts.chain(tokens.map(|secret| secret.expose().to_owned()));
    secrets.add_all(SecretOrigin::Configuration, servers.chain(texts));
}

//! Registers the configuration's secrets for masking.

use secrecy::ExposeSecret as _;

use super::configured::ready_servers;
use crate::config::Config;
use crate::masking::{LiveSecrets, SecretOrigin};

/// Adds the secrets of a configuration: of its servers, its sources, its token issuer and its
/// cluster. Secrets
/// of the previous configuration stay registered, since texts that contain them may still arrive.
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
    let texts = texts.chain(config.cluster.secrets());
    secrets.add_all(SecretOrigin::Configuration, servers.chain(texts));
}

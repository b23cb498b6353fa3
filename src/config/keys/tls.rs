//! `[tls]`.

use std::path::PathBuf;

use crate::config::checks::{FILE, file};
use crate::config::declaration::keys;
use crate::config::declaration::kinds::{OptionalKind, count, duration, optional};
use crate::config::declaration::texts::{TextKind, text};
use crate::config::section::Section;
use crate::config::units::{MILLI, MINUTE};
use crate::front::TlsSettings;

pub(super) fn pem(example: &'static str) -> OptionalKind<TextKind<PathBuf>> {
    optional(text(FILE, file), example)
}

keys! {
    /// HTTPS without a proxy (docs/deploy.md): with a certificate, the gateway serves no plain
    /// HTTP.
    TlsTable for TlsSettings, check {
        /// Certificate chain in PEM: certbot's `fullchain.pem`.
        certificate: pem("\"/etc/letsencrypt/live/mcp.example.com/fullchain.pem\""), NeedsRestart;
        /// Private key in PEM, without a passphrase: certbot's `privkey.pem`.
        key: pem("\"/etc/letsencrypt/live/mcp.example.com/privkey.pem\""), NeedsRestart;
        /// CAs in PEM. Every client needs a certificate from one of them, on every path (mTLS).
        client_ca: pem("\"/etc/mcpvisor/clients.pem\""), NeedsRestart;
        /// Time for a TLS handshake.
        handshake_timeout: duration(100 * MILLI..=10 * MINUTE), NeedsRestart;
        /// Handshakes in progress per worker; one more ends the oldest.
        handshakes_max: count(1..=1_000_000), NeedsRestart;
    }
}

/// A key needs a certificate, and a certificate its key. Relative paths start at the directory of
/// the file.
fn check(settings: &mut TlsSettings, section: &Section<'_>) {
    let needs = |key: &str, other: &str| {
        let (key, other) = (section.path(key), section.path(other));
        section.refuse_table(format!("`{key}` needs `{other}`"), None);
    };
    if settings.certificate.is_some() && settings.key.is_none() && !section.has("key") {
        needs("certificate", "key");
    }
    for key in ["key", "client_ca"] {
        if section.has(key) && !section.has("certificate") {
            needs(key, "certificate");
        }
    }
    let directory = section.reader.interpolation.directory;
    let files = [
        &mut settings.certificate,
        &mut settings.key,
        &mut settings.client_ca,
    ];
    for file in files.into_iter().flatten() {
        *file = directory.join(&file);
    }
}

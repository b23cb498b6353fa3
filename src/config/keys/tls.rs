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
    /// HTTPS without a proxy: with a certificate, the gateway speaks TLS 1.2 and 1.3, and plain HTTP
    /// no more. The files are read again when they change, and on SIGHUP; open connections stay.
    TlsTable for TlsSettings, check {
        /// The certificate in PEM, followed by those that lead to its authority: `fullchain.pem` of
        /// certbot.
        certificate: pem("\"/etc/letsencrypt/live/mcp.example.com/fullchain.pem\""), NeedsRestart;
        /// Its private key in PEM, without a passphrase: `privkey.pem` of certbot.
        key: pem("\"/etc/letsencrypt/live/mcp.example.com/privkey.pem\""), NeedsRestart;
        /// Authorities in PEM: a client must have a certificate of one of them (mTLS), on every path.
        /// Whoever has one may use the gateway as far as [auth] does not ask for more.
        client_ca: pem("\"/etc/mcpvisor/clients.pem\""), NeedsRestart;
        /// Time for a handshake.
        handshake_timeout: duration(100 * MILLI..=10 * MINUTE), NeedsRestart;
        /// Handshakes under way at each worker; one more ends the one that takes longest.
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

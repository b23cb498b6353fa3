//! Streams end when a key expires, since whoever opened them may not read on.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::auth::AuthSettings;
use crate::telemetry::unix_millis;

/// How often the clock is looked at: it may be set while a key is waited for.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Calls `end` whenever one of the keys expires, on the calling arbiter.
pub(super) fn watch_expiry(auth: AuthSettings, end: impl Fn() + 'static) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(actix_rt::spawn(async move {
        let mut looked_at = unix_millis();
        while let Some(next) = auth.next_expiry(looked_at) {
            let left = Duration::from_millis(next.saturating_sub(unix_millis()));
            sleep(left.min(LOOK_EVERY)).await;
            if unix_millis() >= next {
                looked_at = next;
                end();
            }
        }
    }))
}

//! The style and the script of the pages. Their names have a hash, so that browsers keep them.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use ring::digest::{SHA256, digest};

use super::response;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/ui.js");

/// The paths of both.
pub(super) struct Assets {
    pub(super) style: String,
    pub(super) script: String,
    /// Says whether an open page is of this release.
    pub(super) release: String,
}

pub(super) static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: format!("/ui/assets/style-{}.css", hash(STYLE)),
    script: format!("/ui/assets/ui-{}.js", hash(SCRIPT)),
    release: format!(
        "{}-{}{}",
        env!("CARGO_PKG_VERSION"),
        hash(STYLE),
        hash(SCRIPT)
    ),
});

fn hash(content: &str) -> String {
    let digest = digest(&SHA256, content.as_bytes());
    let bytes = digest.as_ref().iter().take(6);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// The file of a path, if there is one.
pub(super) fn file(path: &str) -> Option<HttpResponse> {
    match path {
        style if style == ASSETS.style => Some(response::file("text/css; charset=utf-8", STYLE)),
        script if script == ASSETS.script => {
            Some(response::file("text/javascript; charset=utf-8", SCRIPT))
        }
        _ => None,
    }
}

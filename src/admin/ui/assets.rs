//! The style sheet and script of the pages. Their file names contain a hash, so that browsers can
//! cache them indefinitely.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use ring::digest::{SHA256, digest};

use super::response;

const STYLE: &str = include_str!("assets/style.css");
const SCRIPT: &str = include_str!("assets/ui.js");

/// Paths of both assets.
pub(super) struct Assets {
    pub(super) style: String,
    pub(super) script: String,
    /// Identifies the release that rendered an open page.
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

/// The asset at a path, if one exists.
pub(super) fn file(path: &str) -> Option<HttpResponse> {
    match path {
        style if style == ASSETS.style => Some(response::file("text/css; charset=utf-8", STYLE)),
        script if script == ASSETS.script => {
            Some(response::file("text/javascript; charset=utf-8", SCRIPT))
        }
        _ => None,
    }
}

//! The files of the pages: style sheet, scripts and logo. Their names contain a hash, so that browsers
//! can cache them indefinitely.

use std::sync::LazyLock;

use actix_web::HttpResponse;
use maud::PreEscaped;
use ring::digest::{SHA256, digest};

use super::response;

/// The rules of the plot library come first, so that ours win.
const STYLE: &str = concat!(
    include_str!("assets/uplot.css"),
    include_str!("assets/style.css")
);
const SCRIPT: &str = include_str!("assets/ui.js");
const PLOTS: &str = include_str!("assets/uplot.js");
const LOGO: &str = include_str!("assets/icon.svg");
const LICENSES: &str = include_str!("assets/licenses.txt");

/// The symbols that `parts::icon` refers to; every page contains them.
pub(super) const ICONS: PreEscaped<&str> = PreEscaped(include_str!("assets/icons.svg"));

/// The logo, as part of a page.
pub(super) const MARK: PreEscaped<&str> = PreEscaped(LOGO);

/// Paths of the files.
pub(super) struct Assets {
    pub(super) style: String,
    pub(super) script: String,
    /// The plot library, which only pages with plots load.
    pub(super) plots: String,
    pub(super) logo: String,
    /// Identifies the release that rendered an open page.
    pub(super) release: String,
}

/// The licences of the library and of the icons.
pub(super) const LICENSES_PATH: &str = "/ui/assets/licenses.txt";

pub(super) static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: format!("/ui/assets/style-{}.css", hash(STYLE)),
    script: format!("/ui/assets/ui-{}.js", hash(SCRIPT)),
    plots: format!("/ui/assets/uplot-{}.js", hash(PLOTS)),
    logo: format!("/ui/assets/icon-{}.svg", hash(LOGO)),
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
    let script = "text/javascript; charset=utf-8";
    let files = [
        (&*ASSETS.style, "text/css; charset=utf-8", STYLE),
        (&ASSETS.script, script, SCRIPT),
        (&ASSETS.plots, script, PLOTS),
        (&ASSETS.logo, "image/svg+xml", LOGO),
        (LICENSES_PATH, "text/plain; charset=utf-8", LICENSES),
    ];
    let found = files.into_iter().find(|(known, ..)| *known == path);
    found.map(|(_, content_type, content)| response::file(content_type, content))
}

//! Effective limits of a server, shown on its page.

use maud::{Markup, html};

use crate::admin::status::LimitView;
use crate::admin::ui::page::View;
use crate::admin::ui::{parts, text};

/// The limits, or nothing for a server that cannot run.
pub(super) fn limits(view: &View<'_>, name: &str) -> Markup {
    let Ok(limits) = view.operator.limits(name) else {
        return Markup::default();
    };
    let own = limits.iter().filter(|it| it.value != it.default).count();
    html! {
        h2 { "Limits in force" }
        details .card.padded {
            summary {
                @match own {
                    0 => "Defaults",
                    own => { (text::count(own as u64)) " of " (limits.len()) " changed from the defaults" }
                }
            }
            @for group in limits.chunk_by(|one, other| one.about == other.about) { (about(group)) }
        }
    }
}

fn about(limits: &[LimitView]) -> Markup {
    html! {
        @if let Some(first) = limits.first() { h3 { (first.about) } }
        dl .facts {
            @for limit in limits {
                dt .mono { (limit.key) }
                dd {
                    (text::line(&limit.value))
                    @if limit.value != limit.default {
                        " " (parts::badge("quiet", &format!("default: {}", limit.default)))
                    }
                }
            }
        }
    }
}

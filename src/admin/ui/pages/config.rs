//! `/ui/config`: the configuration that is in force.

use maud::{Markup, html};
use serde_json::Value;

use crate::admin::config_order::ConfigOrder;
use crate::admin::ui::page::{Page, Section, View};
use crate::admin::ui::{parts, text};

pub(super) async fn page(view: &View<'_>) -> Page {
    let status = view.status();
    Page::new(Section::Config, "Configuration")
        .fixed(parts::heading("Configuration", None))
        .live("config", state(&status["config"]))
        .once(view, content(view))
        .await
}

fn state(config: &Value) -> Markup {
    let texts = |name: &str| {
        let texts = config[name].as_array().into_iter().flatten();
        texts
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (warnings, keys) = (texts("warnings"), texts("needs_restart"));
    html! {
        @match config["refused"].as_str() {
            Some(refused) => {
                div .notice.bad {
                    p .strong { "The file has an error: what was in force before still is" }
                    (text::block(refused))
                }
            }
            None => { p .notice.done { "The file is in force." } }
        }
        @if !keys.is_empty() {
            p .notice.warn { "In force after the next start: " @for key in &keys { (text::code(key)) " " } }
        }
        @for warning in &warnings { p .notice.warn { (text::sentence(warning)) } }
        div .card {
            dl .facts {
                dt { "File" }
                dd { (text::code(config["path"].as_str().unwrap_or("built in"))) }
            }
        }
        @if config["path"].is_null() {
            p .hint.after {
                "Write it to a file to change it: " code { "mcpvisor config default > config.toml" }
            }
        }
    }
}

/// The file, with what may be secret masked.
async fn content(view: &View<'_>) -> Markup {
    let orders = view.operator.config_orders();
    match orders.ask(ConfigOrder::Text, None).await {
        Err(why) => html! { p .hint.after { (text::sentence(&why.message)) } },
        Ok(answer) => html! {
            h2 { "Content" }
            p .hint { "Secrets are masked. Servers are changed on their pages; the rest in the file, which is watched." }
            (text::block(answer.body["text"].as_str().unwrap_or_default()))
        },
    }
}

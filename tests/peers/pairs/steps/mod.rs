//! The steps of every pairing, one for each feature.

mod asking;
mod basics;
mod changes;
mod projections;

use futures_util::future::LocalBoxFuture;
use serde_json::Value;

use crate::pairs::client::Step;
use crate::pairs::pair::Cell;

/// A step by its name in the table.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) run: for<'a> fn(&'a Cell) -> LocalBoxFuture<'a, Step>,
}

macro_rules! steps {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$(Named {
            name: stringify!($name),
            run: |cell| Box::pin($module::$name(cell)),
        }),*]
    };
}

/// In the order in which they are done; `open` is first, and `list_changed` last since it changes
/// the server.
pub(crate) const STEPS: &[Named] = steps![
    basics::open,
    basics::ping,
    basics::tools,
    basics::prompts,
    basics::resources,
    basics::templates,
    basics::call,
    basics::failing_tool,
    basics::unknown_tool,
    basics::unknown_method,
    basics::progress,
    basics::cancel,
    basics::prompt,
    basics::read,
    basics::missing,
    basics::complete,
    basics::complete_with_context,
    changes::log,
    changes::updates,
    asking::elicit,
    asking::elicit_twice,
    asking::decline,
    asking::open_page,
    asking::page_first,
    asking::sample,
    asking::roots,
    asking::roots_changed,
    projections::embedded,
    projections::audio,
    projections::link,
    projections::structured,
    projections::array,
    changes::list_changed,
];

/// `Err` with what was found instead.
fn must(holds: bool, what: &str, found: &Value) -> Step {
    match holds {
        true => Ok(()),
        false => Err(format!(
            "{what}: {}",
            crate::pairs::schema::cut(&found.to_string())
        )),
    }
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

fn holds_name(list: &Value, name: &str) -> bool {
    let items = list.as_array().into_iter().flatten();
    items.into_iter().any(|item| item["name"] == name)
}

//! Renders the tools that clients see as a table, and one tool with its arguments.

use serde_json::{Map, Value};

use super::schema_view::SchemaView;
use super::screen::{Screen, padded, width};
use crate::telemetry::{Style, counted, one_line, printable};

const HEAD: [&str; 4] = ["NAME", "SERVER", "TOKENS", "DESCRIPTION"];

/// Space between two columns.
const GAP: &str = "  ";

/// Maximum depth of nested arguments that are shown.
const DEPTH_SHOWN: usize = 4;

/// The tools as a table, with their total cost. `tools` are list entries extended with `server` and
/// `tokens`.
pub fn tool_table(tools: &[ListedTool], screen: &Screen) -> String {
    let rows: Vec<[String; 4]> = tools.iter().map(ListedTool::row).collect();
    let widths: [usize; 3] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].as_str());
        width(cells.chain([HEAD[column]]))
    });
    let line = |cells: [&str; 4]| {
        let mut line = String::new();
        let mut used = 0;
        for (cell, width) in cells.iter().zip(widths) {
            line.push_str(&padded(cell, width));
            line.push_str(GAP);
            used += width + GAP.len();
        }
        line.push_str(&screen.cut(cells[3], used));
        format!("{}\n", line.trim_end())
    };
    let mut text = line(HEAD);
    for row in &rows {
        text.push_str(&line(row.each_ref().map(String::as_str)));
    }
    let tokens: u64 = tools.iter().map(|tool| tool.tokens).sum();
    let count = counted(tools.len() as u64, "tool", "tools");
    text.push_str(&format!("{count}, about {tokens} tokens\n"));
    text
}

/// A tool as listed to clients, and its server.
#[derive(Clone, Debug)]
pub struct ListedTool {
    /// The list entry.
    pub entry: Value,
    /// `None` for the gateway's own tools.
    pub server: Option<String>,
    /// Approximate token cost of the entry.
    pub tokens: u64,
}

impl ListedTool {
    pub fn name(&self) -> &str {
        self.text("name").unwrap_or_default()
    }

    /// Schema of the tool's arguments.
    pub fn input_schema(&self) -> SchemaView<'_> {
        let schema = self.entry.get("inputSchema");
        SchemaView::new(schema.unwrap_or(&Value::Null))
    }

    fn text(&self, member: &str) -> Option<&str> {
        self.entry.get(member)?.as_str()
    }

    fn row(&self) -> [String; 4] {
        let description = self.text("description").unwrap_or_default();
        let first = description.trim_start().lines().next().unwrap_or_default();
        [
            one_line(self.name()),
            one_line(self.server.as_deref().unwrap_or("-")),
            self.tokens.to_string(),
            one_line(first),
        ]
    }
}

/// A tool with all details that a person needs before calling it.
pub fn tool_text(tool: &ListedTool, screen: &Screen) -> String {
    let mut text = screen.painted(Style::Bold, &one_line(tool.name()));
    let annotations = tool.entry.get("annotations");
    let annotated = annotations.and_then(|annotations| annotations.get("title")?.as_str());
    if let Some(title) = tool.text("title").or(annotated) {
        text.push_str(&format!("  {}", one_line(title)));
    }
    let server = one_line(tool.server.as_deref().unwrap_or("mcpvisor itself"));
    text.push_str(&format!(
        "\nserver {server} · about {} tokens\n",
        tool.tokens
    ));
    if let Some(effects) = annotations.and_then(effects) {
        text.push_str(&format!("the server says: {effects}\n"));
    }
    if let Some(description) = tool.text("description") {
        text.push_str(&format!("\n{}\n", printable(description.trim())));
    }
    text.push_str(&arguments("Arguments", tool.input_schema(), screen));
    let result = tool.entry.get("outputSchema");
    let result = SchemaView::new(result.unwrap_or(&Value::Null));
    text.push_str(&arguments("Result", result, screen));
    text
}

/// The effects that a tool declares in its annotations.
fn effects(annotations: &Value) -> Option<String> {
    let words = [
        ("readOnlyHint", "changes nothing", "changes something"),
        ("destructiveHint", "may be destructive", "destroys nothing"),
        ("idempotentHint", "safe to repeat", "not safe to repeat"),
        (
            "openWorldHint",
            "reaches outside",
            "stays within a closed world",
        ),
    ];
    let stated = words.iter().filter_map(|(hint, yes, no)| {
        let stated = annotations.get(hint)?.as_bool()?;
        Some(if stated { *yes } else { *no })
    });
    let stated: Vec<&str> = stated.collect();
    (!stated.is_empty()).then(|| stated.join(", "))
}

struct Argument {
    name: String,
    kind: String,
    is_required: bool,
    description: String,
}

fn arguments(head: &str, schema: SchemaView<'_>, screen: &Screen) -> String {
    if !schema.is_object() {
        return String::new();
    }
    let mut found = Vec::new();
    collect(schema, "", DEPTH_SHOWN, &mut found);
    if found.is_empty() {
        return format!("\n{head}: none\n");
    }
    let names = width(found.iter().map(|argument| argument.name.as_str())) + 1;
    let kinds = width(found.iter().map(|argument| argument.kind.as_str()));
    let any_required = found.iter().any(|argument| argument.is_required);
    let mut text = format!("\n{}\n", screen.painted(Style::Bold, head));
    for argument in found {
        // A star marks required arguments.
        let mark = if argument.is_required { "*" } else { "" };
        let name = padded(&format!("{}{mark}", argument.name), names);
        let kind = padded(&argument.kind, kinds);
        let used = 2 + names + kinds + 2 * GAP.len();
        let description = screen.cut(&argument.description, used);
        let line = format!("  {name}{GAP}{kind}{GAP}{description}");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if any_required {
        text.push_str("  * required\n");
    }
    text
}

/// Collects an object's properties, each followed by the properties of nested objects.
fn collect(schema: SchemaView<'_>, above: &str, depth: usize, found: &mut Vec<Argument>) {
    let names = schema.properties().into_iter().flat_map(Map::keys);
    for (name, property) in names.filter_map(|name| Some((name, schema.property(name)?))) {
        let is_required = schema.is_required(name);
        let name = format!("{above}{}", one_line(name));
        found.push(Argument {
            kind: kind(property),
            is_required,
            description: description(property),
            name: name.clone(),
        });
        if depth > 1 {
            collect(property, &format!("{name}."), depth - 1, found);
            collect(property.items(), &format!("{name}[]."), depth - 1, found);
        }
    }
}

/// A value's type as text.
fn kind(schema: SchemaView<'_>) -> String {
    if let Some(value) = schema.constant() {
        return one_line(&value.to_string());
    }
    if let Some(values) = schema.choices() {
        let values = values.iter().map(|value| one_line(&value.to_string()));
        return values.collect::<Vec<_>>().join(" | ");
    }
    if let Some(schemas) = schema.alternatives() {
        let kinds = schemas.into_iter().map(kind_below);
        return kinds.collect::<Vec<_>>().join(" | ");
    }
    match schema.types().as_slice() {
        [name] if *name == "array" => format!("array of {}", kind_below(schema.items())),
        [] if schema.properties().is_some() => "object".to_owned(),
        [] => "any".to_owned(),
        names => names
            .iter()
            .map(|name| one_line(name))
            .collect::<Vec<_>>()
            .join(" | "),
    }
}

/// A nested type, by name only.
fn kind_below(schema: SchemaView<'_>) -> String {
    let has_values = schema.choices().is_some_and(|values| !values.is_empty());
    match schema.types().as_slice() {
        _ if has_values || schema.constant().is_some() => kind(schema),
        [name] => one_line(name),
        _ => "any".to_owned(),
    }
}

/// The description, with the default and the constraints of the value.
fn description(schema: SchemaView<'_>) -> String {
    let mut parts = Vec::new();
    if let Some(text) = schema.text("description") {
        parts.push(one_line(
            &text.split_whitespace().collect::<Vec<_>>().join(" "),
        ));
    }
    for (key, words) in [
        ("format", "format"),
        ("default", "default"),
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("maxLength", "characters at most"),
    ] {
        if let Some(value) = schema.get(key) {
            parts.push(format!("{words} {}", one_line(&value.to_string())));
        }
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(entry: Value) -> ListedTool {
        ListedTool {
            entry,
            server: Some("one".to_owned()),
            tokens: 12,
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_tool_and_their_sum() {
        let first = tool(json!({"name": "one__echo", "description": "Echoes.\nAnd more."}));
        let mut own = tool(json!({"name": "find_tools"}));
        own.server = None;
        let expected = "\
NAME        SERVER  TOKENS  DESCRIPTION
one__echo   one     12      Echoes.
find_tools  -       12
2 tools, about 24 tokens
";
        assert_eq!(tool_table(&[first, own], &Screen::default()), expected);
    }

    #[test]
    fn a_tool_is_shown_with_its_arguments() {
        let entry = json!({
            "name": "one__book", "title": "Book", "description": "Books\u{1b}[2J a seat.",
            "annotations": {"readOnlyHint": false, "openWorldHint": true},
            "inputSchema": {
                "type": "object", "required": ["seat"],
                "$defs": {"seat": {"type": "object", "properties": {"row": {"type": "integer", "minimum": 1}}}},
                "properties": {
                    "seat": {"$ref": "#/$defs/seat"},
                    "tags": {"type": "array", "items": {"type": "string"}, "description": "Any\nwords"},
                    "class": {"enum": ["a", "b"], "default": "b"},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "loop": {"$ref": "#/properties/loop"},
                    "free": {},
                },
            },
        });
        let expected = "\
one__book  Book
server one · about 12 tokens
the server says: changes something, reaches outside

Books\\u{1b}[2J a seat.

Arguments
  seat*      object
  seat.row   integer          at least 1
  tags       array of string  Any words
  class      \"a\" | \"b\"        default \"b\"
  note       string | null
  loop       any
  free       any
  * required
";
        assert_eq!(tool_text(&tool(entry), &Screen::default()), expected);
        let bare = tool_text(
            &tool(json!({"name": "x", "inputSchema": {"type": "object"}})),
            &Screen::default(),
        );
        assert!(bare.ends_with("\nArguments: none\n"), "{bare}");
    }

    #[test]
    fn a_schema_that_contains_itself_is_shown_to_a_depth() {
        let schema = json!({"properties": {"in": {"$ref": "#"}}});
        let text = arguments("Arguments", SchemaView::new(&schema), &Screen::default());
        assert_eq!(text.lines().count(), DEPTH_SHOWN + 2, "{text}");
    }
}

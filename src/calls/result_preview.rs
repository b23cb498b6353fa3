//! The preview of a large result that replaces it for a client: its head, its tail, and a link to
//! all of it. Pure.

use bytestring::ByteString;
use serde_json::{Map, Value, json};

use crate::protocol::{RawJson, Revision};
use crate::telemetry::counted;

/// Bytes of the texts that the preview has from their start.
const HEAD: usize = 1024;

/// Bytes of the texts that the preview has from their end.
const TAIL: usize = 512;

/// Maximum number of other contents that the preview describes.
const DESCRIBED_MAX: usize = 10;

/// Maximum size of the result's `_meta` that the preview has, in bytes.
const META_MAX: usize = 1024;

/// A large result, ready to be kept.
#[derive(Debug)]
pub(super) struct LargeResult {
    result: Map<String, Value>,
    /// The text that the client can read: the texts of the result, or the whole result as JSON if it
    /// has other contents.
    pub(super) text: ByteString,
    pub(super) mime: &'static str,
    /// The texts alone.
    texts: ByteString,
    /// The other contents, in words.
    others: Vec<String>,
}

impl LargeResult {
    /// Reads a result; `None` if it does not have the shape of a tool's result.
    pub(super) fn of(result: &RawJson) -> Option<Self> {
        let mut object: Map<String, Value> = serde_json::from_str(result.as_str()).ok()?;
        let Some(Value::Array(contents)) = object.remove("content") else {
            return None;
        };
        let (mut texts, mut others) = (Vec::new(), Vec::new());
        for content in contents {
            match content {
                Value::Object(mut content) if content.get("type") == Some(&json!("text")) => {
                    if let Some(Value::String(text)) = content.remove("text") {
                        texts.push(text);
                    }
                }
                other => others.push(description(&other)),
            }
        }
        let texts = ByteString::from(texts.join("\n"));
        let (text, mime) = match others.is_empty() {
            true => (texts.clone(), "text/plain"),
            false => (result.as_str().into(), "application/json"),
        };
        Some(Self {
            result: object,
            text,
            mime,
            texts,
            others,
        })
    }

    /// The result for the client. Structured content stays whole, because the tool's output schema
    /// describes it, unless it exceeds `limit` bytes itself: then the preview is an error.
    pub(super) fn preview(&self, uri: &str, limit: usize, to: Revision) -> RawJson {
        let mut preview = self.result.clone();
        preview.retain(|name, value| name != "_meta" || value.to_string().len() <= META_MAX);
        let structured = preview.get("structuredContent");
        let structured = structured.map_or(0, |value| value.to_string().len());
        let mut words = self.beginning_and_end();
        for other in self.others.iter().take(DESCRIBED_MAX) {
            words.push_str(&format!("\n[{other}]"));
        }
        if let Some(more) = self.others.len().checked_sub(DESCRIBED_MAX + 1) {
            let more = counted(more as u64 + 1, "more content", "more contents");
            words.push_str(&format!("\n[{more}]"));
        }
        if structured > limit {
            preview.shift_remove("structuredContent");
            preview.insert("isError".to_owned(), json!(true));
            words.push_str(&format!(
                "\n[the structured content has {structured} bytes, more than the {limit} that this \
                 gateway passes on at once]"
            ));
        }
        let size = self.text.len();
        words.push_str(&format!(
            "\n[This is a preview: the whole result has {size} bytes. Read the resource {uri} for \
             all of it, {uri}?from=0&bytes=65536 for a part, or {uri}?find=WORD for the places that \
             contain a word.]"
        ));
        let mut content = vec![json!({ "type": "text", "text": words })];
        if to >= Revision::V2025_06_18 {
            content.push(json!({
                "type": "resource_link", "uri": uri, "name": "the whole result",
                "mimeType": self.mime, "size": size,
            }));
        }
        preview.insert("content".to_owned(), Value::Array(content));
        RawJson::from_value(&Value::Object(preview))
    }

    fn beginning_and_end(&self) -> String {
        let texts = &self.texts;
        let (head, tail) = (
            texts.floor_char_boundary(HEAD),
            texts.ceil_char_boundary(texts.len().saturating_sub(TAIL)),
        );
        match (texts.get(..head), texts.get(tail..)) {
            (Some(start), Some(end)) if head < tail => {
                format!("{start}\n[… {} bytes …]\n{end}", tail - head)
            }
            _ => texts.to_string(),
        }
    }
}

/// A content that is not text, such as `image of type image/png, 2048 bytes`.
fn description(content: &Value) -> String {
    let member = |name| content.get(name).and_then(Value::as_str);
    let resource = content.get("resource").unwrap_or(&Value::Null);
    let inner = |name| resource.get(name).and_then(Value::as_str);
    let cut = |text: &str| -> String { text.chars().take(64).collect() };
    let mut words = cut(member("type").unwrap_or("content"));
    if let Some(mime) = member("mimeType").or_else(|| inner("mimeType")) {
        words.push_str(&format!(" of type {}", cut(mime)));
    }
    if let Some(uri) = member("uri").or_else(|| inner("uri")) {
        words.push_str(&format!(" {}", cut(uri)));
    }
    let size = content.to_string().len();
    format!("{words}, {size} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preview_of(result: &Value, to: Revision) -> Value {
        let large = LargeResult::of(&RawJson::from_value(result)).unwrap();
        let preview = large.preview("mcpvisor://results/1", 10_000, to);
        serde_json::from_str(preview.as_str()).unwrap()
    }

    fn text_of(preview: &Value) -> &str {
        preview["content"][0]["text"].as_str().unwrap()
    }

    #[test]
    fn three_megabytes_become_less_than_four_kilobytes() {
        let text = "first\n".to_owned() + &"ä".repeat(1_500_000) + "\nlast";
        let result = json!({"content": [{"type": "text", "text": text}], "isError": false});
        let preview = preview_of(&result, Revision::NEWEST);
        assert!(preview.to_string().len() < 4096, "{preview}");
        let shown = text_of(&preview);
        assert!(
            shown.starts_with("first\n") && shown.contains("\nlast\n["),
            "{shown}"
        );
        assert!(shown.contains("3000011 bytes"), "{shown}");
        assert_eq!(preview["content"][1]["type"], "resource_link");
        assert_eq!(preview["content"][1]["size"], 3_000_011);
        let older = preview_of(&result, Revision::V2025_03_26);
        assert_eq!(older["content"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn structured_content_is_whole_or_refused() {
        let result = |size: usize| json!({"content": [], "structuredContent": {"x": "y".repeat(size)}, "_meta": {"a": 1}});
        let whole = preview_of(&result(5000), Revision::NEWEST);
        assert_eq!(
            whole["structuredContent"],
            result(5000)["structuredContent"]
        );
        assert_eq!(
            (&whole["_meta"]["a"], &whole["isError"]),
            (&json!(1), &Value::Null)
        );
        let refused = preview_of(&result(20_000), Revision::NEWEST);
        assert_eq!(
            (&refused["structuredContent"], &refused["isError"]),
            (&Value::Null, &json!(true))
        );
        assert!(
            text_of(&refused).contains("20008 bytes, more than the 10000"),
            "{refused}"
        );
    }

    #[test]
    fn other_contents_are_described() {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(5000)});
        let contents: Vec<Value> = std::iter::repeat_n(image, 12).collect();
        let preview = preview_of(&json!({ "content": contents }), Revision::NEWEST);
        let shown = text_of(&preview);
        assert_eq!(
            shown.matches("[image of type image/png, ").count(),
            10,
            "{shown}"
        );
        assert!(shown.contains("[2 more contents]"), "{shown}");
        assert_eq!(preview["content"][1]["mimeType"], "application/json");
    }

    #[test]
    fn what_is_no_result_of_a_tool_is_left_alone() {
        for result in [json!([]), json!({"contents": []}), json!({"content": "x"})] {
            assert!(LargeResult::of(&RawJson::from_value(&result)).is_none());
        }
    }
}

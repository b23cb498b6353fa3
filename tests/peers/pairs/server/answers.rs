//! The scripted server's answer to each method.

use std::sync::atomic::Ordering;

use mcpvisor::protocol::Revision;
use serde_json::{Value, json};

use super::calls::{Call, Stop};
use super::tools;

/// The one resource that can be read, and what changes.
pub(crate) const RESOURCE: &str = "test://notes/today";

impl Call {
    /// The result; `None` where there will be no answer now.
    pub(crate) async fn result(&self) -> Result<Option<Value>, Stop> {
        let result = match self.method.as_str() {
            "initialize" => self.initialize(),
            "server/discover" => json!({
                "supportedVersions": [self.server.revision],
                "capabilities": self.capabilities(),
                "instructions": "for tests",
            }),
            "tools/list" => {
                let grown = self.server.grown.load(Ordering::Relaxed);
                json!({ "tools": tools::list(self.server.revision, grown) })
            }
            "tools/call" => tools::run(self).await?,
            "prompts/list" => json!({ "prompts": [self.prompt()] }),
            "prompts/get" => self.get_prompt()?,
            "resources/list" => json!({ "resources": [self.resource()] }),
            "resources/templates/list" => json!({ "resourceTemplates": [
                { "uriTemplate": "test://notes/{day}", "name": "notes" },
            ] }),
            "resources/read" => self.read()?,
            "resources/subscribe" => self.subscribe(true),
            "resources/unsubscribe" => self.subscribe(false),
            "completion/complete" => self.completion(),
            "logging/setLevel" => {
                self.link.state.lock().unwrap().logs = true;
                json!({})
            }
            "subscriptions/listen" => {
                self.listen();
                return Ok(None);
            }
            _ => json!({}),
        };
        Ok(Some(result))
    }

    fn initialize(&self) -> Value {
        let capabilities = self.params["capabilities"].clone();
        self.link.state.lock().unwrap().capabilities = capabilities;
        json!({
            "protocolVersion": self.server.revision,
            "capabilities": self.capabilities(),
            "serverInfo": { "name": "scripted", "version": "1" },
        })
    }

    fn capabilities(&self) -> Value {
        let mut capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "logging": {},
        });
        if self.since(Revision::V2025_03_26) {
            capabilities["completions"] = json!({});
        }
        capabilities
    }

    fn prompt(&self) -> Value {
        let mut prompt = json!({
            "name": "greet",
            "description": "greets somebody",
            "arguments": [{ "name": "who", "description": "whom", "required": true }],
        });
        self.adorn(&mut prompt);
        prompt
    }

    fn resource(&self) -> Value {
        let mut resource = json!({ "uri": RESOURCE, "name": "today", "mimeType": "text/plain" });
        self.adorn(&mut resource);
        resource
    }

    fn adorn(&self, item: &mut Value) {
        tools::adorn(self.server.revision, item);
    }

    fn get_prompt(&self) -> Result<Value, Stop> {
        if self.params["name"] != "greet" {
            return Err(Stop::Error(-32602, "no such prompt".to_owned()));
        }
        let who = self.params["arguments"]["who"].as_str().unwrap_or_default();
        let content = json!({ "type": "text", "text": format!("greet {who}") });
        Ok(json!({ "messages": [{ "role": "user", "content": content }] }))
    }

    fn read(&self) -> Result<Value, Stop> {
        let uri = self.params["uri"].as_str().unwrap_or_default();
        if uri != RESOURCE {
            let code = if self.server.modern() { -32602 } else { -32002 };
            return Err(Stop::Error(code, format!("no resource {uri}")));
        }
        let contents = json!([{ "uri": uri, "mimeType": "text/plain", "text": "a note" }]);
        Ok(json!({ "contents": contents }))
    }

    fn subscribe(&self, wanted: bool) -> Value {
        let uri = self.params["uri"].as_str().unwrap_or_default().to_owned();
        self.server.happened(format!(
            "{} {uri}",
            if wanted { "watches" } else { "leaves" }
        ));
        let subscribed = &mut self.link.state.lock().unwrap().subscribed;
        if wanted {
            subscribed.insert(uri);
        } else {
            subscribed.remove(&uri);
        }
        json!({})
    }

    fn completion(&self) -> Value {
        let given = self.params["argument"]["value"].as_str();
        let mut values = vec![format!("{}ry", given.unwrap_or_default())];
        let context = self.params["context"]["arguments"]["mood"].as_str();
        values.extend(context.map(str::to_owned));
        json!({ "completion": { "values": values, "hasMore": false } })
    }
}

//! The log: on stderr, for people or as JSON lines.

use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use env_logger::{Builder, Env};
use log::kv::{Error, Key, Value, VisitSource};
use serde_json::{Map, json};

/// Sets up the log. `RUST_LOG` says what is logged, by default everything from `info` up.
/// A second call does nothing.
pub fn init_logging(as_json: bool) {
    let mut builder = Builder::from_env(Env::default().default_filter_or("info"));
    if as_json {
        builder.format(|out, record| {
            let since_epoch = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default();
            let mut line = Map::new();
            line.insert(
                "ts".to_owned(),
                json!(u64::try_from(since_epoch.as_millis()).ok()),
            );
            line.insert(
                "level".to_owned(),
                json!(record.level().as_str().to_lowercase()),
            );
            line.insert("target".to_owned(), json!(record.target()));
            line.insert("message".to_owned(), json!(record.args().to_string()));
            let mut fields = JsonFields(line);
            // A field that cannot be read is left out.
            let _ = record.key_values().visit(&mut fields);
            writeln!(out, "{}", serde_json::Value::Object(fields.0))
        });
    }
    // Fails when there is a logger already, as in tests.
    let _ = builder.try_init();
}

struct JsonFields(Map<String, serde_json::Value>);

impl<'kvs> VisitSource<'kvs> for JsonFields {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let value = match (value.to_u64(), value.to_i64(), value.to_bool()) {
            (Some(number), _, _) => json!(number),
            (_, Some(number), _) => json!(number),
            (_, _, Some(truth)) => json!(truth),
            _ => json!(value.to_string()),
        };
        self.0.insert(key.to_string(), value);
        Ok(())
    }
}

//! What a template is given.

use std::io::{self, Write};

use minijinja::Value as Jinja;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One message of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant`, `tool`, ...
    pub role: String,
    /// A text, a list of parts (`{"type": "text", "text": ...}`), or null.
    #[serde(default)]
    pub content: Value,
    /// Whatever else the template may look for: `reasoning_content`, `tool_calls`
    /// (with their arguments as objects, not as texts), `name`, ...
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl ChatMessage {
    /// A message of plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: Value::String(content.into()), extra: Map::new() }
    }

    fn jinja(&self) -> Jinja {
        let own = [("role", Jinja::from(self.role.as_str())), ("content", jinja(&self.content))];
        let extra = self.extra.iter().map(|(name, value)| (name.as_str(), jinja(value)));
        Jinja::from_pairs(own.into_iter().chain(extra))
    }
}

/// What a template is told besides the messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RenderOptions {
    /// Whether the prompt ends where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Descriptions of the tools that may be called, as the request has them.
    pub tools: Option<Vec<Value>>,
    /// More variables, such as `enable_thinking`. They cannot replace the messages
    /// or the fields above.
    pub vars: Map<String, Value>,
}

/// The variables that the template sees.
pub(super) fn context(
    messages: &[ChatMessage],
    options: &RenderOptions,
    bos: &Option<String>,
    eos: &Option<String>,
) -> Jinja {
    let vars = options.vars.iter().map(|(name, value)| (name.as_str(), jinja(value)));
    let tokens = [("bos_token", bos), ("eos_token", eos)];
    let tokens = tokens.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
    let tokens = tokens.map(|(name, text)| (name, Jinja::from(text)));
    let messages: Jinja = messages.iter().map(ChatMessage::jinja).collect();
    let tools = options.tools.as_ref().map(|tools| tools.iter().map(jinja).collect::<Jinja>());
    let own = [
        ("messages", messages),
        ("tools", tools.unwrap_or_else(|| Jinja::from(()))),
        ("documents", Jinja::from(())),
        ("add_generation_prompt", Jinja::from(options.add_generation_prompt)),
    ];
    Jinja::from_pairs(tokens.chain(vars).chain(own))
}

/// A JSON value as the template engine's, with the order of keys kept.
fn jinja(value: &Value) -> Jinja {
    match value {
        Value::Null => Jinja::from(()),
        Value::Bool(b) => Jinja::from(*b),
        Value::Number(n) => match (n.as_u64(), n.as_i64()) {
            (Some(n), _) => Jinja::from(n),
            (None, Some(n)) => Jinja::from(n),
            (None, None) => Jinja::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Jinja::from(text.as_str()),
        Value::Array(items) => items.iter().map(jinja).collect(),
        Value::Object(map) => Jinja::from_pairs(map.iter().map(|(k, v)| (k.as_str(), jinja(v)))),
    }
}

/// Bytes of all that is given, as JSON.
pub(super) fn size(messages: &[ChatMessage], options: &RenderOptions) -> u64 {
    let mut count = Count(0);
    // Counting cannot fail; what were not counted would only cost fuel.
    let _ = serde_json::to_writer(&mut count, messages);
    let _ = serde_json::to_writer(&mut count, &options.tools);
    let _ = serde_json::to_writer(&mut count, &options.vars);
    count.0
}

struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

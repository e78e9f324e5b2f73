//! Any text as a chat template, over a conversation with a tool.

#![no_main]

use std::sync::LazyLock;

use foretoken::tokenizer::{ChatMessage, ChatTemplate, RenderOptions};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static MESSAGES: LazyLock<Vec<ChatMessage>> = LazyLock::new(|| {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"name": "f", "arguments": {"x": 1.5}}]},
        {"role": "tool", "content": "<think>\n4\n</think>"},
    ]);
    serde_json::from_value(messages).expect("messages")
});

fuzz_target!(|source: &str| {
    let template = match ChatTemplate::new(source, Some("<s>"), None) {
        Ok(template) => template,
        Err(error) => return one_line(&error.to_string()),
    };
    let tools: Option<Vec<Value>> = Some(vec![json!({"type": "function", "name": "f"})]);
    let options = RenderOptions { add_generation_prompt: true, tools, ..Default::default() };
    if let Err(error) = template.render(&MESSAGES, &options) {
        one_line(&error.to_string());
    }
});

fn one_line(message: &str) {
    assert!(message.len() < 2000 && !message.contains(char::is_control), "{message:?}");
}

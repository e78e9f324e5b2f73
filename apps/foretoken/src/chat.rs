//! The model's chat template around a user's message.

use anyhow::{Context, Result, bail};
use foretoken::generate::Engine;
use foretoken::model::ModelFile;
use foretoken::tokenizer::{ChatMessage, ChatTemplate, RenderOptions, Special, Tokenizer};

use crate::failure::shown;

/// The ids of a conversation of one question, up to where the answer begins.
///
/// # Errors
/// A model without a template, or a template that fails.
pub(crate) fn ids(file: &ModelFile, system: Option<&str>, user: &str) -> Result<Vec<u32>> {
    let path = || shown(file.provider.path());
    let Some(source) = &file.chat_template else {
        bail!("{}: the model has no chat template; leave out --chat", path());
    };
    conversation(&file.tokenizer, source, system, user).with_context(path)
}

/// The same for a loaded model.
///
/// # Errors
/// As [`ids`].
pub(crate) fn ids_for(engine: &Engine, user: &str) -> Result<Vec<u32>> {
    let source = engine.chat_template().context("the model has no chat template")?;
    Ok(conversation(engine.tokenizer(), source, None, user)?)
}

/// No start token is added: templates write their own.
fn conversation(
    tokenizer: &Tokenizer,
    source: &str,
    system: Option<&str>,
    user: &str,
) -> foretoken::Result<Vec<u32>> {
    Ok(tokenizer.encode(&render(tokenizer, source, system, user)?, Special::Parse))
}

fn render(
    tokenizer: &Tokenizer,
    source: &str,
    system: Option<&str>,
    user: &str,
) -> foretoken::Result<String> {
    let text_of = |id: Option<u32>| {
        let bytes = tokenizer.token_bytes(id?)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let (bos, eos) = (text_of(tokenizer.bos()), text_of(tokenizer.eos()));
    let template = ChatTemplate::new(source, bos.as_deref(), eos.as_deref())?;
    let system = system.map(|text| ChatMessage::new("system", text));
    let messages: Vec<_> = system.into_iter().chain([ChatMessage::new("user", user)]).collect();
    let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    template.render(&messages, &options)
}

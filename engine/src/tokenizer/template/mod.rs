//! Chat templates: the Jinja programs in model files that turn a conversation into
//! a prompt, run with the names and the formatting that Hugging Face's library
//! gives them.
//!
//! A template is part of a model file and may be hostile. Its work, its output and
//! its recursion are bounded; `guard` keeps its values from growing into one another;
//! and it is compiled and run on threads whose stacks are large enough for the
//! deepest thing that such a template can still build.
//!
//! `message` is what goes in, `functions` what a template can call, `json` the
//! `tojson` filter, `clock` the date.

mod clock;
mod fault;
mod functions;
mod guard;
mod json;
mod message;

use std::io::{self, Write};
use std::thread;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error as JinjaError};
use minijinja_contrib::pycompat::unknown_method_callback;

pub use self::fault::TemplateFault;
pub use self::message::{ChatMessage, RenderOptions};
use super::Tokenizer;
use crate::Result;

/// Bytes of source a template may have; those in use have at most a few ten thousand.
const MAX_SOURCE: usize = 64 << 10;

/// Bytes of text a template may write.
const MAX_OUTPUT: usize = 64 << 20;

/// Work a template may do besides one unit for each byte it is given: a unit is an
/// instruction or 64 bytes of data made, so this is 256 MB or some seconds.
const FUEL: u64 = 4 << 20;

/// How deep blocks, macros and includes may nest while running.
const MAX_RECURSION: usize = 200;

/// Stack for compiling: source of [`MAX_SOURCE`] bytes can chain 32 K operations and,
/// measured, one takes 1.4 KB of stack at most. Only what is used is backed by memory.
const COMPILE_STACK: usize = 128 << 20;

/// Stack for running: source of [`MAX_SOURCE`] bytes can nest 32 K values and, measured,
/// to print or compare one level takes less than half a KB.
const RUN_STACK: usize = 64 << 20;

/// A compiled chat template.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    jinja: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts that it sees as `bos_token`
    /// and `eos_token`.
    ///
    /// # Errors
    /// [`TemplateFault::Syntax`], [`TooLarge`](TemplateFault::TooLarge) or
    /// [`TooDeep`](TemplateFault::TooDeep).
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateFault::TooLarge { size: source.len(), limit: MAX_SOURCE }.into());
        }
        if guard::is_too_deep(source) {
            return Err(TemplateFault::TooDeep.into());
        }
        let source = guard::guarded(source);
        let jinja = on_thread(COMPILE_STACK, || compile(source))?;
        let jinja = jinja.map_err(|error| TemplateFault::of(&error))?;
        Ok(Self { jinja, bos: bos.map(str::to_owned), eos: eos.map(str::to_owned) })
    }

    /// The template of a tokenizer's file; `None` when it has none.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn of(tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(source) = tokenizer.chat_template() else { return Ok(None) };
        let text = |id: Option<u32>| {
            let bytes = tokenizer.token_bytes(id?)?;
            Some(String::from_utf8_lossy(bytes).into_owned())
        };
        let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
        Self::new(source, bos.as_deref(), eos.as_deref()).map(Some)
    }

    /// The prompt for a conversation.
    ///
    /// # Errors
    /// [`TemplateFault::Raised`] when the template refuses the conversation,
    /// [`Failed`](TemplateFault::Failed) when it goes wrong, and
    /// [`OutOfFuel`](TemplateFault::OutOfFuel), [`TooDeep`](TemplateFault::TooDeep) or
    /// [`TooLong`](TemplateFault::TooLong) when it meets a limit.
    pub fn render(&self, messages: &[ChatMessage], options: &RenderOptions) -> Result<String> {
        let given = message::size(messages, options);
        let mut jinja = self.jinja.clone();
        jinja.set_fuel(Some(FUEL.saturating_add(given)));
        let mut out = Output { text: Vec::new(), full: false };
        let run = on_thread(RUN_STACK, || {
            let context = message::context(messages, options, &self.bos, &self.eos);
            let template = jinja.get_template(NAME)?;
            template.render_captured_to(context, &mut out).map(|_| ())
        })?;
        if out.full {
            return Err(TemplateFault::TooLong { limit: MAX_OUTPUT }.into());
        }
        run.map_err(|error| TemplateFault::of(&error))?;
        Ok(String::from_utf8_lossy(&out.text).into_owned())
    }
}

/// The one template's name in its environment.
const NAME: &str = "chat";

fn compile(source: String) -> Result<Environment<'static>, JinjaError> {
    let mut jinja = Environment::new();
    jinja.set_auto_escape_callback(|_| AutoEscape::None);
    jinja.set_recursion_limit(MAX_RECURSION);
    jinja.set_unknown_method_callback(unknown_method_callback);
    // As Hugging Face's library sets Jinja up.
    jinja.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    jinja.add_filter("tojson", json::tojson);
    jinja.add_filter(guard::FILTER, guard::plain);
    jinja.add_function("raise_exception", functions::raise_exception);
    jinja.add_function("strftime_now", functions::strftime_now);
    jinja.add_template_owned(NAME, source)?;
    Ok(jinja)
}

/// Runs `work` on a thread with a stack of that size.
fn on_thread<T: Send>(stack: usize, work: impl FnOnce() -> T + Send) -> Result<T, TemplateFault> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("chat-template".to_owned()).stack_size(stack);
        let running = thread
            .spawn_scoped(scope, work)
            .map_err(|error| TemplateFault::Thread(error.to_string()))?;
        running.join().map_err(|_| TemplateFault::Thread("it panicked".to_owned()))
    })
}

/// Takes what a template writes, up to the limit.
struct Output {
    text: Vec<u8>,
    full: bool,
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > MAX_OUTPUT.saturating_sub(self.text.len()) {
            self.full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_cannot_be_had_or_panics_is_a_fault() {
        let fault = on_thread(usize::MAX / 2, || ()).unwrap_err();
        assert!(matches!(fault, TemplateFault::Thread(_)), "{fault}");
        let fault = on_thread(1 << 20, || assert_eq!(1, 2)).unwrap_err();
        assert_eq!(fault, TemplateFault::Thread("it panicked".to_owned()));
        assert_eq!(on_thread(1 << 20, || 7), Ok(7));
    }
}

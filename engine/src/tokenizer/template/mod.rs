//! Chat templates: the Jinja programs in model files that turn a conversation into
//! a prompt, run with the names and the formatting that Hugging Face's library
//! gives them.
//!
//! A template is part of a model file and may be hostile. Its work, its output and
//! its recursion are bounded; `guard` keeps its values from growing into one another;
//! and `thread` compiles and runs it on threads whose stacks are large enough for the
//! deepest thing that such a template can still build, for so long and no longer.
//!
//! `message` is what goes in, `functions` what a template can call, `formatting` the
//! `format` filter and method, `json` the `tojson` filter, `clock` the date.

mod clock;
mod fault;
mod formatting;
mod functions;
mod guard;
mod json;
mod message;
mod thread;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error as JinjaError, Value};

pub use self::fault::TemplateFault;
pub use self::message::{ChatMessage, RenderOptions};
use self::thread::on_thread;
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

/// Time that compiling or running may take; real templates need some milliseconds.
/// Fuel bounds most work long before, but not all: the operators of the template engine
/// compare and write lists that hold one another many times without asking for any.
const TIME: Duration = Duration::from_secs(5);

/// A compiled chat template.
///
/// A run that takes longer than five seconds is given up, and its thread left behind
/// since nothing can end a thread from outside: it goes on, taking a core and perhaps
/// memory, until its work is done or the process exits. So that there is no more than one
/// such thread for each render that was under way, this template and its clones refuse
/// every later conversation at once. A server that takes templates from strangers should
/// render them in a process of its own, which can be ended.
#[derive(Clone, Debug)]
pub struct ChatTemplate {
    jinja: Environment<'static>,
    bos: Option<String>,
    eos: Option<String>,
    /// How long a run may take.
    time: Duration,
    /// A run took longer.
    given_up: Arc<AtomicBool>,
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts that it sees as `bos_token`
    /// and `eos_token`.
    ///
    /// # Errors
    /// [`TemplateFault::Syntax`], [`TooLarge`](TemplateFault::TooLarge),
    /// [`TooDeep`](TemplateFault::TooDeep) or [`OutOfFuel`](TemplateFault::OutOfFuel).
    pub fn new(source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<Self> {
        if source.len() > MAX_SOURCE {
            return Err(TemplateFault::TooLarge { size: source.len(), limit: MAX_SOURCE }.into());
        }
        if guard::is_too_deep(source) {
            return Err(TemplateFault::TooDeep.into());
        }
        let source = guard::guarded(source);
        let compile = || compile(source).map_err(|error| TemplateFault::of(&error));
        let jinja = on_thread(COMPILE_STACK, TIME, compile)??;
        let (bos, eos) = (bos.map(str::to_owned), eos.map(str::to_owned));
        Ok(Self { jinja, bos, eos, time: TIME, given_up: Arc::default() })
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
        if self.given_up.load(Ordering::Relaxed) {
            return Err(TemplateFault::OutOfFuel.into());
        }
        let mut jinja = self.jinja.clone();
        jinja.set_fuel(Some(FUEL.saturating_add(message::size(messages, options))));
        let context = message::context(messages, options, &self.bos, &self.eos);
        let run = on_thread(RUN_STACK, self.time, move || run(&jinja, context));
        if let Err(TemplateFault::OutOfFuel) = run {
            // Not for want of fuel, which `run` would have said inside.
            self.given_up.store(true, Ordering::Relaxed);
        }
        Ok(run??)
    }
}

fn run(jinja: &Environment<'static>, context: Value) -> Result<String, TemplateFault> {
    let mut out = Output { text: Vec::new(), full: false };
    let template = jinja.get_template(NAME);
    let done = template.and_then(|t| t.render_captured_to(context, &mut out).map(|_| ()));
    if out.full {
        return Err(TemplateFault::TooLong { limit: MAX_OUTPUT });
    }
    done.map_err(|error| TemplateFault::of(&error))?;
    Ok(String::from_utf8_lossy(&out.text).into_owned())
}

/// The one template's name in its environment.
const NAME: &str = "chat";

fn compile(source: String) -> Result<Environment<'static>, JinjaError> {
    let mut jinja = Environment::new();
    jinja.set_auto_escape_callback(|_| AutoEscape::None);
    jinja.set_recursion_limit(MAX_RECURSION);
    jinja.set_unknown_method_callback(formatting::method);
    // As Hugging Face's library sets Jinja up.
    jinja.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    jinja.add_filter("format", formatting::filter);
    jinja.add_filter("tojson", json::tojson);
    jinja.add_filter(guard::FILTER, guard::plain);
    jinja.add_function("raise_exception", functions::raise_exception);
    jinja.add_function("strftime_now", functions::strftime_now);
    jinja.add_template_owned(NAME, source)?;
    Ok(jinja)
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
    use crate::Error;

    /// `name` becomes a list of lists that hold 4 times 2 to the power of `levels`
    /// numbers and take a few KB.
    fn shared(name: &str, levels: usize) -> String {
        let level = format!("{{% set {name} = [{name}, {name}] %}}");
        format!("{{% set {name} = [1, 2, 3, 4] %}}{}", level.repeat(levels))
    }

    /// Work that the template engine asks no fuel for; some seconds of it each, so that
    /// the threads that are left behind come to their end.
    #[test]
    fn work_without_fuel_meets_the_deadline_once() {
        let two = format!("{}{}", shared("a", 25), shared("b", 25));
        for end in ["{{ a == b }}", "{{ a < b }}", "{{ a in [b] }}", "{{ [a, b] | sort }}"] {
            let mut template = ChatTemplate::new(&format!("{two}{end}"), None, None).unwrap();
            template.time = Duration::from_millis(20);
            let render =
                |template: &ChatTemplate| match template.render(&[], &RenderOptions::default()) {
                    Err(Error::Template(fault)) => fault,
                    other => panic!("{end}: {other:?}"),
                };
            assert_eq!(render(&template), TemplateFault::OutOfFuel, "{end}");
            // From then on at once, and the clones too.
            template.time = Duration::from_secs(60);
            let start = std::time::Instant::now();
            assert_eq!(render(&template.clone()), TemplateFault::OutOfFuel, "{end}");
            assert!(start.elapsed() < Duration::from_millis(500), "{end}");
        }
        // Negative control: with few levels it is soon done, and again.
        let few = format!("{}{}{{{{ a == b }}}}", shared("a", 8), shared("b", 8));
        let template = ChatTemplate::new(&few, None, None).unwrap();
        for _ in 0..2 {
            assert_eq!(template.render(&[], &RenderOptions::default()).unwrap(), "True");
        }
    }
}

//! `perplexity`: how well a model predicts a text.
//!
//! As llama.cpp's `llama-perplexity` does it: the text is cut into chunks of the context,
//! each chunk is run on its own, and the predictions made at the positions of its second
//! half are scored. A last chunk that is not full is left out, and so is one line break at
//! the end of the text. Unlike it, a text of a single chunk is scored, too.

use std::io::Write;

use anyhow::{Result, bail};
use foretoken::generate::{Cancel, Session, WantLogits};
use foretoken::sample::logprob_of;
use foretoken::tokenizer::Special;
use serde::Serialize;

use crate::args::PerplexityArgs;
use crate::failure::usage;
use crate::load::{self, Demand, open_model, session_options};
use crate::output::{print_json, stdout};
use crate::prompt;
use crate::ui::Ui;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    perplexity: f64,
    /// Standard error of the perplexity.
    stderr: f64,
    /// Predictions scored.
    tokens: usize,
    /// Tokens of a chunk.
    context: usize,
    chunks: usize,
}

/// Runs the command.
pub(super) fn run(args: &PerplexityArgs, ui: &Ui) -> Result<()> {
    let context = args.session.context.unwrap_or_default();
    if context < 4 {
        return Err(usage("--context must be at least 4"));
    }
    let text = prompt::from_file(&args.file, "the text")?;
    // One line break at the end is no part of the text, as in llama-perplexity.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let file = open_model(args.model.model.as_deref(), &args.model.open_options())?;
    let bos = file.tokenizer.bos_to_add();
    let mut ids: Vec<u32> = bos.into_iter().collect();
    // Special tokens in the text are text, as in llama-perplexity.
    ids.extend(file.tokenizer.encode(text, Special::Ignore));
    if ids.len() < context {
        let (name, have) = (prompt::name(&args.file), ids.len());
        let advice = "use a longer text or a smaller --context";
        bail!("{name}: {have} tokens, a chunk takes {context}; {advice}");
    }
    let planner = load::planner(file, &args.device, &args.session)?;
    let demand = Demand { tokens: context, all_logits: true };
    let options = session_options(&planner, &args.session, demand)?;
    let engine = load::load(planner, &options, ui)?;
    let mut session = engine.session(options)?;
    let mut score = Score::default();
    let mut bar = ui.progress("scoring");
    let chunks = ids.len() / context;
    for (done, chunk) in ids.chunks_exact(context).enumerate() {
        let mut chunk = chunk.to_vec();
        if let (Some(bos), Some(first)) = (bos, chunk.first_mut()) {
            *first = bos;
        }
        score_chunk(&mut session, &chunk, &mut score)?;
        bar.set(done + 1, chunks);
    }
    let (perplexity, stderr) = score.perplexity();
    let report = Report { perplexity, stderr, tokens: score.count, context, chunks };
    if args.json {
        return print_json(&report);
    }
    let mut out = stdout();
    writeln!(out, "perplexity {perplexity:.4} +/- {stderr:.4}")?;
    writeln!(out, "{} tokens scored in {chunks} chunks of {context}", score.count)?;
    Ok(out.flush()?)
}

/// Scores the predictions that positions `len / 2` to `len - 2` make of their successors.
fn score_chunk(session: &mut Session, chunk: &[u32], score: &mut Score) -> Result<()> {
    let vocab = session.engine().config().vocab;
    let cancel = Cancel::default();
    let (head, tail) = chunk.split_at(chunk.len() / 2);
    session.reset()?;
    session.prefill(head, WantLogits::None, &cancel, &mut |_, _| Ok(()))?;
    let mut targets = tail.iter().skip(1);
    session.prefill(tail, WantLogits::All, &cancel, &mut |session, _| {
        // The last row predicts a token of the next chunk and has no target here.
        for (row, &target) in session.read_logits()?.chunks_exact(vocab).zip(targets.by_ref()) {
            score.add(-logprob_of(row, target)?);
        }
        Ok(())
    })?;
    Ok(())
}

/// Sums of negative log-likelihoods.
#[derive(Debug, Default)]
struct Score {
    count: usize,
    sum: f64,
    squares: f64,
}

impl Score {
    fn add(&mut self, nll: f64) {
        self.count += 1;
        self.sum += nll;
        self.squares += nll * nll;
    }

    /// Perplexity and its standard error: that of the mean, carried through the
    /// exponential.
    fn perplexity(&self) -> (f64, f64) {
        let n = self.count as f64;
        let mean = self.sum / n;
        let variance = (self.squares / n - mean * mean).max(0.0);
        let perplexity = mean.exp();
        (perplexity, perplexity * (variance / (n - 1.0).max(1.0)).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perplexity_of_known_likelihoods() {
        let mut score = Score::default();
        for nll in [1.0, 2.0, 3.0] {
            score.add(nll);
        }
        let (perplexity, stderr) = score.perplexity();
        assert!((perplexity - 2f64.exp()).abs() < 1e-12);
        // The mean's standard error is sqrt((2/3) / 2).
        assert!((stderr - 2f64.exp() * (1.0f64 / 3.0).sqrt()).abs() < 1e-12);
    }
}

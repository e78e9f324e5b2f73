//! One sequence on a loaded model.

use std::sync::Arc;

use super::checkpoint::next_lineage;
use super::layout::{Layout, Site, drafts_on};
use super::memory::{PREFILL_GRID, STEP_ROWS, SessionOptions};
use super::speculation::Speculation;
use super::{Cancel, Engine, Fallback, GenerateFault};
use crate::cache::{KvCache, RecurrentState};
use crate::device::{DeviceFault, Graph, MemoryPlan, Stream};
use crate::error::Result;
use crate::kernel::{Control, Regime};
use crate::model::{GraphBuilder, StepBuffers};
use crate::sample::Draw;
use crate::speculate::Drafter;
use crate::tensor::Tensor;

/// Which rows of a call get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WantLogits {
    /// None: only state is wanted.
    None,
    /// The last row.
    Last,
    /// Every row (at most `logit_rows` of the options).
    All,
}

/// A sequence: its caches, its activations and its recorded graphs.
///
/// `committed` tokens have final state. Nothing is reserved after creation.
pub struct Session {
    pub(super) engine: Arc<Engine>,
    pub(super) options: SessionOptions,
    plan: MemoryPlan,
    pub(super) stream: Box<dyn Stream>,
    kv: KvCache,
    pub(super) recurrent: RecurrentState,
    buffers: StepBuffers,
    /// Step calls of one row: plain decoding.
    single_graph: Arc<dyn Graph>,
    /// The same, with the next token sampled.
    sampled_graph: Arc<dyn Graph>,
    step_graph: Arc<dyn Graph>,
    /// Prefill calls of up to so many rows, descending.
    prefill_graphs: Vec<(usize, Arc<dyn Graph>)>,
    pub(super) committed: usize,
    /// Anew with every step back.
    pub(super) lineage: u64,
    /// What was given up when it was made.
    fallbacks: Vec<Fallback>,
    pub(super) logit_count: usize,
    pub(super) logits: Vec<f32>,
    argmax: Vec<i32>,
    /// The parameters that the sampled graph finds, when known.
    draw: Option<Draw>,
    words: Vec<i32>,
    pub(super) speculation: Option<Box<Speculation>>,
}

impl Session {
    /// Reserves everything and records the graphs.
    pub(super) fn new(
        engine: Arc<Engine>,
        options: SessionOptions,
        drafter: Option<Box<dyn Drafter>>,
    ) -> Result<Self> {
        let drafter = drafter.filter(|_| options.speculation.is_some());
        let (plan, drafter) = engine.prepare_session(&options, drafter)?;
        let drafts_on = drafts_on(drafter.as_deref(), &*engine.device);
        let site = Site {
            device: &*engine.device,
            drafts_on: drafts_on.as_ref(),
            weights: &engine.weights,
            config: engine.config(),
        };
        let layout = Layout::new(&site, &options, drafter)?;
        let Layout { kv, recurrent, buffers, mut speculation, .. } = layout;
        let Layout { single_graph, sampled_graph, step_graph, prefill_graphs, .. } = layout;
        if let Some(speculation) = &mut speculation {
            speculation.connect(&*engine.device);
        }
        let stream = engine.device.stream()?;
        let vocab = engine.config().vocab;
        let logits = vec![0.0; options.logit_rows * vocab];
        let mut session = Self {
            options,
            plan,
            stream,
            kv,
            recurrent,
            buffers,
            single_graph,
            sampled_graph,
            step_graph,
            prefill_graphs,
            committed: 0,
            lineage: next_lineage(),
            fallbacks: Vec::new(),
            logit_count: 0,
            logits,
            argmax: vec![0; options.logit_rows],
            draw: None,
            words: Vec::with_capacity(options.rows()),
            speculation: speculation.map(Box::new),
            engine,
        };
        session.reset()?;
        Ok(session)
    }

    /// Forgets everything: an empty sequence.
    pub fn reset(&mut self) -> Result<()> {
        self.recurrent.clear(&mut *self.stream)?;
        self.committed = 0;
        self.lineage = next_lineage();
        self.logit_count = 0;
        if let Some(speculation) = &mut self.speculation {
            speculation.reset();
        }
        Ok(())
    }

    /// Adds a degradation to the results of all requests on this session: something was
    /// given up when it was made.
    pub fn add_fallback(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.fallbacks.push(Fallback { what: what.into(), reason: reason.into(), count: 1 });
    }

    /// What was given up when the session was made.
    pub fn fallbacks(&self) -> &[Fallback] {
        &self.fallbacks
    }

    /// Tokens with final state.
    pub fn committed(&self) -> usize {
        self.committed
    }

    /// The options it was made with.
    pub fn options(&self) -> &SessionOptions {
        &self.options
    }

    /// What was reserved.
    pub fn plan(&self) -> &MemoryPlan {
        &self.plan
    }

    /// The engine it runs on.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Tokens of the next prefill call: up to the next grid line when the sequence is
    /// not on one, else whole chunks, so that a token's chunk never depends on how the
    /// prompt was handed over.
    fn next_chunk(&self, remaining: usize, limit: usize) -> (usize, Regime) {
        let off_grid = self.committed % PREFILL_GRID;
        if off_grid != 0 {
            return (remaining.min(PREFILL_GRID - off_grid).min(limit), Regime::Step);
        }
        (remaining.min(limit), Regime::Prefill)
    }

    /// Runs `tokens` after the committed ones and commits them. `each` sees, after
    /// every chunk, the session (for its logits) and how many tokens are done.
    ///
    /// # Errors
    /// `ContextLengthExceeded` and `TokenOutOfRange` before anything runs;
    /// `Cancelled` between chunks.
    pub fn prefill(
        &mut self,
        tokens: &[u32],
        want: WantLogits,
        cancel: &Cancel,
        each: &mut dyn FnMut(&mut Self, usize) -> Result<()>,
    ) -> Result<()> {
        self.check(tokens)?;
        let limit = match want {
            WantLogits::All => self.options.chunk.min(self.options.logit_rows),
            _ => self.options.chunk,
        };
        let mut done = 0;
        while done < tokens.len() {
            if cancel.is_cancelled() {
                return Err(GenerateFault::Cancelled.into());
            }
            let (count, regime) = self.next_chunk(tokens.len() - done, limit);
            let last = done + count == tokens.len();
            let want = match want {
                WantLogits::Last if !last => WantLogits::None,
                other => other,
            };
            self.run(&tokens[done..done + count], regime, want)?;
            done += count;
            each(self, done)?;
        }
        Ok(())
    }

    /// Runs up to 64 tokens as one step and commits them all.
    ///
    /// # Errors
    /// As [`prefill`](Self::prefill), and `TooManyRows`.
    pub fn step(&mut self, tokens: &[u32], want: WantLogits) -> Result<()> {
        if tokens.len() > STEP_ROWS {
            let (asked, capacity) = (tokens.len(), STEP_ROWS);
            return Err(GenerateFault::TooManyRows { asked, capacity }.into());
        }
        self.check(tokens)?;
        self.run(tokens, Regime::Step, want)
    }

    /// Runs one token as a step, commits it and samples the next one, on the device: the
    /// one that a [`Sampler`](crate::sample::Sampler) of these parameters would choose.
    /// `None` when it can not be told from the best candidates; the logits are there then.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn step_sampled(&mut self, token: u32, draw: &Draw) -> Result<Option<u32>> {
        self.check(&[token])?;
        if self.draw != Some(*draw) {
            write(&mut *self.stream, &self.buffers.head.best.params.0, &draw.words())?;
            self.draw = Some(*draw);
        }
        let graph = Arc::clone(&self.sampled_graph);
        self.launch(&[token], WantLogits::Last, &*graph)?;
        // What was sampled is not the most likely token.
        let chosen = std::mem::replace(&mut self.argmax[0], Draw::UNDECIDED);
        Ok(u32::try_from(chosen).ok())
    }

    pub(super) fn check(&self, tokens: &[u32]) -> Result<(), GenerateFault> {
        if tokens.is_empty() {
            return Err(GenerateFault::EmptyPrompt);
        }
        let total = self.committed.saturating_add(tokens.len());
        if total > self.options.context {
            let context = self.options.context;
            let (prompt, room, max) = (total, 0, self.engine.config().context_length);
            return Err(GenerateFault::ContextLengthExceeded { prompt, context, room, max });
        }
        let vocab = self.engine.config().vocab;
        match tokens.iter().find(|&&id| id as usize >= vocab) {
            Some(&id) => Err(GenerateFault::TokenOutOfRange { id, vocab }),
            None => Ok(()),
        }
    }

    /// Writes the inputs of a call: tokens, positions, control block.
    fn write_inputs(&mut self, tokens: &[u32], want: WantLogits) -> Result<usize> {
        let rows = tokens.len();
        let (first, count) = match want {
            WantLogits::None => (0, 0),
            WantLogits::Last => (rows - 1, 1),
            WantLogits::All => (0, rows),
        };
        if count > self.options.logit_rows || rows > self.options.rows() {
            let capacity = self.options.logit_rows;
            return Err(GenerateFault::TooManyRows { asked: rows, capacity }.into());
        }
        self.words.clear();
        self.words.extend(tokens.iter().map(|&t| t as i32));
        write(&mut *self.stream, &self.buffers.tokens, &self.words)?;
        self.words.clear();
        self.words.extend((self.committed..self.committed + rows).map(|p| p as i32));
        write(&mut *self.stream, &self.buffers.positions, &self.words)?;
        let mut control = [0; Control::WORDS];
        control[Control::ROWS] = rows as i32;
        control[Control::COMMITTED] = self.committed as i32;
        control[Control::LOGIT_FIRST] = first as i32;
        control[Control::LOGIT_ROWS] = count as i32;
        write(&mut *self.stream, &self.buffers.control.0, &control)?;
        Ok(count)
    }

    fn run(&mut self, tokens: &[u32], regime: Regime, want: WantLogits) -> Result<()> {
        let graph = Arc::clone(match regime {
            Regime::Step if tokens.len() == 1 => &self.single_graph,
            Regime::Step => &self.step_graph,
            Regime::Prefill => {
                let (asked, capacity) = (tokens.len(), self.options.rows());
                let mut fitting = self.prefill_graphs.iter().rev();
                let fitting = fitting.find(|(rows, _)| asked <= *rows);
                &fitting.ok_or(GenerateFault::TooManyRows { asked, capacity })?.1
            }
        });
        self.launch(tokens, want, &*graph)
    }

    fn launch(&mut self, tokens: &[u32], want: WantLogits, graph: &dyn Graph) -> Result<()> {
        if let Some(speculation) = &mut self.speculation {
            speculation.make_room(&mut *self.stream, self.committed, tokens.len())?;
        }
        let count = self.write_inputs(tokens, want)?;
        self.stream.launch_graph(graph)?;
        self.finish(tokens.len(), count)
    }

    /// Reads the small results back and commits the rows.
    fn finish(&mut self, rows: usize, count: usize) -> Result<()> {
        self.logit_count = count;
        let argmax = &mut self.argmax[..count];
        read(&mut *self.stream, &self.buffers.head.top_ids, bytemuck::cast_slice_mut(argmax))?;
        self.committed += rows;
        match self.argmax[..count].iter().position(|&id| id == Draw::NOT_FINITE) {
            Some(row) => Err(DeviceFault::NonFinite { op: "lm_head", row }.into()),
            None => Ok(()),
        }
    }

    /// Rows of the last call that have logits.
    pub fn logit_rows(&self) -> usize {
        self.logit_count
    }

    /// The most likely token after a row of the last call, ties to the lowest id. `None`
    /// after a sampled step.
    pub fn argmax(&self, row: usize) -> Option<u32> {
        let id = self.argmax[..self.logit_count].get(row);
        id.and_then(|&id| u32::try_from(id).ok())
    }

    /// Logits of all rows that have them, `[rows, vocab]`, copied from the device.
    pub fn read_logits(&mut self) -> Result<&[f32]> {
        let len = self.logit_count * self.engine.config().vocab;
        let logits = &mut self.logits[..len];
        read(&mut *self.stream, &self.buffers.head.logits, bytemuck::cast_slice_mut(logits))?;
        Ok(&self.logits[..len])
    }

    /// Runs a call operation by operation and shows the hidden states of the last
    /// row: after the embedding (0), after each layer, after the final norm. Slow: for
    /// checks.
    pub fn step_traced(
        &mut self,
        tokens: &[u32],
        see: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<()> {
        self.check(tokens)?;
        let count = self.write_inputs(tokens, WantLogits::Last)?;
        let builder = GraphBuilder {
            config: self.engine.config(),
            weights: &self.engine.weights,
            buffers: &self.buffers,
            kv: &self.kv,
            recurrent: &self.recurrent,
            tap: None,
            verify: None,
            sampled: false,
        };
        let width = self.engine.config().hidden;
        let mut values = vec![0f32; width];
        for traced in builder.build(Regime::Step)? {
            let kernel = self.engine.device.prepare(&traced.op)?;
            self.stream.launch(&*kernel)?;
            if let Some(hidden) = traced.hidden {
                let row = if hidden.compact { 0 } else { tokens.len() - 1 };
                let offset = hidden.tensor.offset() + row * width * 4;
                let bytes = bytemuck::cast_slice_mut(&mut values);
                self.stream.read(hidden.tensor.buffer(), offset, bytes)?;
                see(hidden.index, &values);
            }
        }
        self.finish(tokens.len(), count)
    }

    /// A copy of the recurrent state of every delta layer, for checks.
    pub fn read_state(&mut self) -> Result<Vec<f32>> {
        let mut out = Vec::new();
        for layer in self.recurrent.layers() {
            for tensor in [&layer.conv, &layer.state] {
                let start = out.len();
                out.resize(start + tensor.shape().elements(), 0.0);
                read(&mut *self.stream, tensor, bytemuck::cast_slice_mut(&mut out[start..]))?;
            }
        }
        Ok(out)
    }

    /// A copy of the committed keys and values of every attention layer, for checks.
    pub fn read_cache(&mut self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        for tensor in self.kv.layers().iter().flat_map(|layer| [&layer.k, &layer.v]) {
            let slots = tensor.shape().dims().first().copied().unwrap_or(0).max(1);
            let start = out.len();
            out.resize(start + tensor.bytes() / slots * self.committed, 0);
            read(&mut *self.stream, tensor, &mut out[start..])?;
        }
        Ok(out)
    }
}

pub(super) fn write(stream: &mut dyn Stream, tensor: &Tensor, words: &[i32]) -> Result<()> {
    stream.write(tensor.buffer(), tensor.offset(), bytemuck::cast_slice(words))
}

pub(super) fn read(stream: &mut dyn Stream, tensor: &Tensor, bytes: &mut [u8]) -> Result<()> {
    if bytes.is_empty() {
        return stream.synchronize();
    }
    stream.read(tensor.buffer(), tensor.offset(), bytes)
}

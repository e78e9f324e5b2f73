//! What can be wrong with a request.

#[cfg(doc)]
use crate::device::MemoryPlan;
use crate::device::MemorySize;

/// A fault of a request; the session stays usable.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateFault {
    /// The prompt has no tokens.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Prompt and wanted tokens do not fit in the context.
    #[error(
        "context_length_exceeded: the prompt has {prompt} tokens, the context holds {context}{}; \
         {}", of_room(*room), way_out(*context, *max)
    )]
    ContextLengthExceeded {
        /// Tokens of the prompt (and what the session already holds).
        prompt: usize,
        /// Tokens of the context.
        context: usize,
        /// Tokens that must stay free for an answer.
        room: usize,
        /// Tokens of the longest context of the model.
        max: usize,
    },
    /// A token id is not in the vocabulary.
    #[error("token id {id} is not in the vocabulary of {vocab}")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Vocabulary size.
        vocab: usize,
    },
    /// A context of this size is not possible.
    #[error("a context of {asked} tokens is not possible: the model was made for 1 to {max}")]
    BadContext {
        /// Asked for.
        asked: usize,
        /// The model's own limit.
        max: usize,
    },
    /// The prefill chunk is not a multiple of the grid.
    #[error(
        "a prefill chunk of {asked} tokens is not possible: use a multiple of {grid} up to {max}"
    )]
    BadChunk {
        /// Asked for.
        asked: usize,
        /// The absolute grid in tokens.
        grid: usize,
        /// Largest chunk.
        max: usize,
    },
    /// More rows were asked of a call than it was reserved for.
    #[error("{asked} rows in one call, reserved for {capacity}")]
    TooManyRows {
        /// Asked for.
        asked: usize,
        /// Reserved.
        capacity: usize,
    },
    /// The plan needs more memory than the device has free.
    #[error(
        "a context of {context} tokens needs {} of memory on {device}, {} are free: \
         {parts}; lower --context", MemorySize(*needed), MemorySize(*free)
    )]
    DoesNotFit {
        /// Context in tokens.
        context: usize,
        /// Bytes planned.
        needed: u64,
        /// Bytes free.
        free: u64,
        /// Device.
        device: String,
        /// What is needed, by kind, as in [`MemoryPlan::parts_on`].
        parts: String,
    },
    /// Speculation was asked of a session without a drafter.
    #[error("this session has no drafter; give it a draft model or use --spec off")]
    NoDrafter,
    /// The history of a speculative step is not the sequence plus one pending token.
    #[error("a history of {history} tokens does not extend {committed} committed ones by one")]
    HistoryMismatch {
        /// Tokens of the history.
        history: usize,
        /// Tokens committed.
        committed: usize,
    },
    /// Rows that do not lead from the root down.
    #[error("the rows to commit are no path of the tree")]
    BadPath,
    /// A commit without a tree: none was drafted, or the sequence has gone on since.
    #[error("there is no tree to commit rows of; draft one first")]
    NoTree,
    /// A checkpoint whose keys and values may be gone.
    #[error("the checkpoint is not of this sequence any more")]
    StaleCheckpoint,
    /// The request was cancelled during prefill.
    #[error("cancelled")]
    Cancelled,
}

fn of_room(room: usize) -> String {
    match room {
        0 => String::new(),
        1 => " (one must stay free)".to_owned(),
        more => format!(" ({more} must stay free)"),
    }
}

fn way_out(context: usize, max: usize) -> &'static str {
    if context < max {
        "shorten it or raise --context"
    } else {
        "shorten it: that is the model's own limit"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_only_where_it_helps() {
        let message = |prompt, room, max| {
            GenerateFault::ContextLengthExceeded { prompt, context: 64, room, max }.to_string()
        };
        let start = "context_length_exceeded: the prompt has";
        let free = "64 tokens, the context holds 64 (one must stay free)";
        let raise = format!("{start} {free}; shorten it or raise --context");
        assert_eq!(message(64, 1, 128), raise);
        let limit = "64; shorten it: that is the model's own limit";
        assert_eq!(message(70, 0, 64), format!("{start} 70 tokens, the context holds {limit}"));
        assert!(message(70, 2, 64).contains("64 (2 must stay free)"));
    }
}

//! What can be wrong with a request's sampling and stop parameters, or with the logits it
//! is asked to choose from.

/// A fault of one request; the engine and other requests go on. Each rule has a variant.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestFault {
    /// `temperature` is NaN, negative or too large.
    #[error("temperature is {value}; give a number from 0 (greedy) to 100")]
    Temperature {
        /// What was given.
        value: f32,
    },
    /// `top_p` is NaN or outside 0..=1.
    #[error("top_p is {value}; give a number from 0 to 1 (1 = off)")]
    TopP {
        /// What was given.
        value: f32,
    },
    /// `min_p` is NaN or outside 0..=1.
    #[error("min_p is {value}; give a number from 0 (off) to 1")]
    MinP {
        /// What was given.
        value: f32,
    },
    /// `repetition_penalty` is NaN or outside 0.01..=100.
    #[error("repetition_penalty is {value}; give a number from 0.01 to 100 (1 = off)")]
    RepetitionPenalty {
        /// What was given.
        value: f32,
    },
    /// `frequency_penalty` is NaN or outside -2..=2.
    #[error("frequency_penalty is {value}; give a number from -2 to 2 (0 = off)")]
    FrequencyPenalty {
        /// What was given.
        value: f32,
    },
    /// `presence_penalty` is NaN or outside -2..=2.
    #[error("presence_penalty is {value}; give a number from -2 to 2 (0 = off)")]
    PresencePenalty {
        /// What was given.
        value: f32,
    },
    /// `penalty_last_n` is below -1.
    #[error("penalty_last_n is {value}; give -1 (whole history), 0 (no penalties) or a count")]
    PenaltyLastN {
        /// What was given.
        value: i32,
    },
    /// A bias is NaN, +inf or too large.
    #[error(
        "logit_bias of token {id} is {value}; give a number from -10000 to 10000, or -inf to ban"
    )]
    LogitBias {
        /// The token.
        id: u32,
        /// What was given.
        value: f32,
    },
    /// A biased token is not in the vocabulary.
    #[error("logit_bias names token {id}; token ids go from 0 to {vocab} (exclusive)")]
    LogitBiasId {
        /// What was given.
        id: u32,
        /// Tokens in the vocabulary.
        vocab: u32,
    },
    /// A token has two biases.
    #[error("logit_bias names token {id} twice; give one bias per token")]
    LogitBiasTwice {
        /// The token.
        id: u32,
    },
    /// A stop string holds no bytes.
    #[error("stop string {index} is empty; leave it out or give 1 to 4096 bytes")]
    StopEmpty {
        /// Its place in the list, from 0.
        index: usize,
    },
    /// A stop string is too long.
    #[error("stop string {index} has {bytes} bytes; give 1 to 4096 bytes")]
    StopTooLong {
        /// Its place in the list, from 0.
        index: usize,
        /// Its length.
        bytes: usize,
    },
    /// There are too many stop strings.
    #[error("{count} stop strings are given; give at most 64")]
    StopCount {
        /// How many were given.
        count: usize,
    },
    /// The history holds a token that is not in the vocabulary.
    #[error("history token {index} is {id}; token ids go from 0 to {vocab} (exclusive)")]
    HistoryId {
        /// Its place in the slice given, from 0.
        index: usize,
        /// The token.
        id: u32,
        /// Tokens in the vocabulary.
        vocab: u32,
    },
    /// A log-probability is asked for a token that has no logit.
    #[error("a logprob is asked for token {id}; token ids go from 0 to {vocab} (exclusive)")]
    LogprobId {
        /// The token.
        id: u32,
        /// Logits there are.
        vocab: usize,
    },
    /// The logits do not have one value per token.
    #[error("{got} logits are given for a vocabulary of {vocab}; give one per token")]
    LogitCount {
        /// Logits given.
        got: usize,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A logit is NaN or +inf (-inf is a mask and allowed); the request must end.
    #[error(
        "the logit of token {id} is {value}; the model computed no usable value, end the request"
    )]
    NonFiniteLogit {
        /// The first such token.
        id: u32,
        /// Its logit, after bias and penalties when those made it so.
        value: f32,
    },
    /// Every token is masked with -inf, so there is nothing to choose from.
    #[error("every token is masked; lift a logit_bias of -inf or another mask")]
    NoCandidates,
}

//! Stop strings, matched on bytes while text streams out.

use crate::Result;
use crate::sample::RequestFault;

/// Most stop strings of a request.
const MAX_STOPS: usize = 64;
/// Most bytes of a stop string.
const MAX_STOP_BYTES: usize = 4096;

/// One stop string and how much of it the text's end matches (Knuth, Morris and Pratt).
#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// `border[i]`: length of the longest proper border of the first `i + 1` bytes.
    border: Vec<usize>,
    /// Length of the longest suffix of the text so far that starts this string.
    matched: usize,
}

impl Pattern {
    fn new(bytes: &[u8]) -> Self {
        let mut pattern = Self { bytes: bytes.to_vec(), border: vec![0], matched: 0 };
        // The border of a prefix is what matching the string against itself, one byte late,
        // has matched there.
        for &byte in bytes.iter().skip(1) {
            pattern.advance(byte);
            pattern.border.push(pattern.matched);
        }
        pattern.matched = 0;
        pattern
    }

    /// Takes in the next byte of the text.
    fn advance(&mut self, byte: u8) {
        loop {
            if self.bytes.get(self.matched) == Some(&byte) {
                self.matched += 1;
                return;
            }
            match self.matched.checked_sub(1) {
                Some(last) => self.matched = self.border.get(last).copied().unwrap_or_default(),
                None => return,
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.matched == self.bytes.len()
    }
}

/// A stop string that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopHit {
    /// Which one, counting from 0 in the order given.
    pub which: usize,
    /// Where it begins, in bytes from the start of this push; negative when it began in an
    /// earlier one.
    pub begin: i64,
    /// Where it ends, in bytes from the start of this push (exclusive): what the caller
    /// pushed from here on is not part of the answer.
    pub end: i64,
}

/// What a push sets free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emit<'a> {
    /// Bytes that are certain to be part of the answer, to be passed on now. They may end
    /// inside a UTF-8 character.
    pub bytes: &'a [u8],
    /// The stop string that ends the answer, once there is one.
    pub stopped: Option<StopHit>,
}

/// Finds stop strings in a stream of bytes, holding back only what may turn out to be one.
///
/// The match that *ends* first counts, and among those that end together the longest (the
/// first listed among equal ones). The answer is the text before it, without the stop
/// string. How the text is split over pushes makes no difference. Feed it token bytes as
/// they are, and decode UTF-8 after it.
#[derive(Debug, Clone, Default)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Text not yet dropped: `free` bytes handed out by the last push, then those held back.
    text: Vec<u8>,
    free: usize,
    /// The stop found, counted from the end of all pushed so far.
    hit: Option<StopHit>,
}

impl StopMatcher {
    /// A matcher for at most 64 strings of 1 to 4096 bytes each; with none, all text passes.
    ///
    /// # Errors
    /// `StopCount`, `StopEmpty` or `StopTooLong`.
    pub fn new<S: AsRef<[u8]>>(stops: &[S]) -> Result<Self> {
        if stops.len() > MAX_STOPS {
            return Err(RequestFault::StopCount { count: stops.len() }.into());
        }
        let mut patterns = Vec::with_capacity(stops.len());
        for (index, stop) in stops.iter().enumerate() {
            let stop = stop.as_ref();
            if stop.is_empty() {
                return Err(RequestFault::StopEmpty { index }.into());
            }
            if stop.len() > MAX_STOP_BYTES {
                return Err(RequestFault::StopTooLong { index, bytes: stop.len() }.into());
            }
            patterns.push(Pattern::new(stop));
        }
        Ok(Self { patterns, ..Self::default() })
    }

    /// Takes in the next bytes of the text, of one token or of several.
    ///
    /// After a stop nothing more is emitted; each further push reports the same stop, with
    /// offsets from its own start.
    pub fn push(&mut self, bytes: &[u8]) -> Emit<'_> {
        self.text.drain(..self.free);
        self.free = 0;
        let len = bytes.len() as i64;
        if let Some(hit) = &mut self.hit {
            // Kept relative to the end of the stream, which has moved.
            let now = *hit;
            hit.begin -= len;
            hit.end -= len;
            return Emit { bytes: &[], stopped: Some(now) };
        }
        for (&byte, end) in bytes.iter().zip(1i64..) {
            self.text.push(byte);
            self.patterns.iter_mut().for_each(|pattern| pattern.advance(byte));
            let whole = self.patterns.iter().enumerate().filter(|(_, p)| p.is_whole());
            // `max_by_key` takes the last of equals; going backwards makes it the first.
            let Some((which, found)) = whole.rev().max_by_key(|(_, p)| p.matched) else { continue };
            let found = found.matched;
            self.free = self.text.len().saturating_sub(found);
            self.text.truncate(self.free);
            let stop = StopHit { which, begin: end - found as i64, end };
            self.hit = Some(StopHit { which, begin: stop.begin - len, end: end - len });
            return Emit { bytes: &self.text, stopped: Some(stop) };
        }
        let held = self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or_default();
        self.free = self.text.len().saturating_sub(held);
        Emit { bytes: self.text.get(..self.free).unwrap_or_default(), stopped: None }
    }

    /// The text has ended: sets free what was held back (nothing after a stop). The matcher
    /// is then as new.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.text);
        rest.drain(..self.free);
        self.free = 0;
        self.hit = None;
        self.patterns.iter_mut().for_each(|pattern| pattern.matched = 0);
        rest
    }

    /// Whether a stop string has been found.
    pub fn is_stopped(&self) -> bool {
        self.hit.is_some()
    }
}

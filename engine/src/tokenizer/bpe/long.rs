//! Long words, in blocks that fit the nearest cache.
//!
//! A word may be cut where no pair across the cut is ever joined. The tokens at the
//! cut change as their sides are encoded: on the left L1, L2, ... end there, on the
//! right R1, R2, ... begin there. Until a pair across is joined each side goes on as
//! if it were alone. When Li and Rj stand there at the same time, their pair of rank r
//! is joined only once every lower pair is; so it never is when the left side gets
//! past Li by joining ranks up to r (of equals the left goes first), or the right side
//! past Rj by joining ranks below r. A block's record of its edges tells that. It is
//! asked of every Li and Rj, which is stricter than need be, as some never meet.
//! By the same argument a block may be longer than what is taken from it: what comes
//! before one of its tokens was encoded as if it were alone.

use super::Merges;
use super::block::{Block, Stay};

/// Where a word is cut for want of a better place, so that places fit 32 bits. No text
/// that a model could take comes near it.
const LONGEST: usize = 1 << 30;

/// Places tried for a cut before the block is made twice as long.
const TRIES: usize = 4;

/// A cut: its place, what stood to the left of it, and the block to the right.
struct Cut {
    place: usize,
    left: Vec<Stay>,
    right: Block,
}

impl Merges {
    /// Appends the tokens of a word, encoded in blocks of `size` bytes where cuts can
    /// be found, of more where not.
    pub(super) fn encode_long(&self, word: &[u8], size: usize, out: &mut Vec<u32>) {
        for word in word.chunks(LONGEST) {
            let from = out.len();
            if self.encode_blocks(word, size, out).is_none() {
                out.truncate(from);
                out.extend(Block::new(self, word).tokens().map(|(_, id)| id));
            }
        }
    }

    /// `None` when a cut turned out to be none after what follows it was appended.
    fn encode_blocks(&self, word: &[u8], size: usize, out: &mut Vec<u32>) -> Option<()> {
        let (mut rest, mut len) = (word, size);
        let mut block = Block::new(self, start(rest, len));
        let mut left = Vec::new();
        while len < rest.len() {
            match self.cut(&block, rest, len, size) {
                Some(cut) => {
                    let taken = block.tokens().take_while(|&(place, _)| place < cut.place);
                    out.extend(taken.map(|(_, id)| id));
                    rest = rest.get(cut.place..)?;
                    (block, left, len) = (cut.right, cut.left, size);
                }
                None => {
                    len = len.saturating_mul(2);
                    block = Block::new(self, start(rest, len));
                    // With more text after it the block may have begun otherwise.
                    if self.may_join(&left, &block) {
                        return None;
                    }
                }
            }
        }
        out.extend(block.tokens().map(|(_, id)| id));
        Some(())
    }

    /// A cut in the third quarter of `block`, the first `len` bytes of `text`, with a
    /// block of `size` bytes to the right of it.
    fn cut(&self, block: &Block, text: &[u8], len: usize, size: usize) -> Option<Cut> {
        let places = block.tokens().map(|(place, _)| place);
        let mut places: Vec<usize> =
            places.take_while(|&p| p <= len / 4 * 3).filter(|&p| p > 0 && p >= len / 2).collect();
        places.reverse();
        places.into_iter().take(TRIES).find_map(|place| {
            let byte = self.byte(*text.get(place.checked_sub(1)?)?);
            let left: Vec<Stay> = block.last(place, byte).collect();
            let right = Block::new(self, start(text.get(place..)?, size));
            (!self.may_join(&left, &right)).then_some(Cut { place, left, right })
        })
    }

    /// Whether a pair of what stood to the left and of what stood at the beginning of
    /// `right` may be joined.
    fn may_join(&self, left: &[Stay], right: &Block) -> bool {
        left.iter().any(|&(left, left_end)| {
            right.first().any(|(right, right_end)| {
                let rank = self.get(left, right).rank;
                rank < left_end && rank <= right_end
            })
        })
    }
}

/// The first `len` bytes, or all there are.
fn start(text: &[u8], len: usize) -> &[u8] {
    text.get(..len).unwrap_or(text)
}

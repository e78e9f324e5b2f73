//! Accepted paths, read anew in each launch.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Path, TreeRows};

use super::Bind;
use crate::memory::{Plain, Span, View};
use crate::pool::Worker;

/// A [`Path`] in device memory.
pub(crate) struct PathWords {
    words: View<i32>,
    /// Most rows it can name.
    pub(crate) capacity: usize,
}

impl PathWords {
    pub(crate) fn new(bind: &Bind<'_>, path: &Path) -> Result<Self, DeviceFault> {
        let [words] = bind.dims(&path.0, "a path must be [1 + M]")?;
        let capacity = words - 1;
        let fits = (1..=TreeRows::MAX).contains(&capacity);
        bind.ensure(fits, "a path has room for 1 to 64 rows")?;
        Ok(Self { words: bind.view(&path.0)?, capacity })
    }

    /// The path's rows, of `rows` in all. Words that are not a path among them fail
    /// the launch.
    pub(crate) fn read(&self, worker: &Worker<'_>, rows: usize) -> &[i32] {
        // SAFETY: inputs of an operation are not written while it runs.
        let words = unsafe { self.words.read(0..1 + self.capacity) };
        accepted(words, rows).unwrap_or_else(|| worker.refuse("the path is not one of the rows"))
    }
}

/// The rows in a path's words: row 0 first, ascending, all below `rows`.
fn accepted(words: &[i32], rows: usize) -> Option<&[i32]> {
    let (count, path) = words.split_first()?;
    let path = path.get(..usize::try_from(*count).ok()?)?;
    let inside = usize::try_from(*path.last()?).is_ok_and(|last| last < rows);
    let ascends = path[0] == 0 && path.is_sorted_by(|a, b| a < b);
    (inside && ascends).then_some(path)
}

/// One range of columns of some memory in rows of `width`.
pub(crate) struct Columns<T> {
    pub(crate) memory: Span<T>,
    pub(crate) width: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl<T: Plain> Columns<T> {
    fn row(&self, row: usize) -> std::ops::Range<usize> {
        let start = row * self.width + self.first;
        start..start + self.count
    }

    /// Moves the path's rows together: row `slot(path[i])` to row `slot(i)`.
    ///
    /// # Safety
    /// The columns belong to one worker, and `slot` takes different rows to different
    /// places.
    pub(crate) unsafe fn compact(&self, path: &[i32], slot: impl Fn(usize) -> usize) {
        for (to, &from) in path.iter().enumerate() {
            // A path has been checked.
            let from = usize::try_from(from).unwrap_or(to);
            // Rows of a path ascend from 0, so `from` is at or after `to`, and no row
            // is overwritten before it has moved.
            if from != to {
                let (from, to) = (self.row(slot(from)), self.row(slot(to)));
                // SAFETY: one worker's (caller), and two different rows.
                unsafe { self.memory.write(to).copy_from_slice(self.memory.read(from)) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accepted;

    #[test]
    fn only_ascending_rows_from_0_are_a_path() {
        assert_eq!(accepted(&[1, 0], 1), Some(&[0][..]));
        assert_eq!(accepted(&[3, 0, 2, 5, -1], 6), Some(&[0, 2, 5][..]));
        let refused: [&[i32]; 10] = [
            &[],
            &[0, 0],
            &[-1, 0],
            &[2, 0],
            &[i32::MAX, 0],
            &[1, 1],
            &[1, -1],
            &[2, 0, 0],
            &[3, 0, 3, 2],
            &[2, 0, 6],
        ];
        for words in refused {
            assert_eq!(accepted(words, 6), None, "{words:?}");
        }
        assert_eq!(accepted(&[1, 0], 0), None);
    }
}

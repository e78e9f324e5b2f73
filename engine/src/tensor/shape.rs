//! Shapes.

use std::fmt;

/// The most dimensions a tensor may have (GGUF allows four).
pub const MAX_DIMS: usize = 4;

/// Up to four dimensions, outermost first (row-major: the last one is contiguous).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [usize; MAX_DIMS],
    rank: u8,
}

impl Shape {
    /// A shape from its dimensions, outermost first. `None` past four dimensions,
    /// with none, or when the element count overflows.
    pub fn new(dims: &[usize]) -> Option<Self> {
        if dims.is_empty() || dims.len() > MAX_DIMS {
            return None;
        }
        dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        let mut all = [1; MAX_DIMS];
        all[..dims.len()].copy_from_slice(dims);
        Some(Self { dims: all, rank: dims.len() as u8 })
    }

    /// A one-dimensional shape.
    pub fn vector(len: usize) -> Self {
        Self { dims: [len, 1, 1, 1], rank: 1 }
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Length of the contiguous dimension.
    pub fn row_len(&self) -> usize {
        self.dims[usize::from(self.rank) - 1]
    }

    /// Number of rows: all dimensions but the contiguous one, multiplied.
    pub fn rows(&self) -> usize {
        self.dims[..usize::from(self.rank) - 1].iter().product()
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.dims()).finish()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, d) in self.dims().iter().enumerate() {
            write!(f, "{}{d}", if i > 0 { "x" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_row_length() {
        let s = Shape::new(&[2, 3, 5]).unwrap();
        assert_eq!((s.rows(), s.row_len(), s.elements()), (6, 5, 30));
        assert_eq!(s.to_string(), "2x3x5");
        assert_eq!(Shape::new(&[7]).map(|s| s.rows()), Some(1));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(Shape::new(&[]).is_none());
        assert!(Shape::new(&[1; 5]).is_none());
        assert!(Shape::new(&[usize::MAX, 2]).is_none());
    }
}

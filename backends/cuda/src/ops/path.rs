//! Accepted paths, and moving their rows together.

use foretoken::device::DeviceFault;
use foretoken::kernel::{Path, TreeRows};

use super::Bind;
use crate::memory::View;

/// Threads of a block that moves columns.
pub(super) const COLUMNS: u32 = 128;

/// A path's words, and the most rows it can name: 1 to 64.
pub(super) fn path(bind: &Bind<'_>, path: &Path) -> Result<(View<i32>, usize), DeviceFault> {
    let [words] = bind.dims(&path.0, "a path must be [1 + M]")?;
    let capacity = words - 1;
    bind.ensure((1..=TreeRows::MAX).contains(&capacity), "a path has room for 1 to 64 rows")?;
    Ok((bind.view(&path.0)?, capacity))
}

/// The largest of `units` bytes that rows of these sizes at these addresses are whole
/// multiples of; at least the smallest of them.
pub(super) fn unit(units: &[usize], rows: &[usize], addresses: &[u64]) -> usize {
    let whole = |unit: usize| {
        rows.iter().all(|row| row.is_multiple_of(unit))
            && addresses.iter().all(|address| address.is_multiple_of(unit as u64))
    };
    units.iter().copied().filter(|&unit| whole(unit)).max().unwrap_or(units[0])
}

#[cfg(test)]
mod tests {
    use super::unit;

    #[test]
    fn rows_are_moved_by_the_largest_unit_that_fits() {
        let units = [2, 4, 16];
        assert_eq!(unit(&units, &[256, 512], &[1024, 4096]), 16);
        assert_eq!(unit(&units, &[256, 516], &[1024, 4096]), 4);
        assert_eq!(unit(&units, &[256, 512], &[1028, 4096]), 4);
        assert_eq!(unit(&units, &[10, 512], &[1024, 4096]), 2);
        assert_eq!(unit(&units[1..], &[20], &[1040]), 4);
    }
}

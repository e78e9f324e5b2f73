//! Checking operands.

use foretoken::device::{DeviceFault, Weight};
use foretoken::kernel::{Control, RowSet};
use foretoken::tensor::{DType, Tensor};

use crate::device::{Core, CpuWeight};
use crate::memory::{Plain, View};
use crate::pool::Worker;
use crate::simd::Isa;

type Checked<T> = Result<T, DeviceFault>;

/// Elements with a storage type of their own.
pub(crate) trait Element: Plain {
    /// The storage type.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}

impl Element for i32 {
    const DTYPE: DType = DType::I32;
}

impl Element for i64 {
    const DTYPE: DType = DType::I64;
}

/// Binds the operands of one operation.
pub(crate) struct Bind<'a> {
    core: &'a Core,
    op: &'static str,
}

impl<'a> Bind<'a> {
    pub(crate) fn new(core: &'a Core, op: &'static str) -> Self {
        Self { core, op }
    }

    /// The instruction set kernels are to use.
    pub(crate) fn isa(&self) -> Isa {
        self.core.isa
    }

    /// Workers that will run the kernel.
    pub(crate) fn threads(&self) -> usize {
        self.core.info.units as usize
    }

    /// An operand fault.
    pub(crate) fn bad(&self, detail: &'static str) -> DeviceFault {
        DeviceFault::BadOperands { op: self.op, detail }
    }

    /// A type this operation has no kernel for.
    pub(crate) fn unsupported(&self, dtype: DType) -> DeviceFault {
        DeviceFault::Unsupported { op: self.op, dtype, arch: self.core.info.arch.clone() }
    }

    /// Fails with `detail` unless the condition holds.
    pub(crate) fn ensure(&self, holds: bool, detail: &'static str) -> Checked<()> {
        if holds { Ok(()) } else { Err(self.bad(detail)) }
    }

    /// The dimensions of a tensor of rank `N`, none of them zero.
    pub(crate) fn dims<const N: usize>(
        &self,
        tensor: &Tensor,
        detail: &'static str,
    ) -> Checked<[usize; N]> {
        let shape = tensor.shape();
        let dims = <[usize; N]>::try_from(shape.dims()).map_err(|_| self.bad(detail))?;
        self.ensure(!dims.contains(&0), detail)?;
        Ok(dims)
    }

    /// The elements of a tensor whose type has to be that of `T`.
    pub(crate) fn view<T: Element>(&self, tensor: &Tensor) -> Checked<View<T>> {
        if tensor.dtype() != T::DTYPE {
            return Err(self.unsupported(tensor.dtype()));
        }
        self.raw(tensor)
    }

    /// A tensor's memory as values of `T`, whatever its type.
    pub(crate) fn raw<T: Plain>(&self, tensor: &Tensor) -> Checked<View<T>> {
        if tensor.buffer().device() != self.core.id {
            return Err(DeviceFault::ForeignBuffer { op: self.op });
        }
        View::of(tensor).ok_or(self.bad("a tensor is not aligned to its element"))
    }

    /// This driver's form of a weight.
    pub(crate) fn weight<'w>(&self, weight: &'w Weight) -> Checked<&'w CpuWeight> {
        let own = weight.inner().downcast_ref::<CpuWeight>();
        let own = own.filter(|_| weight.device() == self.core.id);
        own.ok_or(DeviceFault::ForeignBuffer { op: self.op })
    }

    /// The control block.
    pub(crate) fn control(&self, control: &Control) -> Checked<Controls> {
        let [words] = self.dims(&control.0, "the control block must be [4]")?;
        self.ensure(words == Control::WORDS, "the control block must be [4]")?;
        Ok(Controls { words: self.view(&control.0)? })
    }

    /// Fails when an output shares memory with another output or with an input.
    pub(crate) fn apart(&self, outputs: &[&Tensor], inputs: &[&Tensor]) -> Checked<()> {
        for (i, out) in outputs.iter().enumerate() {
            for other in outputs[i + 1..].iter().chain(inputs) {
                self.ensure(!overlap(out, other), "an output overlaps another operand")?;
            }
        }
        Ok(())
    }

    /// True when both are the same memory; fails when they overlap otherwise.
    pub(crate) fn same(&self, output: &Tensor, input: &Tensor) -> Checked<bool> {
        let (a, b) = (range(output), range(input));
        if a == b {
            return Ok(true);
        }
        self.ensure(!overlap(output, input), "an output overlaps an input in part")?;
        Ok(false)
    }

    /// Makes sure that the kernel finds this much scratch memory when it runs.
    pub(crate) fn scratch(&self, bytes: Option<usize>) -> Checked<()> {
        let bytes = bytes.ok_or(self.bad("the size of the scratch memory overflows"))?;
        self.core.reserve_scratch(bytes)
    }
}

fn range(tensor: &Tensor) -> Option<std::ops::Range<usize>> {
    let all = crate::memory::bytes_of(tensor.buffer())?.addresses();
    let start = all.start + tensor.offset();
    Some(start..start + tensor.bytes())
}

fn overlap(a: &Tensor, b: &Tensor) -> bool {
    match (range(a), range(b)) {
        (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
        // Not memory of this driver; `view` says so.
        _ => false,
    }
}

/// The control block, read anew in each launch.
pub(crate) struct Controls {
    words: View<i32>,
}

/// Rows of a call: input row `first + i` goes to output row `i`, `i < count`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows {
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Controls {
    fn word(&self, worker: &Worker<'_>, index: usize) -> usize {
        // SAFETY: no operation that reads its control block writes it (`Bind::apart`),
        // and copies wait for the launch to end.
        let word = unsafe { self.words.value(index) };
        usize::try_from(word).unwrap_or_else(|_| worker.refuse("a control word is negative"))
    }

    /// Live rows; more than the tensors hold fails the launch.
    pub(crate) fn rows(&self, worker: &Worker<'_>, capacity: usize) -> usize {
        let rows = self.word(worker, Control::ROWS);
        if rows > capacity {
            worker.refuse("the control block names more rows than were recorded");
        }
        rows
    }

    /// Committed tokens.
    pub(crate) fn committed(&self, worker: &Worker<'_>) -> usize {
        self.word(worker, Control::COMMITTED)
    }

    /// Committed tokens, after which `rows` rows must fit a cache of `context` slots;
    /// else the launch fails.
    pub(crate) fn committed_in(&self, worker: &Worker<'_>, rows: usize, context: usize) -> usize {
        let committed = self.committed(worker);
        if committed.checked_add(rows).is_none_or(|end| end > context) {
            worker.refuse("the call reaches past the end of the cache");
        }
        committed
    }

    /// Rows of a set, checked against the rows of inputs and outputs.
    pub(crate) fn row_set(
        &self,
        worker: &Worker<'_>,
        set: RowSet,
        inputs: usize,
        outputs: usize,
    ) -> Rows {
        let (first, count) = match set {
            RowSet::All => (0, self.word(worker, Control::ROWS)),
            RowSet::Logits => {
                (self.word(worker, Control::LOGIT_FIRST), self.word(worker, Control::LOGIT_ROWS))
            }
            RowSet::LogitsCompact => (0, self.word(worker, Control::LOGIT_ROWS)),
        };
        let end = first.checked_add(count);
        if end.is_none_or(|end| end > inputs) || count > outputs {
            worker.refuse("the control block names more rows than were recorded");
        }
        Rows { first, count }
    }
}

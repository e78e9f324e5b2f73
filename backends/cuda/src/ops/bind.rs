//! Checking operands, and finding the code for them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use foretoken::device::{Buffer, DeviceFault, Weight};
use foretoken::kernel::{Control, KernelKey, RowSet, TreeRows};
use foretoken::tensor::{DType, Tensor};

use crate::device::{ARRIVALS, Core, CudaWeight, Function, Limits, Target};
use crate::launch::{CudaKernel, Launch, Scratch};
use crate::memory::{Element, Plain, View, address_of};

type Checked<T> = Result<T, DeviceFault>;

/// Where unbacked memory of the driver's own is said to lie, aligned like any allocation.
const UNBACKED: u64 = 1 << 62;

/// Binds the operands of one operation.
pub(crate) struct Bind<'a> {
    core: &'a Arc<Core>,
    op: &'static str,
    /// Most scratch memory asked for, when that alone is wanted.
    measured: Option<&'a Cell<usize>>,
}

impl<'a> Bind<'a> {
    pub(crate) fn new(core: &'a Arc<Core>, op: &'static str) -> Self {
        Self { core, op, measured: None }
    }

    /// Binds for the sake of how much scratch memory is asked for. Operands may be unbacked,
    /// what comes out is not to be launched, and nothing is reserved.
    pub(crate) fn measuring(
        core: &'a Arc<Core>,
        op: &'static str,
        measured: &'a Cell<usize>,
    ) -> Self {
        Self { core, op, measured: Some(measured) }
    }

    /// What the code in use was compiled for. Variants are chosen by this, not by the
    /// device: it may run portable code of an older architecture.
    pub(crate) fn target(&self) -> Target {
        self.core.code().target
    }

    /// Sizes of the device.
    pub(crate) fn limits(&self) -> Limits {
        self.core.limits
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

    /// The dimensions of a tensor of rank `N`, none of them zero or past 31 bits.
    pub(crate) fn dims<const N: usize>(
        &self,
        tensor: &Tensor,
        detail: &'static str,
    ) -> Checked<[usize; N]> {
        let shape = tensor.shape();
        let dims = <[usize; N]>::try_from(shape.dims()).map_err(|_| self.bad(detail))?;
        self.ensure(!dims.contains(&0), detail)?;
        let short = dims.iter().all(|&dim| i32::try_from(dim).is_ok());
        self.ensure(short, "a dimension is past 31 bits")?;
        Ok(dims)
    }

    /// A count as kernels take it.
    pub(crate) fn int(&self, count: usize) -> Checked<i32> {
        i32::try_from(count).map_err(|_| self.bad("a size is past 31 bits"))
    }

    /// Blocks of a grid: `count / per`, rounded up, at least one.
    pub(crate) fn blocks(&self, count: usize, per: usize) -> Checked<u32> {
        let blocks = count.div_ceil(per.max(1)).max(1);
        u32::try_from(blocks).map_err(|_| self.bad("a grid is past 32 bits"))
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
        self.part(tensor.buffer(), tensor.offset(), tensor.bytes())
            .ok_or(self.bad("a tensor is not aligned to its element"))
    }

    /// Bytes of a buffer as values of `T`; `None` when they are not all inside or not aligned,
    /// or the buffer is not one of this driver.
    pub(crate) fn part<T: Plain>(
        &self,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
    ) -> Option<View<T>> {
        View::at(self.address(buffer)?, buffer, offset, bytes)
    }

    /// Where a buffer begins. One without memory has a place only while nothing is launched.
    fn address(&self, buffer: &Buffer) -> Option<u64> {
        match self.measured {
            Some(_) => buffer.unbacked_address().or_else(|| address_of(buffer)),
            None => address_of(buffer),
        }
    }

    /// Whether every view lies on a multiple of 16 bytes, as wide loads want it. (A rule
    /// for choosing a variant, not a fault: tensors may lie anywhere.)
    pub(crate) fn wide(&self, addresses: &[u64]) -> bool {
        addresses.iter().all(|address| address.is_multiple_of(16))
    }

    /// This driver's form of a weight.
    pub(crate) fn weight(&self, weight: &Weight) -> Checked<Arc<CudaWeight>> {
        let foreign = || DeviceFault::ForeignBuffer { op: self.op };
        if weight.device() != self.core.id {
            return Err(foreign());
        }
        if let (Some(_), Some(buffer)) = (self.measured, weight.inner().downcast_ref::<Buffer>()) {
            let weight = CudaWeight::unbacked(self.core, &weight.spec, buffer)?;
            return Ok(Arc::new(weight.ok_or_else(foreign)?));
        }
        Arc::clone(weight.inner()).downcast().map_err(|_| foreign())
    }

    /// The control block.
    pub(crate) fn control(&self, control: &Control) -> Checked<View<i32>> {
        let [words] = self.dims(&control.0, "the control block must be [4]")?;
        self.ensure(words == Control::WORDS, "the control block must be [4]")?;
        self.view(&control.0)
    }

    /// A tree that has to hold `rows` rows.
    pub(crate) fn tree(&self, tree: &TreeRows, rows: usize) -> Checked<TreeViews> {
        let [parents] = self.dims(&tree.parents, "parents must be [M]")?;
        let [depths] = self.dims(&tree.depths, "depths must be [M]")?;
        let [masks, words] = self.dims(&tree.masks, "masks must be [M, 2]")?;
        self.ensure(words == 2, "masks must be [M, 2]")?;
        let same = parents == depths && parents == masks;
        self.ensure(same, "parents, depths and masks differ in rows")?;
        self.ensure(parents <= TreeRows::MAX, "a tree has at most 64 rows")?;
        self.ensure(parents >= rows, "the tree holds fewer rows than the other operands")?;
        // No kernel reads the masks, but they are part of the operand.
        self.view::<i32>(&tree.masks)?;
        Ok(TreeViews { parents: self.view(&tree.parents)?, depths: self.view(&tree.depths)? })
    }

    /// Fails when an output shares memory with another output or with an input.
    pub(crate) fn apart(&self, outputs: &[&Tensor], inputs: &[&Tensor]) -> Checked<()> {
        for (i, out) in outputs.iter().enumerate() {
            for other in outputs[i + 1..].iter().chain(inputs) {
                self.ensure(!self.overlap(out, other), "an output overlaps another operand")?;
            }
        }
        Ok(())
    }

    /// True when both are the same memory; fails when they overlap otherwise.
    pub(crate) fn same(&self, output: &Tensor, input: &Tensor) -> Checked<bool> {
        let (a, b) = (self.range(output), self.range(input));
        if a == b {
            return Ok(true);
        }
        self.ensure(!self.overlap(output, input), "an output overlaps an input in part")?;
        Ok(false)
    }

    fn range(&self, tensor: &Tensor) -> Option<Range<u64>> {
        let start = self.address(tensor.buffer())? + tensor.offset() as u64;
        Some(start..start + tensor.bytes() as u64)
    }

    fn overlap(&self, a: &Tensor, b: &Tensor) -> bool {
        match (self.range(a), self.range(b)) {
            (Some(a), Some(b)) => a.start < b.end && b.start < a.end,
            // Not memory of this driver; `view` says so.
            _ => false,
        }
    }

    /// Scratch memory for the launches of one kernel, aligned to 256 bytes; `None` is a
    /// size that overflowed. Undefined before each launch of the *operation*; launches of
    /// one operation see what the ones before them left there.
    pub(crate) fn scratch(&self, bytes: Option<usize>) -> Checked<Scratch> {
        let bytes = bytes.ok_or(self.bad("the size of the scratch memory overflows"))?;
        let buffer = match self.measured {
            Some(most) => {
                most.set(most.get().max(bytes));
                Buffer::unbacked(self.core.id, bytes, UNBACKED)
            }
            None => self.core.scratch(bytes)?,
        };
        let view = self.part(&buffer, 0, bytes);
        Ok(Scratch(view.ok_or(self.bad("the size of the scratch memory overflows"))?))
    }

    /// Counters for the blocks that add something up together: zero before and after each
    /// launch. Only for launches that use scratch memory, which come one after the other.
    pub(crate) fn arrivals(&self) -> Checked<View<u32>> {
        if self.measured.is_none() {
            return self.core.arrivals();
        }
        let bytes = ARRIVALS * size_of::<u32>();
        let buffer = Buffer::unbacked(self.core.id, bytes, UNBACKED);
        self.part(&buffer, 0, bytes).ok_or(self.bad("counters are not aligned"))
    }

    /// A kernel of a source: `stamp` of `stamp.cu`.
    pub(crate) fn function(&self, family: &'static str, name: &'static str) -> Checked<Function> {
        self.core.function(family, name)
    }

    /// The operation, with one or more launches in order and the weights they read.
    pub(crate) fn kernel(
        &self,
        key: KernelKey,
        launches: Vec<Launch>,
        weights: Vec<Arc<CudaWeight>>,
    ) -> Checked<CudaKernel> {
        CudaKernel::new(self.core, key, launches, weights)
    }
}

/// What kernels read of a tree on the device.
pub(crate) struct TreeViews {
    /// `[M]`.
    pub(crate) parents: View<i32>,
    /// `[M]`.
    pub(crate) depths: View<i32>,
}

/// A row set as kernels take it: `ft::RowSet`.
pub(crate) fn row_set(rows: RowSet) -> u32 {
    match rows {
        RowSet::All => 0,
        RowSet::Logits => 1,
        RowSet::LogitsCompact => 2,
    }
}

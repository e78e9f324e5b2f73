//! The kernels for each weight type, and the constants they were compiled with: those of
//! `fragment.cuh`.

use foretoken::tensor::DType;

/// In which order inputs are handed to the lanes of a warp (`Order` in `linear.cu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Weights in blocks; activations as f16.
    Blocks = 0,
    /// F16 weights; activations as f16.
    Scalars = 1,
    /// BF16 weights; activations as bfloat16.
    BfloatScalars = 2,
}

/// A kernel for steps of up to so many rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepKernel {
    /// Rows (*columns*) that an operation has packed.
    pub(super) columns: usize,
    /// Of these, the rows of a block.
    pub(super) block: usize,
    /// Name.
    pub(super) name: &'static str,
}

/// The tensor-core kernels of one weight type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mma {
    /// Source.
    pub(super) family: &'static str,
    /// Ascending; the last holds 64.
    pub(super) steps: &'static [StepKernel],
    /// Weights come in bricks.
    pub(super) bricks: bool,
    /// The step kernels know helpers (`kHelped`).
    pub(super) helped: bool,
    /// Kernel for more rows.
    pub(super) prefill: &'static str,
    /// Inputs of a unit.
    pub(super) unit: usize,
    /// Pairs of products that a unit has.
    pub(super) pairs: usize,
    /// Stored bytes of a unit.
    pub(super) unit_bytes: usize,
    /// What every unit begins at a multiple of.
    pub(super) grain: usize,
}

impl Mma {
    /// Columns of the smallest step kernel for so many rows.
    pub(super) fn columns(&self, rows: usize) -> Option<usize> {
        self.steps.iter().map(|step| step.columns).find(|columns| rows <= *columns)
    }

    /// The step kernel with so many columns.
    pub(super) fn step(&self, columns: usize) -> Option<&StepKernel> {
        self.steps.iter().find(|step| step.columns == columns)
    }

    /// Bytes that 16 rows' stored unit takes in shared memory: a brick, or rows that start
    /// in different banks (`Feed::kStage`).
    pub(super) fn stage(&self) -> usize {
        let pieces = (self.unit_bytes + 16 - self.grain).div_ceil(16);
        if self.bricks { 16 * self.unit_bytes } else { 16 * (pieces | 1) * 16 }
    }
}

macro_rules! steps {
    ($type:literal: $($columns:literal / $block:literal)*) => {
        &[$(StepKernel {
            columns: $columns,
            block: $block,
            name: concat!("linear_step_", $type, "_", $block),
        }),*]
    };
}

/// A type with a source of its own.
macro_rules! own {
    ($type:literal, $unit:literal, $bytes:literal, $helped:literal) => {
        Mma {
            family: concat!("linear_", $type),
            steps: steps!($type: 8/8 16/16 24/24 32/32 48/24 64/32),
            bricks: true,
            helped: $helped,
            prefill: concat!("linear_prefill_", $type),
            unit: $unit,
            pairs: $unit / 32,
            unit_bytes: $bytes,
            grain: 16,
        }
    };
}

/// A type that goes by way of f32: `unit_bytes`, `grain`.
macro_rules! other {
    ($type:literal, $bytes:literal, $grain:literal) => {
        Mma {
            family: "linear_other",
            steps: steps!($type: 64/64),
            bricks: false,
            helped: false,
            prefill: concat!("linear_prefill_", $type),
            unit: 256,
            pairs: 8,
            unit_bytes: $bytes,
            grain: $grain,
        }
    };
}

/// The tensor-core kernels for a type; none for F32, whose products are always in f32.
pub(super) fn mma(dtype: DType) -> Option<Mma> {
    Some(match dtype {
        DType::Q4_K => own!("q4_k", 256, 144, true),
        DType::Q5_K => own!("q5_k", 256, 176, false),
        DType::Q6_K => own!("q6_k", 256, 210, false),
        DType::Q8_0 => own!("q8_0", 256, 272, false),
        DType::F16 => own!("f16", 128, 256, false),
        DType::BF16 => own!("bf16", 128, 256, false),
        DType::Q4_0 => other!("q4_0", 144, 2),
        DType::Q4_1 => other!("q4_1", 160, 2),
        DType::Q5_0 => other!("q5_0", 176, 2),
        DType::Q5_1 => other!("q5_1", 192, 2),
        DType::Q2_K => other!("q2_k", 84, 2),
        DType::Q3_K => other!("q3_k", 110, 2),
        DType::IQ4_NL => other!("iq4_nl", 144, 2),
        DType::IQ4_XS => other!("iq4_xs", 136, 2),
        DType::MXFP4 => other!("mxfp4", 136, 1),
        DType::NVFP4 => other!("nvfp4", 144, 2),
        _ => return None,
    })
}

/// The kernel with f32 activations, in `linear_f32`.
pub(super) fn plain(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::F32 => "linear_f32_f32",
        DType::F16 => "linear_f32_f16",
        DType::BF16 => "linear_f32_bf16",
        DType::Q4_0 => "linear_f32_q4_0",
        DType::Q4_1 => "linear_f32_q4_1",
        DType::Q5_0 => "linear_f32_q5_0",
        DType::Q5_1 => "linear_f32_q5_1",
        DType::Q8_0 => "linear_f32_q8_0",
        DType::Q2_K => "linear_f32_q2_k",
        DType::Q3_K => "linear_f32_q3_k",
        DType::Q4_K => "linear_f32_q4_k",
        DType::Q5_K => "linear_f32_q5_k",
        DType::Q6_K => "linear_f32_q6_k",
        DType::IQ4_NL => "linear_f32_iq4_nl",
        DType::IQ4_XS => "linear_f32_iq4_xs",
        DType::MXFP4 => "linear_f32_mxfp4",
        DType::NVFP4 => "linear_f32_nvfp4",
        _ => return None,
    })
}

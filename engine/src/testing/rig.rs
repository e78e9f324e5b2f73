//! The device side of a case: tensors with poison and guard zones, and launches.

use half::{bf16, f16};

use super::compare::{self, STALE};
use super::fault::CaseFault;
use super::rng::Rng;
use crate::device::{
    Activations, Device, DeviceFault, HostTensor, Stream, Weight, WeightRole, WeightSpec,
};
use crate::format::SharedBytes;
use crate::kernel::{Control, Op};
use crate::quant::decode;
use crate::tensor::{DType, Shape, Tensor};

/// Bytes before and after every tensor that nobody may write.
const GUARD: usize = 256;
/// What the guard zones hold.
const GUARD_BYTE: u8 = 0xa5;
/// What memory holds before it is written: NaN as any float, -1 as an integer.
pub(super) const POISON: u8 = 0xff;

/// One case's device, stream, generator and tensors.
pub(super) struct Rig<'a> {
    device: &'a dyn Device,
    stream: Box<dyn Stream>,
    pub(super) rng: Rng,
    tensors: Vec<(&'static str, Tensor)>,
    digest: u64,
}

impl<'a> Rig<'a> {
    pub(super) fn new(device: &'a dyn Device, seed: u64, name: &str) -> crate::Result<Self> {
        let (stream, rng) = (device.stream()?, Rng::new(seed, name));
        Ok(Self { device, stream, rng, tensors: Vec::new(), digest: 0 })
    }

    /// A tensor whose first bytes are `data` and the rest poison.
    pub(super) fn bytes(
        &mut self,
        name: &'static str,
        dtype: DType,
        dims: &[usize],
        data: &[u8],
    ) -> crate::Result<Tensor> {
        let bad = DeviceFault::BadOperands { op: "rig", detail: "a shape that does not exist" };
        let shape = Shape::new(dims).ok_or(bad)?;
        let bytes = shape.elements() / dtype.block_len() * dtype.block_bytes();
        let buffer = self.device.allocate(bytes + 2 * GUARD, name)?;
        self.stream.fill(&buffer, 0, bytes + 2 * GUARD, GUARD_BYTE)?;
        self.stream.fill(&buffer, GUARD, bytes, POISON)?;
        self.stream.write(&buffer, GUARD, data)?;
        let tensor = Tensor::new(&buffer, GUARD, dtype, shape)?;
        self.tensors.push((name, tensor.clone()));
        Ok(tensor)
    }

    /// An F32 tensor whose first elements are `data` and the rest NaN.
    pub(super) fn f32(
        &mut self,
        name: &'static str,
        dims: &[usize],
        data: &[f32],
    ) -> crate::Result<Tensor> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.bytes(name, DType::F32, dims, &bytes)
    }

    /// An I32 tensor whose first elements are `data` and the rest -1.
    pub(super) fn i32(
        &mut self,
        name: &'static str,
        dims: &[usize],
        data: &[i32],
    ) -> crate::Result<Tensor> {
        let bytes: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.bytes(name, DType::I32, dims, &bytes)
    }

    /// An output: nothing but poison.
    pub(super) fn blank(&mut self, name: &'static str, dims: &[usize]) -> crate::Result<Tensor> {
        self.f32(name, dims, &[])
    }

    /// A control block.
    pub(super) fn control(&mut self, words: [usize; 4]) -> crate::Result<Control> {
        let words = words.map(|w| w as i32);
        Ok(Control(self.i32("control", &[Control::WORDS], &words)?))
    }

    /// Overwrites a control block.
    pub(super) fn set_control(
        &mut self,
        control: &Control,
        words: [usize; 4],
    ) -> crate::Result<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|&w| (w as i32).to_le_bytes()).collect();
        self.stream.write(control.0.buffer(), control.0.offset(), &bytes)
    }

    /// Random weights of a type, with the values they stand for.
    pub(super) fn weight(
        &mut self,
        dtype: DType,
        rows: usize,
        cols: usize,
        role: WeightRole,
        activations: Activations,
        scale: f32,
    ) -> crate::Result<(Weight, Vec<f32>)> {
        let (bytes, values) = random_weights(&mut self.rng, dtype, rows * cols)?;
        let host = HostTensor { dtype, rows, cols, bytes: SharedBytes::from(bytes), scale };
        let spec = WeightSpec { dtype, rows, cols, role, activations };
        Ok((self.device.load_weight(&host, &spec)?, values))
    }

    /// Prepares and runs an operation, alone.
    pub(super) fn launch(&mut self, op: impl Into<Op>) -> crate::Result<()> {
        let op = op.into();
        // What can be prepared can be planned.
        self.device.scratch_bytes(&op)?;
        let kernel = self.device.prepare(&op)?;
        self.stream.launch(&*kernel)?;
        self.stream.synchronize()
    }

    /// Fails unless the device refuses the operation for its operands.
    pub(super) fn refuses(&self, op: impl Into<Op>, why: &'static str) -> Result<(), CaseFault> {
        match self.device.prepare(&op.into()) {
            Err(crate::Error::Device(DeviceFault::BadOperands { .. })) => Ok(()),
            Err(other) => Err(other.into()),
            Ok(_) => Err(CaseFault::Accepted(why)),
        }
    }

    /// All bytes of a tensor, kept out of the digest: what no two runs share.
    pub(super) fn peek(&mut self, tensor: &Tensor) -> crate::Result<Vec<u8>> {
        let mut bytes = vec![0; tensor.bytes()];
        self.stream.read(tensor.buffer(), tensor.offset(), &mut bytes)?;
        Ok(bytes)
    }

    /// All bytes of a tensor.
    pub(super) fn read(&mut self, tensor: &Tensor) -> crate::Result<Vec<u8>> {
        let bytes = self.peek(tensor)?;
        // FNV-1a over everything a case looks at.
        let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        self.digest = bytes.iter().fold(self.digest, hash);
        Ok(bytes)
    }

    /// Hash of all that was read.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Compares an I32 tensor that was filled with [`STALE`] with `want` for its first
    /// elements; the rest must not have been written.
    pub(super) fn expect_i32(
        &mut self,
        name: &'static str,
        tensor: &Tensor,
        want: &[i32],
    ) -> Result<(), CaseFault> {
        let got: Vec<i32> = self.words(tensor)?.iter().map(|&w| w as i32).collect();
        compare::integers(name, &got, want)
    }

    /// An I32 tensor filled with [`STALE`]: an output whose values may be -1.
    pub(super) fn stale(&mut self, name: &'static str, dims: &[usize]) -> crate::Result<Tensor> {
        self.i32(name, dims, &vec![STALE; dims.iter().product()])
    }

    /// All elements of a four-byte tensor, as bits.
    pub(super) fn words(&mut self, tensor: &Tensor) -> crate::Result<Vec<u32>> {
        let bytes = self.read(tensor)?;
        Ok(bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect())
    }

    /// Compares an F32 tensor with a reference for its first elements; the rest must
    /// still be poison. `allowed` gives the tolerance of an element.
    pub(super) fn expect(
        &mut self,
        name: &'static str,
        tensor: &Tensor,
        want: &[f64],
        allowed: impl Fn(usize) -> f64,
    ) -> Result<(), CaseFault> {
        compare::floats(name, &self.words(tensor)?, want, allowed)
    }

    /// Looks at the guard zones of every tensor of the case.
    pub(super) fn check_guards(&mut self) -> Result<(), CaseFault> {
        for (name, tensor) in std::mem::take(&mut self.tensors) {
            let mut all = vec![0; tensor.buffer().bytes()];
            self.stream.read(tensor.buffer(), 0, &mut all)?;
            let inside = GUARD..GUARD + tensor.bytes();
            let bad = |(i, b): (usize, &u8)| !inside.contains(&i) && *b != GUARD_BYTE;
            if let Some(byte) = all.iter().enumerate().position(bad) {
                return Err(CaseFault::Guard { tensor: name, byte });
            }
        }
        Ok(())
    }
}

/// Stored weights whose values are of ordinary size. Scalars are rounded from
/// `-1..1`; blocks are random bytes, drawn again until their values are finite and
/// the largest is between 1/64 and 2, which needs no knowledge of any layout.
pub(super) fn random_weights(
    rng: &mut Rng,
    dtype: DType,
    elements: usize,
) -> crate::Result<(Vec<u8>, Vec<f32>)> {
    let per_block = dtype.block_len();
    let mut bytes = Vec::with_capacity(elements / per_block * dtype.block_bytes());
    let mut values = Vec::with_capacity(elements);
    let (mut block, mut out) = (vec![0; dtype.block_bytes()], vec![0.0; per_block]);
    while values.len() < elements {
        match dtype {
            DType::F32 => block.copy_from_slice(&rng.float().to_le_bytes()),
            DType::F16 => block.copy_from_slice(&f16::from_f32(rng.float()).to_le_bytes()),
            DType::BF16 => block.copy_from_slice(&bf16::from_f32(rng.float()).to_le_bytes()),
            _ => block.iter_mut().for_each(|b| *b = rng.next() as u8),
        }
        decode(dtype, &block, &mut out)?;
        let top = out.iter().fold(0f32, |m, x| m.max(x.abs()));
        let ordinary = out.iter().all(|x| x.is_finite()) && (1.0 / 64.0..=2.0).contains(&top);
        if ordinary || !dtype.is_block() {
            bytes.extend_from_slice(&block);
            values.extend_from_slice(&out);
        }
    }
    Ok((bytes, values))
}

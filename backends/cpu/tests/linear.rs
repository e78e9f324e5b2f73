//! The linear operation through the device: row sets, several parts, threads.

use std::sync::Arc;

use foretoken::device::{
    Activations, Buffer, Device, DeviceFault, Driver, HostTensor, Weight, WeightRole, WeightSpec,
};
use foretoken::kernel::{Control, Linear, LinearPart, Op, Regime, RowSet};
use foretoken::quant::decode;
use foretoken::tensor::{DType, Shape, Tensor};
use foretoken::{Error, Result};
use foretoken_cpu::simd::Isa;
use foretoken_cpu::{CpuDriver, CpuOptions};

const INPUTS: usize = 256;
/// Rows recorded.
const ROWS: usize = 70;

fn device(threads: usize, isa: Isa) -> Arc<dyn Device> {
    let options = CpuOptions { threads: Some(threads), isa: Some(isa), memory_limit: None };
    CpuDriver::new(options).open(0).unwrap()
}

fn noise(n: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// `rows` x [`INPUTS`] of a type whose blocks are made by hand.
fn host(dtype: DType, rows: usize) -> HostTensor {
    let mut bytes = Vec::new();
    let codes: Vec<u8> = noise(rows * INPUTS, 7).iter().map(|v| (v * 128.0) as i8 as u8).collect();
    let half = |v: f32| half::f16::from_f32(v).to_le_bytes();
    for (i, codes) in codes.chunks(dtype.block_len()).enumerate() {
        let factor = 0.004 + 0.001 * (i % 5) as f32;
        match dtype {
            DType::Q8_0 => {
                bytes.extend(half(factor));
                bytes.extend(codes);
            }
            DType::Q4_K => {
                bytes.extend(half(factor));
                bytes.extend(half(factor / 2.0));
                bytes.extend(&codes[..140]);
            }
            DType::NVFP4 => {
                bytes.extend(codes[..4].iter().map(|c| c & 0x37));
                bytes.extend(&codes[4..36]);
            }
            DType::F32 => bytes.extend((f32::from(codes[0] as i8) / 128.0).to_le_bytes()),
            _ => unreachable!("no maker for {dtype}"),
        }
    }
    let scale = if dtype == DType::NVFP4 { 0.25 } else { 1.0 };
    HostTensor { dtype, rows, cols: INPUTS, bytes: bytes.into(), scale }
}

fn load(device: &dyn Device, host: &HostTensor, act: Activations) -> Result<Weight> {
    let HostTensor { dtype, rows, cols, .. } = *host;
    let spec = WeightSpec { dtype, rows, cols, role: WeightRole::Linear, activations: act };
    let weight = device.load_weight(host, &spec)?;
    assert_eq!(weight.bytes(), device.weight_bytes(&spec)?);
    Ok(weight)
}

fn floats(device: &dyn Device, dims: &[usize], values: &[f32]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    assert_eq!(shape.elements(), values.len());
    let buffer = device.allocate(values.len() * 4, "test").unwrap();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    device.stream().unwrap().write(&buffer, 0, &bytes).unwrap();
    Tensor::new(&buffer, 0, DType::F32, shape).unwrap()
}

fn control(device: &dyn Device) -> (Buffer, Control) {
    let buffer = device.allocate(16, "control").unwrap();
    let tensor = Tensor::new(&buffer, 0, DType::I32, Shape::new(&[4]).unwrap()).unwrap();
    (buffer, Control(tensor))
}

fn values(device: &dyn Device, tensor: &Tensor) -> Vec<f32> {
    let mut bytes = vec![0; tensor.bytes()];
    device.stream().unwrap().read(tensor.buffer(), tensor.offset(), &mut bytes).unwrap();
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Three parts of different types, one of them adding up, over rows chosen by `words`;
/// the outputs of all three, poisoned with NaN where nothing is to be written.
fn run(threads: usize, isa: Isa, act: Activations, set: RowSet, words: [i32; 4]) -> Vec<Vec<f32>> {
    let device = device(threads, isa);
    let device = &*device;
    let (buffer, control) = control(device);
    let x = floats(device, &[ROWS, INPUTS], &noise(ROWS * INPUTS, 3));
    let parts = [(DType::Q4_K, 40, false), (DType::F32, 3, true), (DType::NVFP4, 130, true)];
    let parts: Vec<_> = parts
        .into_iter()
        .map(|(dtype, n, accumulate)| {
            let weight = load(device, &host(dtype, n), act).unwrap();
            let start = match accumulate {
                true => noise(ROWS * n, 5),
                false => vec![f32::NAN; ROWS * n],
            };
            LinearPart { weight, out: floats(device, &[ROWS, n], &start), accumulate }
        })
        .collect();
    let outs: Vec<_> = parts.iter().map(|p| p.out.clone()).collect();
    let kernel = device
        .prepare(&Op::from(Linear { control, regime: Regime::Step, rows: set, x, parts }))
        .unwrap();
    assert_eq!(kernel.key().to_string(), format!("linear/Q4_K/{}", isa.name()));
    let mut stream = device.stream().unwrap();
    let words: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    stream.write(&buffer, 0, &words).unwrap();
    stream.launch(&*kernel).unwrap();
    stream.synchronize().unwrap();
    outs.iter().map(|out| values(device, out)).collect()
}

fn bits(v: &[f32]) -> Vec<u32> {
    v.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn row_sets_read_and_write_the_right_rows() {
    let x = noise(ROWS * INPUTS, 3);
    // (set, control words, first input row, rows)
    let cases = [
        (RowSet::All, [5, 9, 0, 0], 0, 5),
        (RowSet::All, [ROWS as i32, 0, 1, 1], 0, ROWS),
        (RowSet::Logits, [20, 0, 13, 7], 13, 7),
        (RowSet::Logits, [20, 0, 19, 1], 19, 1),
        (RowSet::LogitsCompact, [20, 0, 13, 7], 0, 7),
        (RowSet::Logits, [20, 0, 5, 0], 5, 0),
    ];
    for act in [Activations::Fast, Activations::F32] {
        for (set, words, first, count) in cases {
            let outs = run(2, Isa::detect(), act, set, words);
            for ((dtype, n, adds), out) in
                [(DType::Q4_K, 40, false), (DType::F32, 3, true), (DType::NVFP4, 130, true)]
                    .into_iter()
                    .zip(&outs)
            {
                let host = host(dtype, n);
                let mut w = vec![0f32; n * INPUTS];
                decode(dtype, &host.bytes, &mut w).unwrap();
                let old = noise(ROWS * n, 5);
                for row in 0..ROWS {
                    for feature in 0..n {
                        let got = out[row * n + feature];
                        let before = if adds { old[row * n + feature] } else { f32::NAN };
                        if row >= count {
                            assert_eq!(got.to_bits(), before.to_bits(), "row {row} was written");
                            continue;
                        }
                        let x = &x[(first + row) * INPUTS..][..INPUTS];
                        let w = &w[feature * INPUTS..][..INPUTS];
                        let terms = x.iter().zip(w).map(|(x, w)| f64::from(x * w * host.scale));
                        let (sum, size) =
                            terms.fold((0.0, 0.0), |(s, q): (f64, f64), t| (s + t, q + t * t));
                        let want = sum + if adds { f64::from(before) } else { 0.0 };
                        // 15-bit inputs are off by up to 1/32512 of their block's largest;
                        // over independent terms that is a few 1e-5 of the root of the sum
                        // of their squares, f32 sums a little more.
                        let slack = if act == Activations::Fast { 5e-4 } else { 1e-4 };
                        let error = (f64::from(got) - want).abs();
                        assert!(
                            error <= slack * size.sqrt() + 1e-4,
                            "{dtype} {act:?} {set:?} {row},{feature}: {got} is not {want}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn threads_and_instruction_sets_give_the_same_bits() {
    for act in [Activations::Fast, Activations::F32] {
        for rows in [1, 2, 17, ROWS as i32] {
            let words = [rows, 0, 0, 0];
            let want = run(1, Isa::Portable, act, RowSet::All, words);
            for (threads, isa) in [(1, Isa::detect()), (2, Isa::detect()), (3, Isa::Portable)] {
                let got = run(threads, isa, act, RowSet::All, words);
                for (got, want) in got.iter().zip(&want) {
                    assert_eq!(bits(got), bits(want), "{threads} threads, {isa}, {rows} rows");
                }
            }
        }
    }
}

#[test]
fn a_launch_repeats_itself() {
    let device = device(3, Isa::detect());
    let (buffer, control) = control(&*device);
    let x = floats(&*device, &[ROWS, INPUTS], &noise(ROWS * INPUTS, 3));
    let weight = load(&*device, &host(DType::Q8_0, 700), Activations::Fast).unwrap();
    let out = floats(&*device, &[ROWS, 700], &vec![0.0; ROWS * 700]);
    let parts = vec![LinearPart { weight, out: out.clone(), accumulate: false }];
    let op = Linear { control, regime: Regime::Step, rows: RowSet::All, x, parts };
    let kernel = device.prepare(&op.into()).unwrap();
    let graph = device.record(&[kernel]).unwrap();
    let mut stream = device.stream().unwrap();
    let mut first = None;
    for round in 0..20 {
        // More rows, then fewer: what is left over from the last launch must not matter.
        for rows in [ROWS as i32, 1, 18] {
            stream.write(&buffer, 0, &rows.to_le_bytes()).unwrap();
            stream.launch_graph(&*graph).unwrap();
        }
        stream.synchronize().unwrap();
        let got = bits(&values(&*device, &out));
        assert_eq!(*first.get_or_insert(got.clone()), got, "round {round}");
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let device = device(1, Isa::detect());
    let device = &*device;
    let weight = load(device, &host(DType::Q8_0, 24), Activations::Fast).unwrap();
    let zeros = |dims: &[usize]| floats(device, dims, &vec![0.0; dims.iter().product()]);
    let prepare = |x: &Tensor, parts: Vec<LinearPart>| {
        let (_, control) = control(device);
        device.prepare(&Op::from(Linear {
            control,
            regime: Regime::Step,
            rows: RowSet::All,
            x: x.clone(),
            parts,
        }))
    };
    let part =
        |out: &Tensor| LinearPart { weight: weight.clone(), out: out.clone(), accumulate: false };
    let (x, out) = (zeros(&[4, INPUTS]), zeros(&[4, 24]));
    assert!(prepare(&x, vec![part(&out)]).is_ok());

    let bad = |result: Result<_>| {
        let fault = result.err();
        assert!(
            matches!(fault, Some(Error::Device(DeviceFault::BadOperands { op: "linear", .. }))),
            "{fault:?}"
        );
    };
    bad(prepare(&x, vec![]));
    bad(prepare(&zeros(&[4, INPUTS - 32]), vec![part(&out)]));
    bad(prepare(&zeros(&[INPUTS]), vec![part(&out)]));
    bad(prepare(&x, vec![part(&zeros(&[4, 23]))]));
    bad(prepare(&x, vec![part(&zeros(&[4 * 24]))]));
    bad(prepare(&x, vec![part(&out), part(&zeros(&[5, 24]))]));
    // Outputs may overlap neither each other nor the input.
    bad(prepare(&x, vec![part(&out), part(&out)]));
    let shared = zeros(&[8, INPUTS]);
    let view = |offset, dims: &[usize]| {
        Tensor::new(shared.buffer(), offset, DType::F32, Shape::new(dims).unwrap()).unwrap()
    };
    bad(prepare(&view(0, &[4, INPUTS]), vec![part(&view(1024, &[4, 24]))]));

    let table = {
        let host = host(DType::Q8_0, 24);
        let HostTensor { dtype, rows, cols, .. } = host;
        let (role, activations) = (WeightRole::Embedding, Activations::Fast);
        let spec = WeightSpec { dtype, rows, cols, role, activations };
        device.load_weight(&host, &spec).unwrap()
    };
    bad(prepare(&x, vec![LinearPart { weight: table, out: out.clone(), accumulate: false }]));

    let other = self::device(1, Isa::detect());
    let foreign = load(&*other, &host(DType::Q8_0, 24), Activations::Fast).unwrap();
    let part = LinearPart { weight: foreign, out: out.clone(), accumulate: false };
    let fault = prepare(&x, vec![part]).err();
    assert!(matches!(fault, Some(Error::Device(DeviceFault::ForeignBuffer { op: "linear" }))));
}

#[test]
fn weights_that_can_not_be_computed_with_are_refused_at_load() {
    let device = device(1, Isa::detect());
    let (role, activations) = (WeightRole::Linear, Activations::Fast);
    let spec = |dtype| WeightSpec { dtype, rows: 16, cols: INPUTS, role, activations };
    for dtype in [DType::Q8_K, DType::IQ2_XXS, DType::TQ1_0, DType::I32, DType::F64] {
        let fault = device.weight_bytes(&spec(dtype)).err();
        let Some(Error::Device(DeviceFault::Unsupported { op: "linear", dtype: named, arch })) =
            fault
        else {
            panic!("{dtype}: {fault:?}")
        };
        assert_eq!((named, arch.as_str()), (dtype, std::env::consts::ARCH));
    }
}

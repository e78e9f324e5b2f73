//! Rotary angles, norm and rotation of queries and keys.

use super::{ROWS, SPARE};
use crate::kernel::{HeadPart, QkNormRope, RopeAngles};
use crate::testing::fault::CaseFault;
use crate::testing::reference::{qk_norm_rope, rope_angles};
use crate::testing::report::Runner;
use crate::testing::rig::Rig;

const EPS: f32 = 1e-6;

pub(super) fn all(run: &mut Runner<'_>) {
    for (rows, dims, theta) in [(1, 2, 1e4), (3, 32, 1e7), (33, 64, 1e7), (129, 128, 1e6)] {
        let name = format!("rope_angles/m={rows}/dims={dims}/theta={theta}");
        run.case(name, |rig| angles(rig, rows, dims, theta));
    }
    // Query heads, key heads, head_dim, q_stride, rotary dims.
    let shapes = [
        (8, 2, 256, 512, 64),
        (24, 4, 128, 128, 128),
        (4, 1, 64, 100, 32),
        (3, 3, 33, 33, 20),
        (2, 1, 16, 32, 2),
    ];
    for (i, &rows) in ROWS.iter().enumerate() {
        let shape = shapes[i % shapes.len()];
        let name = format!("qk_norm_rope/m={rows}/{shape:?}");
        run.case(name, |rig| rotate(rig, rows, shape));
    }
}

fn angles(rig: &mut Rig<'_>, rows: usize, dims: usize, theta: f64) -> Result<(), CaseFault> {
    let mut positions: Vec<i32> = (0..rows).map(|_| rig.rng.below(4096) as i32).collect();
    positions[0] = 262_143;
    let op = RopeAngles {
        control: rig.control([rows, 0, 0, 0])?,
        positions: rig.i32("positions", &[rows + SPARE], &positions)?,
        theta,
        out: rig.blank("out", &[rows + SPARE, dims])?,
    };
    rig.launch(op.clone())?;
    let want: Vec<f64> = positions.iter().flat_map(|&p| rope_angles(p, theta, dims)).collect();
    // An angle of 2^18 taken in F32 would be off by up to 1e-2; this demands more
    // precision than that, and two units of the result.
    rig.expect("out", &op.out, &want, |_| 2.0 * f64::from(f32::EPSILON))
}

type Shape = (usize, usize, usize, usize, usize);

fn rotate(rig: &mut Rig<'_>, rows: usize, shape: Shape) -> Result<(), CaseFault> {
    let (q_heads, k_heads, d, stride, rotary) = shape;
    let q = rig.rng.floats(rows * q_heads * stride);
    let k = rig.rng.floats(rows * k_heads * d);
    let (q_norm, k_norm) = (rig.rng.floats(d), rig.rng.floats(d));
    let position = |_| rig.rng.below(100_000) as i32;
    let positions: Vec<i32> = (0..rows).map(position).collect();
    let table = positions.iter().flat_map(|&p| rope_angles(p, 1e4, rotary));
    let table: Vec<f32> = table.map(|x| x as f32).collect();
    let capacity = rows + SPARE;
    let op = QkNormRope {
        control: rig.control([rows, 0, 0, 0])?,
        angles: rig.f32("angles", &[capacity, rotary], &table)?,
        parts: vec![
            HeadPart {
                x: rig.f32("q", &[capacity, q_heads, stride], &q)?,
                norm: rig.f32("q_norm", &[d], &q_norm)?,
            },
            HeadPart {
                x: rig.f32("k", &[capacity, k_heads, d], &k)?,
                norm: rig.f32("k_norm", &[d], &k_norm)?,
            },
        ],
        eps: EPS,
    };
    rig.launch(op.clone())?;
    let heads = |x: &[f32], stride: usize, weight: &[f32]| -> Vec<f64> {
        let count = x.len() / stride / rows;
        let one = |(i, x): (usize, &[f32])| {
            let row = i / count;
            let mut y = qk_norm_rope(&x[..d], weight, EPS, &table[row * rotary..][..rotary]);
            // What lies between two queries stays as it is.
            y.extend(x[d..].iter().map(|&x| f64::from(x)));
            y
        };
        x.chunks_exact(stride).enumerate().flat_map(one).collect()
    };
    // A normed value is at most 16 * 8 in size, mostly near 1; a rotation adds two
    // of them, so the error is one of size, not of the (perhaps cancelled) result.
    let close = |want: &[f64], stride: usize| {
        let size = |i: &[f64]| i[..d].iter().fold(0f64, |m, x| m.max(x.abs()));
        let sizes: Vec<f64> = want.chunks_exact(stride).map(size).collect();
        move |i: usize| match i % stride < d {
            true => sizes[i / stride] * 16.0 * f64::from(f32::EPSILON),
            false => 0.0,
        }
    };
    let want = heads(&q, stride, &q_norm);
    rig.expect("q", &op.parts[0].x, &want, close(&want, stride))?;
    let want = heads(&k, d, &k_norm);
    rig.expect("k", &op.parts[1].x, &want, close(&want, d))
}

//! A device with the operands of one `TreeBuild`.

use std::sync::Arc;

use foretoken::device::{Buffer, Device, Kernel, Stream};
use foretoken::kernel::{Control, Cursor, TreeBuild, TreeLimits, TreeRows};
use foretoken::tensor::{DType, Shape, Tensor};

/// A new tensor, all zeros.
pub(crate) fn tensor(device: &dyn Device, dtype: DType, dims: &[usize]) -> Tensor {
    let shape = Shape::new(dims).unwrap();
    let buffer = device.allocate(dtype.bytes_for(shape.elements()).unwrap(), "test").unwrap();
    let mut stream = device.stream().unwrap();
    stream.fill(&buffer, 0, buffer.bytes(), 0).unwrap();
    stream.synchronize().unwrap();
    Tensor::new(&buffer, 0, dtype, shape).unwrap()
}

/// Writes words to the start of a buffer.
pub(crate) fn write(stream: &mut dyn Stream, to: &Buffer, words: &[i32]) {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    stream.write(to, 0, &bytes).unwrap();
}

/// A prepared `TreeBuild`; scores are log-probabilities, the pending token is 0.
pub(crate) struct Builder {
    stream: Box<dyn Stream>,
    kernel: Arc<dyn Kernel>,
    op: TreeBuild,
}

/// A row of a tree: its token, its parent and its depth.
pub(crate) type Row = (i32, i32, i32);

impl Builder {
    /// For `positions` lists of `k` candidates and a tree of `capacity` rows.
    pub(crate) fn new(
        device: &dyn Device,
        positions: usize,
        k: usize,
        capacity: usize,
        vocab: usize,
    ) -> Self {
        let ints = |dims: &[usize]| tensor(device, DType::I32, dims);
        let op = TreeBuild {
            cursor: Cursor(ints(&[4])),
            limits: TreeLimits(ints(&[4])),
            ids: ints(&[positions, k]),
            scores: tensor(device, DType::F32, &[positions, k]),
            log_sum_exp: None,
            vocab,
            control: Control(ints(&[4])),
            tokens: ints(&[capacity]),
            positions: ints(&[capacity]),
            tree: TreeRows {
                parents: ints(&[capacity]),
                depths: ints(&[capacity]),
                masks: ints(&[capacity, 2]),
            },
        };
        let kernel = device.prepare(&op.clone().into()).unwrap();
        Self { stream: device.stream().unwrap(), kernel, op }
    }

    /// The rows of the tree, row 0 among them.
    pub(crate) fn build(&mut self, ids: &[i32], scores: &[f32], limits: [i32; 4]) -> Vec<Row> {
        let stream = &mut *self.stream;
        write(stream, self.op.ids.buffer(), ids);
        write(stream, self.op.limits.0.buffer(), &limits);
        let bits: Vec<i32> = scores.iter().map(|x| x.to_bits() as i32).collect();
        write(stream, self.op.scores.buffer(), &bits);
        stream.launch(&*self.kernel).unwrap();
        let mut read = |tensor: &Tensor| -> Vec<i32> {
            let mut bytes = vec![0; tensor.bytes()];
            stream.read(tensor.buffer(), 0, &mut bytes).unwrap();
            bytes.as_chunks().0.iter().map(|b| i32::from_le_bytes(*b)).collect()
        };
        let rows = read(&self.op.control.0)[0] as usize;
        let [tokens, parents, depths] =
            [&self.op.tokens, &self.op.tree.parents, &self.op.tree.depths].map(&mut read);
        (0..rows).map(|row| (tokens[row], parents[row], depths[row])).collect()
    }
}

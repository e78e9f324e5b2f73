//! What can be wrong with a model file.

use super::gguf::Kind;
use super::shown::{Detail, FirstBytes, Shown};
use crate::tensor::{DType, Shape};

/// A fault of a model file. The file's name is added by [`Error`](crate::Error).
/// Names taken from the file are escaped and cut in messages, whole in the fields.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the fields are what the messages say they are
pub enum FormatFault {
    // The file as a whole.
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// A folder where a file was expected.
    #[error("this is a folder, not a {wanted} file")]
    IsDirectory { wanted: &'static str },
    /// A pipe, socket or device: those cannot be mapped and may never end.
    #[error("this is not a regular file")]
    NotRegular,
    /// The magic number of GGUF is not there.
    #[error("not a GGUF file: it starts with {}, not 'GGUF'", FirstBytes(magic))]
    NotGguf { magic: [u8; 4] },
    /// A GGUF file for big-endian machines.
    #[error("a big-endian GGUF file; convert it to little-endian")]
    BigEndian,
    /// A GGUF version other than 2 and 3.
    #[error("GGUF version {version} is not supported, only 2 and 3 are; convert the model again")]
    Version { version: u32 },
    /// The file ends before the thing being read does.
    #[error("truncated in {what}: {need} bytes needed at byte {at}, {left} left")]
    Truncated { what: String, at: u64, need: u64, left: u64 },
    /// A count in a header is larger than the rest of the file can hold.
    #[error("{what}: a count of {count}, but the rest of the file has room for {room}")]
    Count { what: String, count: u64, room: u64 },
    /// A string is longer than any real one.
    #[error("{what}: a string of {len} bytes, over the limit of {limit}")]
    StringTooLong { what: String, len: u64, limit: u64 },
    /// Text that must be UTF-8 is not.
    #[error("{what} is not valid UTF-8")]
    InvalidUtf8 { what: String },

    // Metadata.
    /// A metadata key of no bytes.
    #[error("metadata entry {index} has an empty key")]
    EmptyKey { index: u64 },
    /// The same metadata key twice.
    #[error("the key {} appears twice", Shown(key))]
    DuplicateKey { key: String },
    /// A metadata value of a type that GGUF does not define.
    #[error("the key {} has unknown value type {id}", Shown(key))]
    UnknownValueType { key: String, id: u32 },
    /// Arrays nested past the limit.
    #[error("the key {} nests arrays deeper than {limit}", Shown(key))]
    NestedTooDeep { key: String, limit: usize },
    /// A boolean that is neither 0 nor 1.
    #[error("the key {} holds {byte} where a boolean must be 0 or 1", Shown(key))]
    BadBool { key: String, byte: u8 },
    /// A required metadata key is absent.
    #[error("the key {} is missing", Shown(key))]
    MissingKey { key: String },
    /// A metadata value has another type than its reader wants.
    #[error("the key {} is {found}, expected {wanted}", Shown(key))]
    WrongType { key: String, found: Kind, wanted: &'static str },
    /// A number does not fit the type its reader wants.
    #[error("the key {} holds {}, which does not fit {wanted}", Shown(key), Detail(value))]
    OutOfRange { key: String, value: String, wanted: &'static str },
    /// `general.alignment` is not a power of two up to 1 MiB.
    #[error("general.alignment is {alignment}; it must be a power of two from 1 to {limit}")]
    BadAlignment { alignment: u32, limit: u32 },

    // Tensors.
    /// More tensors than any model has.
    #[error("{count} tensors are listed, over the limit of {limit}")]
    TooManyTensors { count: u64, limit: usize },
    /// A tensor name of no bytes.
    #[error("tensor {index} has an empty name")]
    EmptyTensorName { index: u64 },
    /// The same tensor name twice, in one file or in two shards.
    #[error("the tensor {} appears twice", Shown(tensor))]
    DuplicateTensor { tensor: String },
    /// No dimensions, or more than four.
    #[error("the tensor {} has {dims} dimensions, expected 1 to {limit}", Shown(tensor))]
    BadRank { tensor: String, dims: u64, limit: usize },
    /// A dimension of zero.
    #[error("the tensor {} has a dimension of zero", Shown(tensor))]
    ZeroDim { tensor: String },
    /// Element or byte count past what a machine can address.
    #[error("the size of the tensor {} overflows", Shown(tensor))]
    SizeOverflow { tensor: String },
    /// A ggml type id this build does not know.
    #[error("the tensor {} has unknown type id {id}", Shown(tensor))]
    UnknownTensorType { tensor: String, id: u32 },
    /// Rows that are not whole blocks.
    #[error(
        "the tensor {} has rows of {row} elements, not whole {dtype} blocks of {}",
        Shown(tensor),
        dtype.block_len()
    )]
    PartialBlocks { tensor: String, dtype: DType, row: usize },
    /// An offset that is not a multiple of the alignment.
    #[error("the tensor {} is at offset {offset}, not a multiple of {alignment}", Shown(tensor))]
    Misaligned { tensor: String, offset: u64, alignment: u32 },
    /// Data that ends past the file.
    #[error(
        "the tensor {} needs {bytes} bytes at data offset {offset}, past the {room} bytes of data in the file; is the download complete?",
        Shown(tensor)
    )]
    OutOfFile { tensor: String, offset: u64, bytes: u64, room: u64 },
    /// Two tensors share bytes.
    #[error("the data of the tensors {} and {} overlap", Shown(first), Shown(second))]
    Overlap { first: String, second: String },
    /// A tensor the model needs is absent.
    #[error("the tensor {} is missing", Shown(tensor))]
    MissingTensor { tensor: String },
    /// A tensor has another shape than the model needs (outermost dimension first).
    #[error("the tensor {} has shape {found}, expected {wanted}", Shown(tensor))]
    WrongShape { tensor: String, found: Box<Shape>, wanted: Box<Shape> },
    /// A tensor was given other bytes than its shape and type take.
    #[error("the tensor {} takes {wanted} bytes, got {found}", Shown(tensor))]
    WrongLength { tensor: String, found: usize, wanted: usize },

    // Models in several files.
    /// A shard that the others refer to is absent.
    #[error("this shard of the model is missing ({no} of {count})")]
    MissingShard { no: u32, count: u32 },
    /// A file that says it is one of several does not follow the naming of shards.
    #[error("shard {no} of {count} is not named like NAME-{no:05}-of-{count:05}.gguf")]
    ShardName { no: u32, count: u32 },
    /// A shard disagrees with the others or with its own name.
    #[error("{what} is {found}, expected {wanted} (are the shards of one model?)")]
    ShardMismatch { what: &'static str, found: u64, wanted: u64 },

    // safetensors.
    /// The header is longer than the format allows.
    #[error("not a safetensors file: a header of {len} bytes, over the limit of {limit}")]
    HeaderTooLong { len: u64, limit: u64 },
    /// JSON that does not parse or is not what it must be.
    #[error("{what}: {}", Detail(detail))]
    Json { what: &'static str, detail: String },
    /// A file beside the weights too large to be what it claims.
    #[error("{what} of {len} bytes, over the limit of {limit}")]
    FileTooLong { what: &'static str, len: u64, limit: u64 },
    /// Offsets of a tensor that run backwards.
    #[error("the tensor {} has data offsets {start}..{end}", Shown(tensor))]
    BadOffsets { tensor: String, start: u64, end: u64 },
    /// Offsets of a tensor that do not match its shape.
    #[error("the tensor {} has {found} bytes, its shape and {dtype} make {wanted}", Shown(tensor))]
    BadLength { tensor: String, dtype: String, found: u64, wanted: u64 },
    /// Bytes that belong to no tensor; the format does not allow them.
    #[error("data bytes {start}..{end} belong to no tensor")]
    Hole { start: u64, end: u64 },
    /// An element type that the engine has no use for.
    #[error("the tensor {} has type {}, which is not supported", Shown(tensor), Shown(dtype))]
    UnsupportedDtype { tensor: String, dtype: String },
    /// A folder without weights.
    #[error("no model.safetensors, model.safetensors.index.json or single .safetensors file here")]
    NoWeights,
    /// An index entry that leads out of the model's folder.
    #[error("the index names the file {}, which is not a plain file name", Shown(file))]
    BadShardPath { file: String },
    /// A file the index names is absent.
    #[error("the index names this file, which is missing")]
    MissingIndexed,
    /// The index promises a tensor that its file does not hold.
    #[error("the index promises the tensor {}, which is not in this file", Shown(tensor))]
    NotInShard { tensor: String },
}

//! Models of random weights: the right shape, types and metadata, so that speed and memory
//! can be measured without the real files.
//!
//! `presets` has the shapes with names, `quant` the types of a quantisation, `tensors` the
//! list that follows from both, `settings` and `vocab` the metadata, `fill` and `random`
//! the data, `write` the file.

mod fill;
mod presets;
mod quant;
mod random;
mod settings;
mod shape;
mod tensors;
mod vocab;
mod write;

use std::fmt;
use std::path::Path;

use foretoken::format::{GgufLayout, GgufWriter, Metadata};
use foretoken::tensor::Shape as Dims;

use self::fill::Filler;
pub(crate) use self::presets::{PRESETS, Preset, preset};
pub(crate) use self::quant::Quant;
pub(crate) use self::shape::{Family, Shape};
pub(crate) use self::write::write;

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// Name of the preset.
    pub(crate) name: &'static str,
    /// Its shape, perhaps changed.
    pub(crate) shape: Shape,
    /// Types of the tensors.
    pub(crate) quant: Quant,
    /// The same seed gives the same bytes.
    pub(crate) seed: u64,
}

/// A file ready to be written.
pub(crate) struct Plan {
    /// Head and places.
    pub(crate) layout: GgufLayout,
    /// What makes the data of each tensor.
    pub(crate) fillers: Vec<Filler>,
}

impl Recipe {
    /// Lays the file out. `path` serves for messages; `tokenizer` is where the vocabulary
    /// comes from, when it is not to be made.
    ///
    /// # Errors
    /// Those of the vocabulary; `BadShape` when a tensor can not be.
    pub(crate) fn plan(&self, path: &Path, tokenizer: Option<&Metadata>) -> anyhow::Result<Plan> {
        let mut writer = GgufWriter::new(path);
        let vocabulary = settings::tokenizer(&self.shape, tokenizer)?;
        for (key, value) in settings::model(self).into_iter().chain(vocabulary) {
            writer.metadata(&key, value)?;
        }
        let mut fillers = Vec::new();
        for made in tensors::tensors(self.shape, self.quant) {
            let bad = || SynthFault::BadShape(made.name.clone());
            let dims = Dims::new(&made.dims).ok_or_else(bad)?;
            writer.tensor(&made.name, made.dtype, dims)?;
            let filler = Filler::new(self.seed, &made.name, made.dtype, made.rule);
            fillers.push(filler.ok_or_else(bad)?);
        }
        Ok(Plan { layout: writer.layout()?, fillers })
    }
}

/// Why a model can not be made.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SynthFault {
    /// The file given for its vocabulary has none.
    NoVocabulary,
    /// Its vocabulary does not fit.
    VocabularyTooLarge {
        /// Tokens it has.
        tokens: usize,
        /// Rows there are for them.
        rows: usize,
    },
    /// A tensor of dimensions that can not be.
    BadShape(String),
    /// Ctrl-C.
    Interrupted,
}

impl fmt::Display for SynthFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVocabulary => f.write_str("has no tokenizer.ggml.tokens"),
            Self::VocabularyTooLarge { tokens, rows } => {
                write!(f, "has {tokens} tokens, this preset {rows} rows")
            }
            Self::BadShape(tensor) => write!(f, "{tensor} can not be made"),
            Self::Interrupted => f.write_str("interrupted; nothing is left behind"),
        }
    }
}

impl std::error::Error for SynthFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken::tensor::DType;

    fn plan(name: &str) -> Plan {
        let preset = preset(name).unwrap();
        let Preset { name, quant, shape } = preset;
        Recipe { name, quant, shape, seed: 0 }.plan(Path::new("x"), None).unwrap()
    }

    const GIB: f64 = (1u64 << 30) as f64;

    /// The matrices that a pass streams and the embedding make 15.37 GiB; the gates of
    /// decay and write strength, convolutions and norms add 23 MiB, the vocabulary 8.
    #[test]
    fn the_27b_model_has_its_size() {
        let plan = plan("qwen3.5-27b");
        let is_table = |name: &str| !name.contains("ssm_alpha") && !name.contains("ssm_beta");
        let tables = plan.layout.tensors.iter().filter(|t| t.shape.dims().len() == 2);
        let tables = tables.filter(|t| t.dtype != DType::F32 && is_table(&t.name));
        let tables = tables.map(|t| t.bytes).sum::<u64>() as f64 / GIB;
        assert!((tables / 15.37 - 1.0).abs() < 1e-3, "{tables}");
        let all: u64 = plan.layout.tensors.iter().map(|t| t.bytes).sum();
        assert_eq!(all, 16_526_575_616);
        let head = plan.layout.len - all;
        assert!((4 << 20..16 << 20).contains(&head), "{head}");
        let of = |dtype| plan.layout.tensors.iter().filter(|t| t.dtype == dtype).count();
        // 32 feed-forward outputs, 8 values and the head; queries, keys, values of 48 layers.
        assert_eq!((of(DType::Q6_K), of(DType::Q5_K)), (41, 48));
    }

    /// Parameters and sizes that are known of the published models.
    #[test]
    fn the_other_models_have_their_sizes() {
        let bytes = |name| plan(name).layout.tensors.iter().map(|t| t.bytes).sum::<u64>();
        let near = |name, known: f64| {
            let ratio = bytes(name) as f64 / known;
            assert!((ratio - 1.0).abs() < 0.01, "{name}: {ratio}");
        };
        // BF16 bytes that a token streams (the head is the embedding).
        near("qwen3.5-0.8b", 1.505e9);
        // 1.73 B parameters in Q8_0.
        near("dflash-27b", 1.84e9);
        near("dflash-27b-swa", 1.84e9);
        // 0.596 B parameters in BF16.
        near("scorer-0.6b", 1.192e9);
    }

    #[test]
    fn every_preset_can_be_planned_in_every_quantisation() {
        for preset in PRESETS {
            let mut shape = preset.shape;
            // The vocabulary takes its time; it has tests of its own.
            shape.vocab = 512;
            for quant in Quant::ALL {
                let recipe = Recipe { name: preset.name, shape, quant, seed: 1 };
                let plan = recipe.plan(Path::new("x"), None).unwrap();
                assert_eq!(plan.fillers.len(), plan.layout.tensors.len());
            }
        }
    }
}

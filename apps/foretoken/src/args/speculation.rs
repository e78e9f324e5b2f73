//! Flags of speculative decoding.

use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use foretoken::device::DeviceSpec;
use foretoken::speculate::{SpecLimits, SpecMode};

/// What to draft with.
#[derive(Debug, Args)]
#[command(next_help_heading = "Speculative decoding")]
pub(crate) struct DraftArgs {
    /// Draft model: a DFlash GGUF or safetensors folder, or a name under the model
    /// path; `lookup` proposes from the text itself, `none` nothing [default: the one
    /// that belongs to the default model, else lookup]
    #[arg(long, value_name = "MODEL")]
    draft: Option<PathBuf>,
    /// Device of the draft model: one that `foretoken devices` lists [default: the
    /// model's]
    #[arg(long, value_name = "DEVICE", value_parser = named_device)]
    pub(crate) draft_device: Option<DeviceSpec>,
    /// Most tokens of a drafted chain
    #[arg(long, value_name = "N", default_value_t = SpecLimits::default().draft_len())]
    draft_len: usize,
    /// Most drafted tokens of a tree
    #[arg(long, value_name = "N", default_value_t = SpecLimits::default().tree_budget())]
    tree_budget: usize,
}

/// Where drafts come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DraftSource {
    /// A draft model.
    Model(PathBuf),
    /// The text itself.
    Lookup,
    /// Nowhere.
    None,
}

/// Parses a device that is named: what `auto` picks may not be the model's.
fn named_device(s: &str) -> Result<DeviceSpec, String> {
    match s.parse::<DeviceSpec>() {
        Ok(DeviceSpec::Auto) => Err("name a device, such as cpu:0 or cuda:1".to_owned()),
        Ok(named) => Ok(named),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Parses a mode.
pub(super) fn mode() -> impl TypedValueParser<Value = SpecMode> {
    PossibleValuesParser::new(SpecMode::ALL.map(SpecMode::name))
        .map(|name| name.parse().unwrap_or_default())
}

impl DraftArgs {
    /// The limits, checked.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn limits(&self) -> Result<SpecLimits, String> {
        SpecLimits::new(self.draft_len, self.tree_budget).map_err(|fault| fault.to_string())
    }

    /// Where drafts come from, for a target named on the command line or the default.
    pub(crate) fn source(&self, mode: SpecMode, target: Option<&Path>) -> DraftSource {
        match (&self.draft, mode) {
            (_, SpecMode::Off) => DraftSource::None,
            (Some(name), _) if name == Path::new("none") => DraftSource::None,
            (Some(name), _) if name == Path::new("lookup") => DraftSource::Lookup,
            (Some(path), _) => DraftSource::Model(path.clone()),
            (None, _) => match draft_of(target) {
                Some(draft) => DraftSource::Model(draft.into()),
                None => DraftSource::Lookup,
            },
        }
    }
}

/// The draft model that comes with Foretoken belongs to the default model alone.
fn draft_of(target: Option<&Path>) -> Option<&'static str> {
    let name = Path::new(crate::models::DEFAULT);
    let stem = |p: &Path| p.file_stem().map(ToOwned::to_owned);
    let ours = target.is_none_or(|t| {
        t.file_name() == name.file_name() || stem(name).as_deref() == Some(t.as_os_str())
    });
    ours.then_some(crate::models::DEFAULT_DRAFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(draft: Option<&str>, spec: SpecMode, target: Option<&str>) -> DraftSource {
        let draft = draft.map(PathBuf::from);
        let args = DraftArgs { draft, draft_device: None, draft_len: 15, tree_budget: 22 };
        args.source(spec, target.map(Path::new))
    }

    #[test]
    fn drafts_come_from_where_they_should() {
        let shipped = DraftSource::Model(crate::models::DEFAULT_DRAFT.into());
        let auto = SpecMode::Auto;
        assert_eq!(source(None, auto, None), shipped);
        assert_eq!(source(None, auto, Some("nano-code-Q4_K_M")), shipped);
        assert_eq!(source(None, auto, Some("models/nano/nano-code-Q4_K_M.gguf")), shipped);
        assert_eq!(source(None, auto, Some("other.gguf")), DraftSource::Lookup);
        assert_eq!(source(Some("lookup"), SpecMode::Tree, None), DraftSource::Lookup);
        assert_eq!(source(Some("none"), auto, None), DraftSource::None);
        assert_eq!(source(Some("d.gguf"), SpecMode::Off, None), DraftSource::None);
        assert_eq!(source(Some("d.gguf"), auto, None), DraftSource::Model("d.gguf".into()));
    }
}

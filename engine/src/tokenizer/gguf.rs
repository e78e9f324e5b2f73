//! The tokenizer in a GGUF file's metadata (keys `tokenizer.ggml.*` of the GGUF
//! specification).

use std::borrow::Cow;

use super::fault::{TokenizerFault, shown};
use super::parts::TokenizerParts;
use crate::Result;
use crate::format::{Metadata, StrArray};

/// Reads the metadata; texts stay where they are in the file.
pub(super) fn read(meta: &Metadata) -> Result<TokenizerParts<'_>> {
    let model = meta.require_str("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(TokenizerFault::UnknownModel(shown(model)).into());
    }
    Ok(TokenizerParts {
        pre: meta.require_str("tokenizer.ggml.pre")?.into(),
        tokens: texts("token", meta.require_str_array("tokenizer.ggml.tokens")?)?,
        token_types: meta.i32_array("tokenizer.ggml.token_type")?.map(Cow::Owned),
        merges: texts("merge", meta.require_str_array("tokenizer.ggml.merges")?)?,
        eos: meta.u32("tokenizer.ggml.eos_token_id")?,
        eot: meta.u32("tokenizer.ggml.eot_token_id")?,
        bos: meta.u32("tokenizer.ggml.bos_token_id")?,
        pad: meta.u32("tokenizer.ggml.padding_token_id")?,
        add_bos: meta.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(false),
        chat_template: meta.str("tokenizer.chat_template")?.map(Cow::Borrowed),
        padded_rows: false,
    })
}

fn texts<'m>(what: &'static str, list: StrArray<'m>) -> Result<Vec<Cow<'m, str>>, TokenizerFault> {
    let texts = list.to_strs().map_err(|at| TokenizerFault::TextNotUtf8 { what, at })?;
    Ok(texts.into_iter().map(Cow::Borrowed).collect())
}

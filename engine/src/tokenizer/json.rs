//! Hugging Face `tokenizer.json`: byte-level BPE with a known pattern. Whatever
//! else such a file can say (other models, normalisers that change text, stripping
//! tokens, ...) is refused by name rather than read as something near it.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

use super::fault::{TokenizerFault, shown};
use super::parts::TokenizerParts;
use super::scan::{Pre, QWEN2, QWEN35};

#[derive(Deserialize)]
struct File<'a> {
    #[serde(default, borrow)]
    added_tokens: Vec<Added<'a>>,
    #[serde(borrow)]
    normalizer: Option<Step<'a>>,
    #[serde(borrow)]
    pre_tokenizer: Option<Step<'a>>,
    #[serde(borrow)]
    post_processor: Option<Step<'a>>,
    #[serde(borrow)]
    decoder: Option<Step<'a>>,
    #[serde(borrow)]
    model: Model<'a>,
}

#[derive(Deserialize)]
struct Added<'a> {
    id: u32,
    #[serde(borrow)]
    content: Cow<'a, str>,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    special: bool,
}

/// A normaliser, pre-tokenizer, post-processor or decoder; the fields of all of
/// those that are known here.
#[derive(Deserialize)]
struct Step<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    pretokenizers: Vec<Step<'a>>,
    #[serde(borrow)]
    pattern: Option<Pattern<'a>>,
    #[serde(borrow)]
    behavior: Option<Cow<'a, str>>,
    #[serde(default)]
    invert: bool,
    #[serde(default)]
    add_prefix_space: bool,
    #[serde(default = "yes")]
    use_regex: bool,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
enum Pattern<'a> {
    Regex(#[serde(borrow)] Cow<'a, str>),
    String(#[serde(borrow)] Cow<'a, str>),
}

#[derive(Deserialize)]
struct Model<'a> {
    #[serde(rename = "type", default = "bpe", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    vocab: Entries<'a>,
    #[serde(borrow)]
    merges: Vec<MergeText<'a>>,
    dropout: Option<f32>,
    #[serde(borrow)]
    continuing_subword_prefix: Option<Cow<'a, str>>,
    #[serde(borrow)]
    end_of_word_suffix: Option<Cow<'a, str>>,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

fn bpe() -> Cow<'static, str> {
    Cow::Borrowed("BPE")
}

#[derive(Deserialize)]
#[serde(untagged)]
enum MergeText<'a> {
    Pair(#[serde(borrow)] Cow<'a, str>, #[serde(borrow)] Cow<'a, str>),
    Line(#[serde(borrow)] Cow<'a, str>),
}

/// A JSON object as a list, so that a key given twice is seen twice.
struct Entries<'a>(Vec<(Cow<'a, str>, u32)>);

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token ids by text")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut list = Vec::new();
                while let Some((Text(key), id)) = map.next_entry()? {
                    list.push((key, id));
                }
                Ok(Entries(list))
            }
        }
        from.deserialize_map(List)
    }
}

/// A string that is borrowed from the file where it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a `tokenizer.json`.
pub(super) fn read(bytes: &[u8]) -> Result<TokenizerParts<'_>, TokenizerFault> {
    let file: File<'_> = serde_json::from_slice(bytes).map_err(|error| {
        // Told apart before the typed reading: is it JSON at all?
        let at = serde_json::from_slice::<IgnoredAny>(bytes).err();
        let error = at.unwrap_or(error);
        TokenizerFault::BadJson(shown(&error.to_string()))
    })?;
    let refuse = |part: &'static str, what: &str| {
        Err(TokenizerFault::UnsupportedJson { part, what: shown(what) })
    };

    let model = file.model;
    if model.kind != "BPE" {
        return Err(TokenizerFault::UnknownModel(shown(&model.kind)));
    }
    let affixes = [&model.continuing_subword_prefix, &model.end_of_word_suffix];
    for (set, what) in [
        (model.dropout.is_some_and(|p| p != 0.0), "dropout"),
        (affixes.iter().any(|affix| affix.as_deref().is_some_and(|a| !a.is_empty())), "affixes"),
        (model.byte_fallback, "byte_fallback"),
        (model.ignore_merges, "ignore_merges"),
    ] {
        if set {
            return refuse("model", what);
        }
    }
    // NFC is accepted and not applied: GGUF files of the same models carry no
    // normaliser, and decoding must give back the bytes that were encoded.
    match &file.normalizer {
        None => {}
        Some(step) if step.kind == "NFC" => {}
        Some(step) => return refuse("normalizer", &step.kind),
    }
    match &file.post_processor {
        None => {}
        Some(step) if step.kind == "ByteLevel" => {}
        Some(step) => return refuse("post_processor", &step.kind),
    }
    match &file.decoder {
        None => {}
        Some(step) if step.kind == "ByteLevel" => {}
        Some(step) => return refuse("decoder", &step.kind),
    }
    let pre = pre_of(file.pre_tokenizer)?;

    let mut listed: Vec<(u32, Cow<'_, str>, i32)> =
        model.vocab.0.into_iter().map(|(text, id)| (id, text, 1)).collect();
    for added in file.added_tokens {
        if added.single_word || added.lstrip || added.rstrip {
            return refuse("added token", &added.content);
        }
        listed.push((added.id, added.content, if added.special { 3 } else { 4 }));
    }
    // Stable: an added token that repeats an entry of the vocabulary comes after it.
    listed.sort_by_key(|entry| entry.0);
    listed.dedup_by(|later, kept| {
        let same = later.0 == kept.0 && later.1 == kept.1;
        if same {
            kept.2 = later.2;
        }
        same
    });
    let mut tokens = Vec::with_capacity(listed.len());
    let mut types = Vec::with_capacity(listed.len());
    for (want, (id, text, kind)) in (0u32..).zip(listed) {
        if id != want {
            return Err(TokenizerFault::IdNotInOrder { id, want });
        }
        tokens.push(text);
        types.push(kind);
    }
    let merges = model.merges.into_iter().map(|merge| match merge {
        MergeText::Line(line) => line,
        MergeText::Pair(left, right) => Cow::Owned(format!("{left} {right}")),
    });
    Ok(TokenizerParts {
        pre: Cow::Borrowed(pre.name()),
        tokens,
        token_types: Some(Cow::Owned(types)),
        merges: merges.collect(),
        padded_rows: true,
        ..TokenizerParts::default()
    })
}

/// A split by a known pattern, then the byte-level alphabet.
fn pre_of(step: Option<Step<'_>>) -> Result<Pre, TokenizerFault> {
    let unknown = |what: &str| Err(TokenizerFault::UnknownPre(shown(what)));
    let Some(step) = step else { return unknown("none") };
    let [split, bytes] = step.pretokenizers.as_slice() else { return unknown(&step.kind) };
    if step.kind != "Sequence" || split.kind != "Split" || bytes.kind != "ByteLevel" {
        return unknown(&format!("{} of {}, {}", step.kind, split.kind, bytes.kind));
    }
    if bytes.add_prefix_space || bytes.use_regex {
        return unknown("ByteLevel with add_prefix_space or use_regex");
    }
    if split.behavior.as_deref() != Some("Isolated") || split.invert {
        return unknown("Split that does not keep its words");
    }
    match &split.pattern {
        Some(Pattern::Regex(pattern)) if pattern == QWEN2 => Ok(Pre::Qwen2),
        Some(Pattern::Regex(pattern)) if pattern == QWEN35 => Ok(Pre::Qwen35),
        Some(Pattern::Regex(pattern) | Pattern::String(pattern)) => unknown(pattern),
        None => unknown("Split without a pattern"),
    }
}

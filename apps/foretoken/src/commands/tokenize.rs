//! `tokenize`: text to ids, and back.

use std::io::Write;

use anyhow::Result;
use foretoken::tokenizer::{Special, Tokenizer};
use serde::Serialize;

use crate::args::TokenizeArgs;
use crate::load::open_tokenizer;
use crate::output::{Align, Table, print_json, quoted, stdout, text_of};
use crate::prompt;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    ids: &'a [u32],
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// What the text lost: only when it is no valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
}

/// Runs the command.
pub(super) fn run(args: &TokenizeArgs) -> Result<()> {
    if let Some(ids) = &args.decode {
        return decode(&ids.0, args);
    }
    let text = prompt::text(&args.prompt)?;
    let tokenizer = open_tokenizer(&args.model)?;
    let ids = encode(&tokenizer, &text, args.no_special);
    if args.json {
        return print_json(&Report { ids: &ids, text: None, bytes: None });
    }
    let mut out = stdout();
    if args.ids {
        let list: Vec<_> = ids.iter().map(u32::to_string).collect();
        writeln!(out, "{}", list.join(","))?;
    } else {
        let mut table = Table::new(&[("id", Align::Right), ("token", Align::Left)]);
        for &id in &ids {
            table.row([id.to_string(), quoted(tokenizer.token_bytes(id).unwrap_or_default())]);
        }
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}

fn decode(ids: &[u32], args: &TokenizeArgs) -> Result<()> {
    let tokenizer = open_tokenizer(&args.model)?;
    tokenizer.check_ids(ids)?;
    let bytes = tokenizer.decode(ids);
    if args.json {
        let (text, bytes) = text_of(&bytes);
        return print_json(&Report { ids, text: Some(text), bytes });
    }
    let mut out = stdout();
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

/// The ids of a text as the model wants them, its start token included.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str, no_special: bool) -> Vec<u32> {
    let special = if no_special { Special::Ignore } else { Special::Parse };
    let mut ids: Vec<u32> = tokenizer.bos_to_add().into_iter().collect();
    ids.extend(tokenizer.encode(text, special));
    ids
}

//! Keeps the values of a template shallow and free of cycles.
//!
//! Namespaces are the only things that a template can change, so only through them
//! can it build a value that holds itself, or one that grows deeper with each turn of
//! a loop; printing or dropping such a value would overflow the stack. So what is
//! assigned to an attribute passes through [`plain`], which hands on a copy without
//! namespaces in it and refuses what nests too deeply. [`guarded`] writes that call
//! into the source: `{% set ns.x = value %}` becomes `{% set ns.x = (value)|plain %}`.

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

/// Name of the filter; not one that a template can spell by accident.
pub(super) const FILTER: &str = "__plain__";

/// Levels of lists and maps that an attribute may hold.
const MAX_DEPTH: usize = 64;

/// Operators that one tag may have, with the text before it. The template compiler's
/// time grows with the square of a chain of operators.
const MAX_OPERATORS: usize = 4096;

/// Whether some tag has too many operators.
pub(super) fn is_too_deep(source: &str) -> bool {
    let operators = |part: &str| part.bytes().filter(|b| b"+-*/%~".contains(b)).count();
    source.split("%}").flat_map(|part| part.split("}}")).any(|part| operators(part) > MAX_OPERATORS)
}

/// The source with [`FILTER`] at every assignment to an attribute, and with the
/// `generation` tags, which mark text for training and change nothing, made into
/// blocks that are always run.
pub(super) fn guarded(source: &str) -> String {
    // Tags are looked for everywhere, in comments and strings too, and one inside what
    // looks like another's value as well: to change an odd text in there does less harm
    // than to miss a tag. Each edit is a place, what goes and what comes.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    for (at, _) in source.match_indices("{%") {
        let inside = at + 2;
        let Some(tag) = source.get(inside..) else { continue };
        let body = tag.strip_prefix(['-', '+']).unwrap_or(tag).trim_start();
        let start = inside + tag.len() - body.len();
        let word = body.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(body.len());
        match body.get(..word) {
            Some("set") => {
                if let Some(set) = Set::find(body.get(word..).unwrap_or("")) {
                    let open = if set.is_block { "" } else { "(" };
                    let close = if set.is_block { "" } else { ")" };
                    edits.push((start + word + set.value, 0, open.to_owned()));
                    edits.push((start + word + set.end, 0, format!("{close}|{FILTER} ")));
                }
            }
            Some("generation") => edits.push((start, word, "if true".to_owned())),
            Some("endgeneration") => edits.push((start, word, "endif".to_owned())),
            _ => {}
        }
    }
    edits.sort_by_key(|edit| edit.0);
    let mut out = String::with_capacity(source.len());
    let mut done = 0;
    for (place, gone, text) in edits {
        out.push_str(source.get(done..place).unwrap_or(""));
        out.push_str(&text);
        done = place + gone;
    }
    out.push_str(source.get(done..).unwrap_or(""));
    out
}

/// Where an assignment to an attribute has its value.
struct Set {
    value: usize,
    end: usize,
    /// A `{% set ns.x | filters %}...{% endset %}`.
    is_block: bool,
}

impl Set {
    /// Reads a tag from the word `set` up to its end; places count from there.
    fn find(target: &str) -> Option<Self> {
        let (mut quote, mut depth, mut dotted, mut equals) = (None, 0usize, false, None);
        let mut chars = target.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let next = chars.peek().map(|&(_, c)| c);
            match (quote, c) {
                (Some(_), '\\') => {
                    chars.next();
                }
                (Some(open), _) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '%') if next == Some('}') => {
                    let inside = target.get(..at)?;
                    let end = inside.strip_suffix(['-', '+']).unwrap_or(inside).len();
                    let value = equals.map_or(end, |at: usize| at + 1);
                    let is_block = equals.is_none();
                    return dotted.then_some(Self { value, end, is_block });
                }
                (None, '(' | '[' | '{') => depth += 1,
                (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
                (None, '=') if depth == 0 && equals.is_none() => equals = Some(at),
                // What follows a first pipe is filters, no target.
                (None, '.') if equals.is_none() => dotted = true,
                _ => {}
            }
        }
        None
    }
}

/// The filter: a copy made of nothing but scalars, lists and maps.
pub(super) fn plain(state: &State, value: Value) -> Result<Value, Error> {
    copy(state, &value, 0)
}

fn copy(state: &State, value: &Value, depth: usize) -> Result<Value, Error> {
    let is_map = match value.kind() {
        ValueKind::Map => true,
        ValueKind::Seq | ValueKind::Iterable => false,
        ValueKind::Plain | ValueKind::Invalid => {
            let detail = format!("a namespace cannot hold {}", value.kind());
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        _ => return Ok(value.clone()),
    };
    if depth >= MAX_DEPTH {
        let detail = "a value in a namespace nests beyond the recursion limit";
        return Err(Error::new(ErrorKind::InvalidOperation, detail));
    }
    state.consume_fuel(1)?;
    if is_map {
        let mut pairs = Vec::new();
        for key in value.try_iter()? {
            state.consume_fuel(1)?;
            let item = copy(state, &value.get_item(&key)?, depth + 1)?;
            pairs.push((copy(state, &key, depth + 1)?, item));
        }
        return Ok(Value::from_pairs(pairs));
    }
    let mut list = Vec::new();
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        list.push(copy(state, &item, depth + 1)?);
    }
    Ok(Value::from(list))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_to_attributes_and_no_others() {
        for (source, want) in [
            ("{% set ns.x = 1 %}", "{% set ns.x =( 1 )|__plain__ %}"),
            ("{%- set  a.b.c=[1, '%}'] -%}x", "{%- set  a.b.c=([1, '%}'] )|__plain__ -%}x"),
            ("{%set(a.b, c) = (1,), 2%}", "{%set(a.b, c) =( (1,), 2)|__plain__ %}"),
            (
                "{% set a.b = x == y.z if q else 'it\\'s %}' %}",
                "{% set a.b =( x == y.z if q else 'it\\'s %}' )|__plain__ %}",
            ),
            ("{% set a.b %}t{% endset %}", "{% set a.b |__plain__ %}t{% endset %}"),
            ("{% set a.b | f(c=1) +%}t", "{% set a.b | f(c=1) |__plain__ +%}t"),
            (
                "{# {% set a.b = ' #}{% set c.d = e %}{# ' %} #}",
                "{# {% set a.b =( ' #}{% set c.d =( e )|__plain__ %}{# ' )|__plain__ %} #}",
            ),
            (
                "{%- generation %}x{% endgeneration -%}{% generations %}",
                "{%- if true %}x{% endif -%}{% generations %}",
            ),
            ("{{ '{% set a.b = 1 %}' }}", "{{ '{% set a.b =( 1 )|__plain__ %}' }}"),
        ] {
            assert_eq!(guarded(source), want);
        }
        for source in [
            "{% set x = a.b %}",
            "{% set x, y = a.b, 1.5 %}",
            "{% settle a.b = 1 %}",
            "{% if a.b == 1 %}{% set",
            "{% set a.b = 'open %}",
            "set a.b = 1 {{ a.b }} {%",
        ] {
            assert_eq!(guarded(source), source);
        }
    }
}

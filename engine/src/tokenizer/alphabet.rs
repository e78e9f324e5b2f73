//! The printable alphabet of byte-level BPE: each of the 256 bytes has one
//! character that stands for it in vocabulary files (Radford et al. 2019, GPT-2).
//! Printable Latin-1 stands for itself; the other 68 bytes, in ascending order,
//! take the characters from U+0100 on (so a space is U+0120).

const fn stands_for_itself(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

const fn shifted_bytes() -> [u8; 68] {
    let mut out = [0; 68];
    let (mut byte, mut n) = (0u8, 0);
    loop {
        if !stands_for_itself(byte) {
            out[n] = byte;
            n += 1;
        }
        if byte == u8::MAX {
            return out;
        }
        byte += 1;
    }
}

/// The bytes that U+0100, U+0101, ... stand for.
const SHIFTED: [u8; 68] = shifted_bytes();

/// The byte a character stands for.
pub(super) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match u8::try_from(code) {
        Ok(byte) => stands_for_itself(byte).then_some(byte),
        Err(_) => SHIFTED.get(code.checked_sub(0x100)? as usize).copied(),
    }
}

/// Appends the bytes a token's text stands for. A text with a character outside
/// the alphabet is taken as it is written, as the field's decoders do.
pub(super) fn push_bytes(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => out.push(byte),
            None => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_byte_has_one_character() {
        let all: Vec<u8> = (0..0x200u32).filter_map(char::from_u32).filter_map(byte_of).collect();
        assert_eq!(all.len(), 256);
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 256);
    }

    #[test]
    fn known_characters() {
        for (c, byte) in [('!', 0x21), ('Ġ', 0x20), ('Ċ', 0x0a), ('ĉ', 0x09), ('č', 0x0d)] {
            assert_eq!(byte_of(c), Some(byte));
        }
        assert_eq!(byte_of('Ń'), Some(0xad));
        assert_eq!(byte_of('ÿ'), Some(0xff));
        assert_eq!(byte_of('ń'), None);
        assert_eq!(byte_of(' '), None);
    }

    #[test]
    fn foreign_text_is_kept_as_written() {
        let mut out = b"x".to_vec();
        push_bytes("aĠ", &mut out);
        assert_eq!(out, b"xa ");
        push_bytes("a b", &mut out);
        assert_eq!(out, b"xa a b");
    }
}

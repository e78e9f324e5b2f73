//! Text out of a stream of bytes that may part characters anywhere.

/// Turns a stream of bytes into text: what [`push`](Self::push) and then
/// [`finish`](Self::finish) return, put together, is [`String::from_utf8_lossy`] of
/// all bytes. Only a character that is not complete yet is held back (at most three
/// bytes), so bad bytes neither stall nor end a stream.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    held: Vec<u8>,
}

impl Utf8Stream {
    /// An empty stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and returns the text that is complete with them.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut text = String::with_capacity(self.held.len() + bytes.len());
        self.push_into(bytes, &mut text);
        text
    }

    /// As [`push`](Self::push), appending to `text`: allocates nothing once `text` and
    /// the stream have grown to what they need.
    pub fn push_into(&mut self, bytes: &[u8], text: &mut String) {
        self.held.extend_from_slice(bytes);
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(good) => {
                    text.push_str(good);
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (good, bad) =
                        rest.split_at_checked(error.valid_up_to()).unwrap_or((rest, &[]));
                    text.push_str(std::str::from_utf8(good).unwrap_or_default());
                    rest = bad;
                    // No length: the end came inside a character that may be good.
                    let Some(len) = error.error_len() else { break };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = rest.get(len..).unwrap_or(&[]);
                }
            }
        }
        let done = self.held.len() - rest.len();
        self.held.drain(..done);
    }

    /// Ends the stream: a character still not complete becomes U+FFFD. The stream
    /// is empty afterwards.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held.clear();
        text
    }

    /// Bytes held back until the next push.
    pub fn pending(&self) -> &[u8] {
        &self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holds_back_only_what_may_become_a_character() {
        let mut stream = Utf8Stream::new();
        assert_eq!(stream.push(b"a\xf0\x9f"), "a");
        assert_eq!(stream.push(b"\x98"), "");
        assert_eq!(stream.push(b"\x80b"), "😀b");
        assert_eq!(stream.push(b"\xff"), "\u{fffd}");
        assert_eq!(stream.push(b"\xe4\xb8"), "");
        // The next byte cannot follow, so one replacement stands for both.
        assert_eq!(stream.push(b"x"), "\u{fffd}x");
        assert_eq!(stream.push(b"\xe4\xb8"), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    /// Bytes near the borders of UTF-8, so that most runs hold broken characters.
    fn spiky_bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let part = prop_oneof![
            4 => prop::sample::select(vec![
                0x00u8, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff,
            ]).prop_map(|b| vec![b]),
            2 => any::<char>().prop_map(|c| c.to_string().into_bytes()),
        ];
        let whole = prop::collection::vec(part, 0..24).prop_map(|parts| parts.concat());
        (whole, prop::collection::vec(0usize..64, 0..12)).prop_map(|(whole, mut cuts)| {
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(whole.len()));
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            cuts.windows(2).map(|w| whole[w[0]..w[1]].to_vec()).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn any_split_gives_the_text_of_the_whole(parts in spiky_bytes()) {
            let mut stream = Utf8Stream::new();
            let mut text = String::new();
            for part in &parts {
                text.push_str(&stream.push(part));
                prop_assert!(stream.pending().len() < 4);
            }
            text.push_str(&stream.finish());
            let whole = parts.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }
}

//! Prompts of the kinds of text that speculation is measured on.

/// A kind of text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Genre {
    /// Its name.
    pub(super) name: &'static str,
    /// The prompts go into the chat template.
    pub(super) chat: bool,
    text: &'static str,
}

/// All of them.
pub(super) const GENRES: [Genre; 3] = [
    Genre { name: "code", chat: false, text: include_str!("../../../prompts/code.txt") },
    Genre { name: "chat", chat: true, text: include_str!("../../../prompts/chat.txt") },
    Genre { name: "prose", chat: false, text: include_str!("../../../prompts/prose.txt") },
];

impl Genre {
    /// Its prompts, without the line break at their ends.
    pub(super) fn prompts(self) -> impl Iterator<Item = &'static str> {
        self.text.split("\n---\n").map(|prompt| prompt.strip_suffix('\n').unwrap_or(prompt))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_genre_has_several_prompts() {
        for genre in GENRES {
            let prompts: Vec<_> = genre.prompts().collect();
            assert_eq!(prompts.len(), 5, "{}", genre.name);
            assert!(prompts.iter().all(|p| p.len() > 20 && !p.contains("---\n")));
        }
    }
}

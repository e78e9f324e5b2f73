//! Stop strings: the same as searching the whole text, however it is split.

use foretoken::Error;
use foretoken::generate::{StopHit, StopMatcher};
use foretoken::sample::RequestFault;
use proptest::prelude::*;

/// The match that ends first, then the longest, then the first listed: (which, begin, end).
fn search(text: &[u8], stops: &[Vec<u8>]) -> Option<(usize, usize, usize)> {
    for end in 1..=text.len() {
        let mut best: Option<(usize, usize, usize)> = None;
        for (which, stop) in stops.iter().enumerate() {
            if text[..end].ends_with(stop) && best.is_none_or(|b| end - stop.len() < b.1) {
                best = Some((which, end - stop.len(), end));
            }
        }
        if best.is_some() {
            return best;
        }
    }
    None
}

/// The longest end of the text that starts a stop string without being one.
fn longest_start(text: &[u8], stops: &[Vec<u8>]) -> usize {
    let starts = |n: &usize| stops.iter().any(|s| s.starts_with(&text[text.len() - n..]));
    (0..=text.len()).rev().find(starts).unwrap_or(0)
}

fn stops(max: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    // Two letters, so that borders and overlaps are everywhere.
    prop::collection::vec(prop::collection::vec(b'a'..=b'b', 1..max), 0..5)
}

proptest! {
    #[test]
    fn streaming_equals_searching(
        stops in stops(9),
        pieces in prop::collection::vec(prop::collection::vec(b'a'..=b'b', 0..7), 0..12),
    ) {
        let text = pieces.concat();
        let expected = search(&text, &stops);
        let mut matcher = StopMatcher::new(&stops).unwrap();
        let (mut out, mut pushed) = (Vec::new(), 0);
        let mut found = None;
        for piece in &pieces {
            let emit = matcher.push(piece);
            out.extend_from_slice(emit.bytes);
            if let Some(hit) = emit.stopped {
                let at = |offset: i64| usize::try_from(pushed as i64 + offset).unwrap();
                let now = Some((hit.which, at(hit.begin), at(hit.end)));
                if found.is_some() {
                    // Pushes after the stop repeat it.
                    prop_assert_eq!(now, found);
                    prop_assert!(hit.end <= 0);
                } else {
                    prop_assert!(hit.end > 0 && hit.end <= piece.len() as i64);
                }
                found = now;
            }
            pushed += piece.len();
            prop_assert_eq!(matcher.is_stopped(), found.is_some());
            if found.is_none() {
                // No more is held back than might become a stop.
                let held = longest_start(&text[..pushed], &stops);
                prop_assert_eq!(out.len(), pushed - held);
            }
        }
        out.extend(matcher.finish());
        prop_assert_eq!(found, expected);
        prop_assert_eq!(&out[..], &text[..expected.map_or(text.len(), |hit| hit.1)]);
        // As new: the same text again gives the same.
        let hit = matcher.push(&text).stopped;
        prop_assert_eq!(hit.map(|h| (h.which, h.begin as usize, h.end as usize)), expected);
    }
}

fn one(stops: &[&str], text: &[&str]) -> (String, Option<StopHit>) {
    let mut matcher = StopMatcher::new(stops).unwrap();
    let mut out = Vec::new();
    let mut stopped = None;
    for piece in text {
        let emit = matcher.push(piece.as_bytes());
        out.extend_from_slice(emit.bytes);
        if emit.stopped.is_some() {
            stopped = emit.stopped;
            break;
        }
    }
    out.extend(matcher.finish());
    (String::from_utf8(out).unwrap(), stopped)
}

#[test]
fn the_rules_by_example() {
    let hit = |which, begin, end| Some(StopHit { which, begin, end });
    // In the middle of a block: the rest is cut off.
    assert_eq!(one(&["STOP"], &["one STOP two"]), ("one ".into(), hit(0, 4, 8)));
    // Across pushes: it began three bytes before this one.
    assert_eq!(one(&["STOP"], &["one STO", "P two"]), ("one ".into(), hit(0, -3, 1)));
    // A start that comes to nothing is given back.
    assert_eq!(one(&["STOP"], &["ST", "OOP ST", "O"]), ("STOOP STO".into(), None));
    // The one that ends first, though the other begins first.
    assert_eq!(one(&["abcd", "bc"], &["xabcd"]), ("xa".into(), hit(1, 2, 4)));
    // Of those that end together the longest; of equal ones the first.
    assert_eq!(one(&["b", "ab", "ab"], &["xa", "b"]), ("x".into(), hit(1, -1, 1)));
    // A stop inside a multi-byte character is matched on bytes.
    let mut matcher = StopMatcher::new(&["é"]).unwrap();
    assert_eq!(matcher.push(b"caf\xc3").bytes, b"caf");
    assert_eq!(matcher.push(b"\xa9").stopped, hit(0, -1, 1));
    assert!(matcher.finish().is_empty());
    assert_eq!(one(&[], &["anything", " goes"]), ("anything goes".into(), None));
}

#[test]
fn limits_are_faults() {
    let fault = |stops: &[Vec<u8>]| match StopMatcher::new(stops) {
        Err(Error::Request(fault)) => fault,
        other => panic!("expected a request fault, got {other:?}"),
    };
    assert_eq!(fault(&[vec![1], vec![]]), RequestFault::StopEmpty { index: 1 });
    let long = fault(&[vec![0; 4097]]);
    assert_eq!(long, RequestFault::StopTooLong { index: 0, bytes: 4097 });
    assert_eq!(fault(&vec![vec![1]; 65]), RequestFault::StopCount { count: 65 });
    assert!(StopMatcher::new(&vec![vec![b'a'; 4096]; 64]).is_ok());
}

/// The worst case stays linear: 64 strings of 4096 equal bytes that never match.
#[test]
fn repetitive_stops_stay_linear() {
    let mut stop = vec![b'a'; 4095];
    stop.push(b'b');
    let mut matcher = StopMatcher::new(&vec![stop; 64]).unwrap();
    let text = vec![b'a'; 50_000];
    let out: usize = text.chunks(7).map(|piece| matcher.push(piece).bytes.len()).sum();
    assert_eq!(out, 50_000 - 4095);
    assert_eq!(matcher.push(b"b").stopped.map(|hit| hit.begin), Some(-4095));
}

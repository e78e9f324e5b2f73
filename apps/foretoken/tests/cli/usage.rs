//! Bad usage: exit code 2 before anything is opened.

use crate::support::run;

#[test]
fn unknown_and_missing_words_are_refused() {
    let bad: &[&[&str]] = &[
        &["no-such-command"],
        &["generate", "--no-such-flag", "a"],
        &["perplexity"],
        &["completions"],
        &["generate", "a", "b"],
    ];
    for args in bad {
        run(args).bad_usage();
    }
    // Without any word the overview is shown, on stderr.
    let ran = run::<&str>(&[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("Usage: foretoken"));
}

#[test]
fn values_that_can_not_be_are_refused() {
    let bad: &[&[&str]] = &[
        &["generate", "a", "--threads", "0"],
        &["generate", "a", "--threads", "x"],
        &["generate", "a", "--context", "0"],
        &["generate", "a", "--context", "-1"],
        &["generate", "a", "--chunk", "100"],
        &["generate", "a", "--cache-type", "q9"],
        &["generate", "a", "--activations", "f64"],
        &["generate", "a", "--device", "a b"],
        &["generate", "a", "--max-tokens", "1.5"],
        &["generate", "a", "--temperature", "-1"],
        &["generate", "a", "--temperature", "nan"],
        &["generate", "a", "--top-p", "1.5"],
        &["generate", "a", "--min-p", "-0.1"],
        &["generate", "a", "--repetition-penalty", "0"],
        &["generate", "a", "--frequency-penalty", "3"],
        &["generate", "a", "--presence-penalty", "-3"],
        &["generate", "a", "--penalty-last-n", "-2"],
        &["generate", "a", "--logit-bias", "5"],
        &["generate", "a", "--logit-bias", "5=nan"],
        &["generate", "a", "--stop", ""],
        &["generate", "--ids", "1,x"],
        &["generate", "a", "--spec", "perhaps"],
        &["logits", "--ids", "1", "--top", "0"],
        &["bench", "-r", "0"],
        &["bench", "-p", "0", "-n", "0"],
        &["bench", "-p", "x"],
        &["bench", "-t", "0"],
        &["bench", "--output", "xml"],
        &["perplexity", "--file", "x", "--context", "3"],
    ];
    for args in bad {
        run(args).bad_usage();
    }
}

#[test]
fn negative_numbers_are_told_the_range() {
    let bad: &[(&[&str], &str)] = &[
        (&["generate", "a", "--seed", "-1"], "from 0 to 18446744073709551615"),
        (&["generate", "a", "-n", "-1"], "from 0 to 18446744073709551615"),
        (&["generate", "a", "--stop-token", "-1"], "from 0 to 4294967295"),
        (&["generate", "a", "--logit-bias", "-5=1"], "use ID=BIAS"),
        (&["generate", "a", "--top-k", "-1"], "from 0 to 4294967295"),
        (&["generate", "a", "--json", "--logprobs", "-1"], "from 0 to"),
        (&["generate", "--ids", "-1,2"], "'-1' is not a token id"),
        (&["generate", "a", "--context", "-1"], "above 0"),
        (&["generate", "a", "--threads", "-1"], "from 1 to"),
        (&["generate", "a", "--chunk", "-64"], "multiple of 64"),
        (&["logits", "--ids", "1", "--top", "-1"], "above 0"),
        (&["tokenize", "--decode", "-1"], "'-1' is not a token id"),
        (&["bench", "-p", "-1"], "from 0 to"),
        (&["bench", "-n", "-1"], "from 0 to"),
        (&["bench", "-d", "-1"], "from 0 to"),
        (&["bench", "-r", "-1"], "above 0"),
        (&["bench", "-t", "-1"], "from 1 to"),
    ];
    for (args, range) in bad {
        let said = run(args).bad_usage();
        assert!(said.contains("invalid value") && said.contains(range), "{args:?}: {said}");
    }
    // A flag is no value.
    let said = run(&["generate", "a", "-n", "--json"]).bad_usage();
    assert!(said.contains("a value is required"), "{said}");
}

#[test]
fn warnings_say_that_they_are() {
    let ran = run(&["generate", "a", "-n", "1", "--top-k", "5"]);
    assert!(ran.stderr.starts_with("warning: without --temperature"), "{}", ran.stderr);
    ran.ok();
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    let bad: &[&[&str]] = &[
        &["generate", "a", "--prompt", "b"],
        &["generate", "a", "--prompt-file", "b"],
        &["generate", "a", "--ids", "1"],
        &["generate", "--ids", "1", "--chat"],
        &["generate", "--ids", "1", "--no-special"],
        &["generate", "a", "--chat", "--no-special"],
        &["generate", "a", "--system", "s"],
        &["generate", "a", "--logprobs", "2"],
        &["generate", "a", "--quiet", "--verbose"],
        &["logits", "--ids", "1", "--prompt", "b"],
        &["tokenize", "--decode", "1", "a"],
        &["tokenize", "--decode", "1", "--ids"],
        &["inspect", "a", "--model", "b"],
        &["bench", "--json", "--output", "csv"],
    ];
    for args in bad {
        run(args).bad_usage();
    }
}

//! What a verb of the command line said, and what it must have said.

use std::process::Output;

/// What it printed for whoever asked.
pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// What it complained about.
pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// Everything that a verb printed, on both outputs.
pub fn said(output: &Output) -> String {
    format!("{}{}", stdout(output), stderr(output))
}

/// Exit code, and words that must have been said.
pub fn assert_answer(output: &Output, code: i32, words: &[&str]) {
    assert_words(output, code, &said(output), words);
}

/// Exit code, and a complaint that has these words in it.
pub fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    assert_words(output, code, &stderr(output), words);
}

fn assert_words(output: &Output, code: i32, text: &str, words: &[&str]) {
    assert_eq!(output.status.code(), Some(code), "{}", said(output));
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

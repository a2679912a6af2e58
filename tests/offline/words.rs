//! Sentences that nobody could read are not to come back: what a reader of the whole source found, word for word, and "shall".

use std::path::PathBuf;
use std::sync::LazyLock;

use regex::Regex;

use super::{repository, text_of};

/// Parts of sentences that were replaced by plainer ones. "should" or "must" says what "shall" said.
const RIDDLES: [&str; 14] = [
    r"\b[Ss]hall\b",
    r"It is so no more\.",
    r"\bSo many\.",
    r"From now on these\.",
    "the wish for a name, which it is not",
    "no more than the type or the strategy is nothing that we know",
    "who does not hear of that is late, no more",
    "late, that is so, resting or tried again",
    "Times that it was lost",
    "has no confidence in the others of its vhost",
    "Be woken by",
    "that the broker owes",
    "which is of new ones",
    "the proxy its key, so that the others show another routing key",
];

static PATTERN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&RIDDLES.join("|")).expect("a pattern"));

#[test]
fn no_riddles_in_the_source_and_the_documents() {
    let found = files().into_iter().flat_map(|file| {
        let text = in_one_line(&text_of(&file));
        let riddles = riddles(&text).into_iter();
        riddles
            .map(|riddle| format!("{file}: {riddle}"))
            .collect::<Vec<_>>()
    });
    let found: Vec<_> = found.collect();
    assert!(found.is_empty(), "say in plain words\n{}", found.join("\n"));
}

#[test]
fn riddles_are_found_across_the_lines_of_a_comment() {
    let comment =
        "/// The others wait: who does not hear of\n    /// that is late, no more. It shall end.";
    assert_eq!(
        riddles(&in_one_line(comment)),
        ["who does not hear of that is late, no more", "shall"]
    );
    assert_eq!(riddles("a shallow copy, So manyfold"), [""; 0]);
}

fn riddles(text: &str) -> Vec<&str> {
    PATTERN
        .find_iter(text)
        .map(|found| found.as_str())
        .collect()
}

/// Without the marks of comments and the ends of lines, which may stand anywhere in a sentence.
fn in_one_line(text: &str) -> String {
    let words = text.split_whitespace();
    let words = words.filter(|word| !matches!(*word, "//" | "///" | "//!" | "#" | "|"));
    words.collect::<Vec<_>>().join(" ")
}

fn files() -> Vec<String> {
    let mut files = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    let mut folders = vec![PathBuf::from("src"), PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        let place = repository(folder.to_str().expect("UTF-8"));
        for entry in std::fs::read_dir(place).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            let ending = path.extension().and_then(|ending| ending.to_str());
            if entry.path().is_dir() {
                folders.push(path);
            } else if matches!(ending, Some("rs" | "md" | "txt" | "toml" | "js")) {
                files.push(path.to_str().expect("UTF-8").to_owned());
            }
        }
    }
    files.sort();
    files
}

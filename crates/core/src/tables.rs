//! Tables of text: blocks of comments, lines that ask, `----` and the answers. `UPDATE=1` writes what the present code answers; a human reads
//! the diff.

use std::path::Path;

/// Holds the tables of a folder below `src`. `answer` gets the lines of a block without its comments.
pub(crate) fn hold(folder: &str, answer: impl Fn(&[&str]) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(folder);
    let files = std::fs::read_dir(folder).unwrap();
    let mut tables: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    tables.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    tables.sort();
    assert!(!tables.is_empty(), "no tables");
    let mut wrong = Vec::new();
    for path in tables {
        let text = std::fs::read_to_string(&path).unwrap();
        let mut answered = Vec::new();
        for block in text.trim_end().split("\n\n") {
            let is = match block.split_once("\n----") {
                None => block.to_owned(), // only a comment
                Some((asked, _)) => {
                    let lines = asked.lines().filter(|line| !line.starts_with('#'));
                    let lines: Vec<_> = lines.collect();
                    format!("{asked}\n----\n{}", answer(&lines))
                }
            };
            if is != block {
                wrong.push(format!("{}:\n{block}\n>>>> is now\n{is}", path.display()));
            }
            answered.push(is);
        }
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, answered.join("\n\n") + "\n").unwrap();
            wrong.clear();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

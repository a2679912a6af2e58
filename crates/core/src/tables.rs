//! Tables of text: blocks of comments, lines that ask, `----` and the answers. `UPDATE=1` writes what the present code answers; a human reads
//! the diff.

use std::path::Path;

/// Holds the tables of a folder below `src`. `answer` gets the lines of a block without its comments.
pub(crate) fn hold(folder: &str, answer: impl Fn(&[&str]) -> String) {
    hold_blocks(folder, |block| {
        let Some((asked, _)) = block.split_once("\n----") else {
            return block.to_owned(); // only a comment
        };
        let lines = asked.lines().filter(|line| !line.starts_with('#'));
        let answer = answer(&lines.collect::<Vec<_>>());
        format!("{asked}\n----\n{answer}")
    });
}

/// The same of blocks of another form. `answered` makes a block what it has to be.
pub(crate) fn hold_blocks(folder: &str, answered: impl Fn(&str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(folder);
    let files = std::fs::read_dir(folder).unwrap();
    let mut tables: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    tables.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    tables.sort();
    assert!(!tables.is_empty(), "no tables");
    let updates = std::env::var_os("UPDATE").is_some();
    let mut wrong = Vec::new();
    for path in tables {
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.trim_end().split("\n\n");
        let is: Vec<_> = blocks.clone().map(&answered).collect();
        let pairs = blocks.zip(&is).filter(|(block, is)| block != is);
        let path_of = path.display();
        wrong.extend(pairs.map(|(block, is)| format!("{path_of}:\n{block}\n>>>> is now\n{is}")));
        if updates {
            std::fs::write(&path, is.join("\n\n") + "\n").unwrap();
        }
    }
    assert!(wrong.is_empty() || updates, "{}", wrong.join("\n\n"));
}

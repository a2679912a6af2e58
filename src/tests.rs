//! Text tables of the rooms here. `UPDATE=1` writes what the code answers now; a human reads the diff.

use std::path::Path;

/// Says each line to `answer`: what stands behind its ` ->` has to be the answer. A line without one only changes the scene, an empty line begins a
/// new one, and `#` begins a comment. `file`: below `src`.
pub(crate) async fn lines_hold(file: &str, mut answer: impl AsyncFnMut(&str) -> String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    let text = std::fs::read_to_string(&path).expect(file);
    let (mut now, mut wrong) = (String::new(), String::new());
    for line in text.lines() {
        let answered = match line.split_once(" ->") {
            _ if line.starts_with('#') => line.to_owned(),
            Some((asked, _)) => {
                let answered = answer(asked.trim_end()).await;
                format!("{asked} -> {answered}").trim_end().to_owned()
            }
            None => {
                answer(line).await;
                line.to_owned()
            }
        };
        if answered != line {
            wrong += &format!("{line}\n  is now\n{answered}\n");
        }
        now += &(answered + "\n");
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, now).expect(file);
    } else {
        assert!(wrong.is_empty(), "{file}:\n{wrong}");
    }
}

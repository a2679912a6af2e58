//! Two records that differ, for people.

use std::fmt::Write;

use super::reader::Received;

/// Of one column.
const WIDTH: usize = 76;

/// Equal frames around a difference that are shown.
const CONTEXT: usize = 2;

/// The frames of one channel: what differs, and a little around it.
pub(crate) fn side_by_side(name: &str, left: &[Received], right: &[Received]) -> String {
    let mut text = format!("--- {name:<width$}   direct | proxied\n", width = WIDTH - 8);
    let same = |a: &Received, b: &Received| a.frame == b.frame;
    let before = left
        .iter()
        .zip(right)
        .take_while(|(a, b)| same(a, b))
        .count();
    let rest = left.len().min(right.len()) - before;
    let after = left
        .iter()
        .rev()
        .zip(right.iter().rev())
        .take(rest)
        .take_while(|(a, b)| same(a, b))
        .count();
    if before > CONTEXT {
        let _ = writeln!(text, "  … {} frames, equal", before - CONTEXT);
    }
    for came in &left[before.saturating_sub(CONTEXT)..before] {
        let _ = writeln!(text, "  {}", short(came));
    }
    let lines = |side: &[Received]| -> Vec<String> {
        let frames = &side[before..side.len() - after];
        let lines = frames.iter().flat_map(|came| {
            let mut lines = came.frame.lines();
            lines[0] = format!("[{}] {}", came.step, lines[0]);
            lines
        });
        lines.flat_map(|line| wrapped(&line)).collect()
    };
    for (sign, a, b) in aligned(&lines(left), &lines(right)) {
        let _ = writeln!(text, "{sign} {a:<WIDTH$} {sign} {b}");
    }
    for came in left[left.len() - after..].iter().take(CONTEXT) {
        let _ = writeln!(text, "  {}", short(came));
    }
    if after > CONTEXT {
        let _ = writeln!(text, "  … {} frames, equal", after - CONTEXT);
    }
    text
}

fn short(came: &Received) -> String {
    let line = format!("[{}] {}", came.step, came.frame);
    match line.char_indices().nth(2 * WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn wrapped(line: &str) -> Vec<String> {
    let chars: Vec<char> = line.chars().collect();
    chars
        .chunks(WIDTH)
        .map(|chunk| chunk.iter().collect())
        .collect()
}

/// Pairs equal lines (the longest common subsequence); step numbers do not count.
fn aligned(left: &[String], right: &[String]) -> Vec<(char, String, String)> {
    let key = |line: &str| match line.strip_prefix('[') {
        Some(rest) => rest
            .split_once("] ")
            .map_or_else(|| line.to_owned(), |(_, rest)| rest.to_owned()),
        None => line.to_owned(),
    };
    let same = |a: &String, b: &String| key(a) == key(b);
    // Too long for a table: line by line.
    if left.len() * right.len() > 4_000_000 {
        let line = |side: &[String], at: usize| side.get(at).cloned().unwrap_or_default();
        let rows = (0..left.len().max(right.len())).map(|at| (line(left, at), line(right, at)));
        return rows
            .map(|(a, b)| (if same(&a, &b) { ' ' } else { '|' }, a, b))
            .collect();
    }
    let mut length = vec![vec![0usize; right.len() + 1]; left.len() + 1];
    for i in (0..left.len()).rev() {
        for j in (0..right.len()).rev() {
            length[i][j] = match same(&left[i], &right[j]) {
                true => length[i + 1][j + 1] + 1,
                false => length[i + 1][j].max(length[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut rows) = (0, 0, Vec::new());
    while i < left.len() || j < right.len() {
        if i < left.len() && j < right.len() && same(&left[i], &right[j]) {
            rows.push((' ', left[i].clone(), right[j].clone()));
            (i, j) = (i + 1, j + 1);
        } else if j == right.len() || (i < left.len() && length[i + 1][j] >= length[i][j + 1]) {
            rows.push(('<', left[i].clone(), String::new()));
            i += 1;
        } else {
            rows.push(('>', String::new(), right[j].clone()));
            j += 1;
        }
    }
    rows
}

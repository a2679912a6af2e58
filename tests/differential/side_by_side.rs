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
    for (sign, a, b) in paired(&lines(left), &lines(right)) {
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

/// Line by line; step numbers do not count.
fn paired(left: &[String], right: &[String]) -> Vec<(char, String, String)> {
    let line = |side: &[String], at: usize| side.get(at).cloned().unwrap_or_default();
    let key = |line: &str| match line.split_once("] ") {
        Some((step, rest)) if step.starts_with('[') => rest.to_owned(),
        _ => line.to_owned(),
    };
    let rows = (0..left.len().max(right.len())).map(|at| (line(left, at), line(right, at)));
    rows.map(|(a, b)| (if key(&a) == key(&b) { ' ' } else { '|' }, a, b))
        .collect()
}

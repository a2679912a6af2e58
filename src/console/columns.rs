//! Text in columns, for people: as wide as the terminal at most, and in color where that can be seen.

use std::io::{IsTerminal, stdout};

use anstyle::Style;
use clap::ColorChoice;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::machine::Wall;
use crate::net::clock::{Clock, SystemClock};
use crate::plain;

/// A column is not cut below this.
const NARROWEST: usize = 12;

/// The reader's terminal; a file has neither width nor color, and its times are absolute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Screen {
    pub(crate) width: Option<usize>,
    pub(crate) is_colored: bool,
    pub(crate) now: Option<Wall>,
}

// === impl Screen ===

impl Screen {
    pub(crate) fn of_stdout(color: ColorChoice) -> Screen {
        let is_terminal = stdout().is_terminal();
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|it| !it.is_empty())
            || std::env::var_os("TERM").is_some_and(|it| it == "dumb");
        let size = terminal_size::terminal_size_of(stdout()).filter(|_| is_terminal);
        Screen {
            width: size.map(|(width, _)| width.0.into()),
            is_colored: match color {
                ColorChoice::Always => true,
                ColorChoice::Auto => is_terminal && !is_plain,
                ColorChoice::Never => false,
            },
            now: is_terminal.then(|| SystemClock::start().now().wall),
        }
    }

    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        match self.is_colored && style != Style::new() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// Rows as text, one per line. `keeps`: cut this column only if nothing else helps. `style`: of a cell, by row and column.
    pub(crate) fn table<Row: AsRef<[String]>>(
        &self,
        rows: &[Row],
        keeps: impl Fn(usize) -> bool,
        style: impl Fn(usize, usize, &str) -> Style,
    ) -> String {
        let line =
            |row: &Row| -> Vec<String> { row.as_ref().iter().map(|it| plain::line(it)).collect() };
        let rows: Vec<_> = rows.iter().map(line).collect();
        let mut widths = Vec::new();
        for row in &rows {
            widths.resize(row.len().max(widths.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.width().max(*width);
            }
        }
        while let Some(room) = self.width
            && widths.iter().sum::<usize>() + 2 * widths.len() > room + 2
            && let Some(widest) = (0..widths.len())
                .filter(|column| widths[*column] > NARROWEST)
                .max_by_key(|column| (!keeps(*column), widths[*column]))
        {
            widths[widest] -= 1;
        }
        let mut table = String::new();
        for (number, row) in rows.iter().enumerate() {
            let last = row.iter().rposition(|cell| !cell.is_empty());
            let cells = row.iter().enumerate().take(last.map_or(0, |last| last + 1));
            let cells = cells.map(|(column, cell)| {
                let cell = cut(cell, widths[column]);
                let padding = match Some(column) == last {
                    true => 0,
                    false => widths[column].saturating_sub(cell.width()),
                };
                self.paint(style(number, column, &cell), &cell) + &" ".repeat(padding)
            });
            table.push_str(&cells.collect::<Vec<_>>().join("  "));
            table.push('\n');
        }
        table
    }
}

/// Rows as text, without cuts and colors.
pub(crate) fn aligned<Row: AsRef<[String]>>(rows: &[Row]) -> String {
    Screen::default().table(rows, |_| true, |_, _, _| Style::new())
}

fn cut(cell: &str, room: usize) -> String {
    if cell.width() <= room {
        return cell.to_owned();
    }
    let mut left = room.saturating_sub(1);
    let fits = |character: &char| match left.checked_sub(character.width().unwrap_or(0)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let begin: String = cell.chars().take_while(fits).collect();
    begin + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_fits_the_terminal() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [
            row(["ID", "ERROR", "N"]),
            row([
                "orders.dead.of.the.night",
                "a message of more than 20 letters",
                "1",
            ]),
            row(["日本", "", "22"]),
        ];
        let table = |width| {
            let screen = Screen {
                width,
                ..Screen::default()
            };
            screen.table(&rows, |column| column == 0, |_, _, _| Style::new())
        };
        let last = |width| table(width).lines().map(|line| line.width()).max();
        assert_eq!([None, Some(80)].map(last), [Some(63), Some(63)]);
        assert_eq!(last(Some(50)), Some(50));
        let narrow = table(Some(42));
        let expected = "\
ID                        ERROR         N
orders.dead.of.the.night  a message o…  1
日本                                    22
";
        assert_eq!(narrow, expected);
        assert!(
            table(Some(30)).contains("orders.dead"),
            "{}",
            table(Some(30))
        );
        assert_eq!(table(Some(1)), table(Some(30)));
    }

    #[test]
    fn colors_are_for_terminals() {
        let bold = Style::new().bold();
        let screen = Screen {
            is_colored: true,
            ..Screen::default()
        };
        assert_eq!(screen.paint(bold, "a"), "\u{1b}[1ma\u{1b}[0m");
        assert_eq!(Screen::default().paint(bold, "a"), "a");
    }
}

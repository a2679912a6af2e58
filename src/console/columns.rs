//! Text in columns, for people.

use crate::plain;

/// Rows as text, one per line; the first one is the heading. Columns are as wide as their widest
/// cell.
pub(crate) fn aligned<Row: AsRef<[String]>>(rows: &[Row]) -> String {
    let mut widths = Vec::new();
    let line =
        |row: &Row| -> Vec<String> { row.as_ref().iter().map(|it| plain::line(it)).collect() };
    let rows: Vec<_> = rows.iter().map(line).collect();
    for row in &rows {
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

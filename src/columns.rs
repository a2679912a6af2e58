//! Text in columns, for people.

/// The rows, of which the first is the heading, each cell as wide as the widest of its column.
pub(crate) fn aligned<Row: AsRef<[String]>>(rows: &[Row]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        let row = row.as_ref();
        widths.resize(row.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut table = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .as_ref()
            .iter()
            .zip(&widths)
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        table.push_str(cells.join("  ").trim_end());
        table.push('\n');
    }
    table
}

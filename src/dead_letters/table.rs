//! A list of JSON objects as a table.

use serde_json::Value;

use super::Failed;
use crate::columns::aligned;
use crate::plain;

/// A cell that people read is cut here.
const WIDEST: usize = 60;

/// The objects, one a line. With `headed` for people, else for scripts: cells are whole, and divided by tabs.
///
/// # Errors
/// When there is no such column.
pub(super) fn table(
    objects: &[Value],
    columns: &[String],
    all: &[&str],
    headed: bool,
) -> Result<String, Failed> {
    let known = |column: &String| {
        all.contains(&column.as_str()) || objects.iter().any(|it| it.get(column).is_some())
    };
    if let Some(unknown) = columns.iter().find(|column| !known(column)) {
        return Err(Failed::NoColumn {
            name: unknown.clone(),
            all: all.join(", "),
        });
    }
    let row = |object: &Value| -> Vec<String> {
        let cells = columns.iter().map(|column| cell(object.get(column)));
        cells.map(|cell| plain::line(&cell)).collect()
    };
    let rows = objects.iter().map(row);
    if !headed {
        return Ok(rows.map(|cells| cells.join("\t") + "\n").collect());
    }
    let heading = columns.iter().map(|name| name.to_uppercase());
    let mut table = vec![heading.collect::<Vec<_>>()];
    table.extend(rows.map(|cells| cells.into_iter().map(cut).collect()));
    Ok(aligned(&table))
}

pub(super) fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) if !items.iter().any(Value::is_object) => {
            let items: Vec<_> = items.iter().map(|item| cell(Some(item))).collect();
            items.join(",")
        }
        Some(other) => other.to_string(),
    }
}

fn cut(cell: String) -> String {
    match cell.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn columns(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn people_get_a_heading_and_scripts_get_tabs() {
        let objects = [
            json!({"id": "a\u{1b}", "n": 1, "keys": ["x", "y"], "none": null}),
            json!({"id": "b".repeat(61), "n": 22}),
        ];
        let wanted = columns(&["id", "n", "keys", "none"]);
        let read = table(&objects, &wanted, &[], true).expect("all known");
        let b = "b".repeat(60);
        let space = " ".repeat(54);
        assert_eq!(
            read,
            format!("ID{space}       N   KEYS  NONE\na\\u{{1b}}{space}  1   x,y\n{b}…  22\n")
        );
        let cells = table(&objects, &wanted, &[], false).expect("all known");
        assert_eq!(cells, format!("a\\u{{1b}}\t1\tx,y\t\n{b}b\t22\t\t\n"));
    }

    #[test]
    fn a_column_that_there_is_not_is_named() {
        let known = columns(&["id"]);
        assert_eq!(table(&[], &known, &["id"], false).ok(), Some(String::new()));
        let failed = table(&[], &columns(&["it"]), &["id", "n"], false);
        let words = failed.err().map(|failed| failed.to_string());
        let expected = "there is no column `it`; there are: id, n";
        assert_eq!(words.as_deref(), Some(expected));
    }
}

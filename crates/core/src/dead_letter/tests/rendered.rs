//! Messages as text: the other way round.

use crate::amqp::properties::{Properties, Property};
use crate::amqp::table::{Field, Table, TableBuilder, Value};
use crate::dead_letter::headers::{X_DEATH, X_FIRST_DEATH};
use crate::dead_letter::{compact, private};

use super::message::quoted;

/// Properties as the answer shows them: `expiration=… [user=…]`, then a line for each header, in order.
pub(super) fn render(properties: &[u8]) -> String {
    let properties = Properties::parse(properties).unwrap();
    let text = |property| properties.get(property).map(quoted);
    let expiration = text(Property::Expiration).unwrap_or("none".to_owned());
    let mut out = format!("expiration={expiration}");
    if let Some(user) = text(Property::UserId) {
        out += &format!(" user={user}");
    }
    let Some(headers) = properties.headers() else {
        return out + "\nno headers";
    };
    let headers = Table(headers);
    for field in headers.fields() {
        let field = field.unwrap();
        let (name, value) = (quoted(field.name), field.value);
        if field.name == private::HISTORY {
            let text = value.as_longstr();
            let compact = text.and_then(compact::read).map(|text| text.table());
            let Some(inner) = value
                .as_table()
                .or(compact.as_ref().map(TableBuilder::as_table))
            else {
                out += &format!("\n{name}  {}", show(value));
                continue;
            };
            let names = std::iter::once(X_DEATH).chain(X_FIRST_DEATH);
            let copied = names
                .into_iter()
                .all(|name| headers.get(name) == inner.get(name));
            let forget = inner.get(b"forget").unwrap().map(show);
            let what = match forget {
                Some(number) => format!("the newest of {number}, to be forgotten"),
                None if copied => "a copy".to_owned(),
                None => "another history".to_owned(),
            };
            out += &format!("\n{name}  {what}");
        } else if let Some(said) = value.as_table() {
            let said = said.fields().map(|field| field.unwrap()).map(member);
            out += &format!("\n{name}  {}", said.collect::<Vec<_>>().join(" "));
        } else {
            out += &format!("\n{name}  {}", show(value));
        }
    }
    out
}

/// The private history of these headers, as a string.
pub(super) fn written(properties: &[u8]) -> String {
    let properties = Properties::parse(properties).unwrap();
    match compact::write(Table(properties.headers().unwrap())) {
        Some(text) => text.escape_ascii().to_string(),
        None => "as a table".to_owned(),
    }
}

/// A member of a table. Of the headers that wait in it their names are enough.
fn member(field: Field<'_>) -> String {
    let name = quoted(field.name);
    match (field.value.tag, field.value.as_table()) {
        (b'V', _) => name,
        (_, Some(table)) => {
            let names = table.fields().map(|field| quoted(field.unwrap().name));
            format!("{name}=[{}]", names.collect::<Vec<_>>().join(", "))
        }
        _ => format!("{name}={}", show(field.value)),
    }
}

fn show(value: Value<'_>) -> String {
    if let Some(text) = value.as_longstr() {
        return quoted(text);
    }
    if let Some(array) = value.as_array() {
        let members: Vec<_> = array.values().map(|member| show(member.unwrap())).collect();
        return if members.iter().any(|member| member.contains('/')) {
            members.join(", ")
        } else {
            format!("[{}]", members.join(", "))
        };
    }
    match value.tag {
        b't' => return "true".to_owned(),
        b'V' => return "nobody".to_owned(),
        _ => {}
    }
    if let Some(bytes) = value.as_text() {
        return format!("#{}", quoted(bytes));
    }
    if let Some(table) = value.as_table() {
        return entry(table);
    }
    if let Some(time) = value.as_timestamp() {
        return time.to_string();
    }
    match (value.tag, value.as_integer()) {
        (b'l', Some(number)) => number.to_string(),
        (tag, Some(number)) => format!("{}:{number}", char::from(tag)),
        (b'd', None) => "a double".to_owned(),
        (tag, None) => panic!("a type that no rule writes: {}", char::from(tag)),
    }
}

fn entry(table: Table<'_>) -> String {
    let field = |name: &[u8]| table.get(name).unwrap().map(show);
    let key = |name| field(name).unwrap_or("?".to_owned());
    let mut out = format!("{}/{}", key(b"queue"), key(b"reason"));
    if let Some(count) = field(b"count") {
        out += &format!("*{count}");
    }
    let names: [(&str, &[u8]); 5] = [
        ("t", b"time"),
        ("x", b"exchange"),
        ("k", b"routing-keys"),
        ("oe", b"original-expiration"),
        ("extra", b"extra"),
    ];
    for (short, name) in names {
        if let Some(value) = field(name) {
            out += &format!(" {short}={value}");
        }
    }
    out
}

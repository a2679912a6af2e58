//! A message that was written to a file and is to be a message again: what its exporter saw of it, and what its importer may publish.
//!
//! Both are what a client of the proxy would read and write. So a file shows no private header, and nobody gains anything by writing one into it.

use bytes::Bytes;

use crate::amqp::cursor::Malformed;
use crate::amqp::properties::{Change, Edit, Properties, Property};
use crate::amqp::table::Table;

use super::headers::{self, HeaderEdit};
use super::{Rules, private};

pub fn exported(properties: &Bytes, own_user: &[u8]) -> Bytes {
    private::on_delivery(properties, own_user).unwrap_or_else(|| properties.clone())
}

/// Properties with which `user` publishes an exported message to a queue.
///
/// - Its history continues, like that of a client's message.
/// - A `CC` is shown but does not count, because RabbitMQ would route by it. A `BCC` is dropped.
/// - Another user's user-id is dropped, because RabbitMQ would refuse it.
///
/// # Errors
/// When properties or headers are malformed.
pub fn imported(properties: &[u8], user: &[u8], rules: &Rules) -> Result<Bytes, Malformed> {
    let parsed = Properties::parse(properties)?;
    let foreign = parsed.get(Property::UserId).is_some_and(|it| it != user);
    let headers = match parsed.headers() {
        None => Change::Keep,
        Some(headers) => Change::Set(table(Table(headers), rules)?),
    };
    Ok(parsed.edit(&Edit {
        headers,
        user_id: match foreign {
            true => Change::Remove,
            false => Change::Keep,
        },
        ..Edit::default()
    }))
}

fn table(table: Table<'_>, rules: &Rules) -> Result<Vec<u8>, Malformed> {
    let mut edit = HeaderEdit::default();
    if let Some(keys) = table.get(headers::CC)? {
        edit.value(private::CC, &keys);
    }
    if let Some(history) = private::carried(table, rules)? {
        edit.table(private::HISTORY, &history);
    }
    let counts = |name: &[u8]| name == headers::CC || name == headers::BCC;
    edit.apply(table, |name| {
        !name.starts_with(private::PREFIX) && !counts(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::table::{ArrayBuilder, TableBuilder};
    use crate::dead_letter::{Dialect, RuleSettings};

    fn rules(dialect: Dialect) -> Rules {
        let settings = RuleSettings {
            continue_history: true,
        };
        settings.at(dialect, 100, Default::default())
    }

    fn properties(headers: TableBuilder, user: &str) -> Vec<u8> {
        let headers = headers.finish();
        let mut out = vec![0b0010_0000, 0b0001_0000];
        out.extend_from_slice(&(headers.len() as u32).to_be_bytes());
        out.extend_from_slice(&headers);
        out.push(user.len() as u8);
        out.extend_from_slice(user.as_bytes());
        out
    }

    fn names(properties: &[u8]) -> Vec<String> {
        let parsed = Properties::parse(properties).expect("properties");
        let fields = Table(parsed.headers().expect("headers")).fields();
        fields
            .map(|field| String::from_utf8_lossy(field.expect("a header").name).into_owned())
            .collect()
    }

    fn user(properties: &[u8]) -> Option<Vec<u8>> {
        let parsed = Properties::parse(properties).expect("properties");
        parsed.get(Property::UserId).map(<[u8]>::to_vec)
    }

    #[test]
    fn private_headers_of_a_file_count_nothing_and_keys_route_nowhere() {
        let mut keys = ArrayBuilder::default();
        keys.longstr(b"elsewhere");
        let mut headers = TableBuilder::default();
        headers
            .longstr(b"tenant", b"7")
            .longstr(private::USER_ID, b"somebody")
            .longstr(private::CC, b"forged")
            .array(b"CC", &keys)
            .array(b"BCC", &keys);
        let written = imported(&properties(headers, "me"), b"me", &rules(Dialect::V4));
        let written = written.expect("readable");
        assert_eq!(names(&written), ["tenant", "x-dlx-proxy-cc"]);
        assert_eq!(user(&written).as_deref(), Some(&b"me"[..]));
        let shown = exported(&written.clone(), b"proxy");
        assert_eq!(names(&shown), ["CC", "tenant"], "as a client reads it");
    }

    #[test]
    fn another_users_name_is_dropped() {
        let of_another = properties(TableBuilder::default(), "you");
        let written = imported(&of_another, b"me", &rules(Dialect::V3)).expect("readable");
        assert_eq!(user(&written), None);
    }

    #[test]
    fn the_deaths_of_a_file_are_remembered_where_the_broker_forgets_them() {
        let mut death = TableBuilder::default();
        death
            .longstr(b"queue", b"orders")
            .longstr(b"reason", b"rejected")
            .long(b"count", 1);
        let mut deaths = ArrayBuilder::default();
        deaths.table(&death);
        let mut headers = TableBuilder::default();
        headers.array(b"x-death", &deaths);
        let died = properties(headers, "me");
        for (dialect, wanted) in [
            (Dialect::V3, vec!["x-death"]),
            (Dialect::V4, vec!["x-death", "x-dlx-proxy-history"]),
        ] {
            let written = imported(&died, b"me", &rules(dialect)).expect("readable");
            assert_eq!(names(&written), wanted, "{dialect:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_written() {
        let mut headers = TableBuilder::default();
        headers.longstr(b"a", b"b");
        let mut cut = properties(headers, "me");
        cut.truncate(10);
        assert!(imported(&cut, b"me", &rules(Dialect::V4)).is_err());
        let unknown = [0b0010_0000, 0, 0, 0, 0, 3, 1, b'a', b'?'];
        assert!(imported(&unknown, b"me", &rules(Dialect::V4)).is_err());
    }
}

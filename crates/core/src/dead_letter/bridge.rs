//! The bridges to internal exchanges: their names, and where a message tells them.
//!
//! No client may publish to an internal exchange (S2.4), so its dead letters go through an exchange of ours that it is bound to; `publisher`
//! makes it. The broker takes that one for the exchange that they were published to, in deliveries and in what it writes of their next
//! deaths. Clients, and the rules of deaths, know the internal exchange only: so names are put right where messages come in.
//!
//! ```text
//! dlx-proxy.bridge/<exchange>       its own name, as it is: nothing comes behind it that would have to be told apart
//! ```

use std::borrow::Cow;

use bytes::Bytes;

use crate::amqp::content::Content;
use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::properties::{Properties, has_headers};
use crate::amqp::table::{Array, ArrayBuilder, Table, TableBuilder, Value};

use super::Dialect;
use super::compact;
use super::headers::{X_DEATH, X_FIRST_DEATH, X_LAST_DEATH, contains};
use super::private;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridges {
    prefix: ShortStr,
}

// === impl Bridges ===

impl Bridges {
    pub fn new(prefix: ShortStr) -> Bridges {
        Bridges { prefix }
    }

    pub fn behind<'a>(&self, exchange: &'a [u8]) -> &'a [u8] {
        exchange.strip_prefix(&*self.prefix).unwrap_or(exchange)
    }

    /// For a delivery to a client: [`private::on_delivery`], and exchanges instead of bridges in
    /// its deaths.
    ///
    /// From 3.13 on each dead letter of ours has a private header, so a message without one has no
    /// bridge either.
    pub fn on_delivery(
        &self,
        properties: &[u8],
        own_user: &[u8],
        dialect: Dialect,
    ) -> Option<Bytes> {
        let shown = private::on_delivery(properties, own_user);
        if shown.is_none() && dialect != Dialect::V3 {
            return None;
        }
        let told = self.told(shown.as_deref().unwrap_or(properties));
        told.or(shown)
    }

    /// For the rules: the message with exchanges instead of bridges in its deaths.
    pub fn content<'a>(&self, content: &'a Content) -> Cow<'a, Content> {
        match self.told(&content.properties) {
            None => Cow::Borrowed(content),
            Some(properties) => Cow::Owned(content.with_properties(properties)),
        }
    }

    fn told(&self, properties: &[u8]) -> Option<Bytes> {
        if !has_headers(properties) || !contains(properties, &self.prefix) {
            return None;
        }
        let parsed = Properties::parse(properties).ok()?;
        let headers = self.headers(Table(parsed.headers()?), true).ok()?;
        Some(parsed.with_headers(headers.finish()))
    }

    /// `outer`: also replaces them in a private history.
    fn headers(&self, headers: Table<'_>, outer: bool) -> Result<TableBuilder, Malformed> {
        let mut out = TableBuilder::with_capacity(headers.0.len());
        for field in headers.fields() {
            let field = field?;
            let (name, value) = (field.name, field.value);
            if let Some(deaths) = value.as_array().filter(|_| name == X_DEATH) {
                out.array(name, &self.deaths(deaths)?);
            } else if let Some(exchange) = value.as_longstr()
                && (name == X_FIRST_DEATH[2] || name == X_LAST_DEATH[2])
            {
                out.longstr(name, self.behind(exchange));
            } else if let Some(history) = value.as_table()
                && (outer && name == private::HISTORY)
            {
                out.table(name, &self.headers(history, false)?);
            } else if let Some(history) = value.as_longstr().and_then(compact::read)
                && (outer && name == private::HISTORY)
            {
                let history = history.table();
                out.table(name, &self.headers(history.as_table(), false)?);
            } else {
                out.raw(&field);
            }
        }
        Ok(out)
    }

    fn deaths(&self, deaths: Array<'_>) -> Result<ArrayBuilder, Malformed> {
        let mut out = ArrayBuilder::default();
        for death in deaths.values() {
            let death = death?;
            match death.as_table() {
                Some(entry) => out.table(&self.entry(entry)?),
                None => out.value(&death),
            };
        }
        Ok(out)
    }

    fn entry(&self, entry: Table<'_>) -> Result<TableBuilder, Malformed> {
        let mut out = TableBuilder::with_capacity(entry.0.len());
        for field in entry.fields() {
            let field = field?;
            match Value::as_longstr(field.value).filter(|_| field.name == b"exchange") {
                Some(exchange) => out.longstr(field.name, self.behind(exchange)),
                None => out.raw(&field),
            };
        }
        Ok(out)
    }
}

//! What a user wants changed of a message, in the form that `show` has.

use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value as Json;
use thiserror::Error;
use utoipa::ToSchema;

use super::line::NoLine;
use super::view::Body;
use crate::amqp::ids::ShortStr;
use crate::amqp::table::{TableBuilder, Value};
use crate::dead_letter::edited::{Edited, is_kept};

/// What an edit changes. All else stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[schema(as = Edit)]
pub struct Change {
    /// The new body, whole. Without it the body stays.
    body: Option<Body>,
    /// Headers that get another value, or are new.
    #[serde(default)]
    headers: Vec<Given>,
    /// Headers that go.
    #[serde(default)]
    remove: Vec<String>,
}

/// A header with a value.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Given {
    name: String,
    /// Its type: `longstr`, `long`, `signedint`, `double`, `bool` or `void`.
    #[serde(rename = "type")]
    kind: String,
    /// Its value, or a text that says it.
    #[schema(value_type = Json)]
    value: Json,
}

#[derive(Debug, Error)]
pub enum NoChange {
    #[error("this is no edit: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it changes nothing: a redrive sends a message back as it is")]
    Nothing,
    #[error("`body` is cut: leave it out to keep the whole body, or send all of the new one")]
    Cut,
    #[error(transparent)]
    Body(#[from] NoLine),
    #[error("a header's name has 1 to 255 bytes")]
    Name,
    #[error("header `{0}` belongs to the proxy or to RabbitMQ: it cannot be edited")]
    Kept(String),
    #[error("header `{0}`: that value is none of its type, or no value of that type can be edited")]
    Value(String),
}

// === impl Change ===

impl Change {
    /// # Errors
    /// When it cannot be read, or changes what must stay.
    pub fn read(json: &[u8]) -> Result<Edited, NoChange> {
        let Change {
            body,
            headers,
            remove,
        } = serde_json::from_slice(json)?;
        if body.is_none() && headers.is_empty() && remove.is_empty() {
            return Err(NoChange::Nothing);
        }
        if body.as_ref().is_some_and(|body| body.cut) {
            return Err(NoChange::Cut);
        }
        let mut table = TableBuilder::default();
        for Given { name, kind, value } in headers {
            let bytes = named(&name)?;
            let (tag, data) = typed(&kind, &value).ok_or(NoChange::Value(name))?;
            table.value(&bytes, &Value { tag, data: &data });
        }
        Ok(Edited {
            body: body.map(Body::bytes).transpose()?,
            headers: table.finish(),
            removed: remove
                .iter()
                .map(|it| named(it))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn named(name: &str) -> Result<ShortStr, NoChange> {
    match ShortStr::copy(name.as_bytes()) {
        Some(kept) if is_kept(&kept) => Err(NoChange::Kept(name.to_owned())),
        Some(bytes) if !bytes.is_empty() => Ok(bytes),
        _ => Err(NoChange::Name),
    }
}

/// The octets of a value: its type, and what is behind that.
fn typed(kind: &str, value: &Json) -> Option<(u8, Vec<u8>)> {
    let text = match value {
        Json::String(text) => text.clone(),
        Json::Bool(_) | Json::Number(_) => value.to_string(),
        Json::Null if kind == "void" => String::new(),
        Json::Null | Json::Array(_) | Json::Object(_) => return None,
    };
    Some(match kind {
        "longstr" => (b'S', text.into_bytes()),
        "void" => (b'V', Vec::new()),
        "bool" => (b't', vec![text.parse::<bool>().ok()?.into()]),
        "signedint" => (b'I', number(&text, i32::to_be_bytes)?),
        "long" => (b'l', number(&text, i64::to_be_bytes)?),
        "double" => (b'd', number(&text, f64::to_be_bytes)?),
        _ => return None,
    })
}

fn number<T: FromStr, const N: usize>(text: &str, bytes: fn(T) -> [u8; N]) -> Option<Vec<u8>> {
    Some(bytes(text.parse().ok()?).to_vec())
}

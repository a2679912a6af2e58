//! What an operator does, by the management API of a broker.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, json};

use super::client::DEADLINE;
use super::http;
use super::methods::Arg;
use super::names::Names;
use super::proxy::RUNTIME;
use super::script::Operation;
use super::value::{Fallible, Table, Value};

/// The management API of a broker.
#[derive(Clone, Debug)]
pub(crate) struct Management {
    /// `host:port`
    address: String,
    /// `user:password`
    credentials: String,
    /// Held while a policy is made or deleted. Each change applies all policies of its vhost, which scenarios share: of two at once, one would be
    /// answered while the other still tells its queues.
    policies: Arc<Mutex<()>>,
}

impl Management {
    /// From `http://user:password@host:port`.
    pub(crate) fn new(url: &str) -> Option<Management> {
        let (credentials, address) = url
            .strip_prefix("http://")?
            .trim_end_matches('/')
            .rsplit_once('@')?;
        Some(Management {
            address: address.to_owned(),
            credentials: credentials.to_owned(),
            policies: Arc::default(),
        })
    }

    /// As the proxy's `management-url`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}@{}", self.credentials, self.address)
    }

    /// A vhost in which the administrator may do everything.
    pub(crate) fn make_vhost(&self, vhost: &str) -> Fallible<()> {
        let user = self.credentials.split(':').next().unwrap_or("guest");
        self.put(&["vhosts", vhost], &json!({}))?;
        self.put(
            &["permissions", vhost, user],
            &json!({"configure": ".*", "write": ".*", "read": ".*"}),
        )
    }

    pub(crate) fn delete_vhost(&self, vhost: &str) -> Fallible<()> {
        self.delete(&["vhosts", vhost])
    }

    pub(crate) fn vhosts(&self) -> Fallible<Vec<String>> {
        let list = self.list(&["vhosts"])?;
        let name = |vhost: &serde_json::Value| vhost["name"].as_str().map(str::to_owned);
        Ok(list.iter().filter_map(name).collect())
    }

    /// Carries out a step of a script in this vhost.
    pub(crate) fn carry_out(
        &self,
        operation: &Operation,
        vhost: &str,
        names: &Names,
    ) -> Fallible<()> {
        let name = &*names.inserted(&operation.name);
        let of_policies = operation.verb.ends_with("policy");
        let _alone =
            of_policies.then(|| self.policies.lock().unwrap_or_else(PoisonError::into_inner));
        let option = |of: &str| {
            let mut options = operation.options.iter();
            options.find(|(name, _)| name == of).map(|(_, arg)| arg)
        };
        let text = |of: &str, usual: &str| match option(of) {
            Some(arg) => names.inserted(&String::from_utf8_lossy(arg.text())),
            None => usual.to_owned(),
        };
        match &*operation.verb {
            "user" => {
                let user = json!({"password": text("password", name), "tags": text("tags", "")});
                self.put(&["users", name], &user)?;
                let rights = json!({"configure": text("configure", ""), "write": text("write", ""), "read": text("read", "")});
                self.put(&["permissions", vhost, name], &rights)
            }
            "topic-permission" => {
                let rights = json!({"exchange": text("exchange", ""), "write": text("write", ""), "read": text("read", "")});
                self.put(&["topic-permissions", vhost, name], &rights)
            }
            "policy" | "operator-policy" => {
                let mut table = match option("definition") {
                    Some(Arg::Table(table)) => table.clone(),
                    _ => Table::default(),
                };
                table.for_each_text(false, &mut |text| names.insert(text));
                let policy = json!({
                    "pattern": text("pattern", ".*"),
                    "apply-to": text("apply-to", "all"),
                    "priority": text("priority", "0").parse::<i64>().map_err(|_| "the priority is a number")?,
                    "definition": object(&table),
                });
                let of = if operation.verb == "policy" {
                    "policies"
                } else {
                    "operator-policies"
                };
                self.put(&[of, &text("vhost", vhost), name], &policy)
            }
            "user-limit" | "vhost-limit" => {
                operation.options.iter().try_for_each(|(limit, value)| {
                    let value = String::from_utf8_lossy(value.text()).parse::<i64>();
                    let value = json!({"value": value.map_err(|_| "a limit is a number")?});
                    match &*operation.verb {
                        "user-limit" => self.put(&["user-limits", name, limit], &value),
                        _ => self.put(&["vhost-limits", vhost, limit], &value),
                    }
                })
            }
            "delete user" => self.delete(&["users", name]),
            "delete policy" => self.delete(&["policies", &text("vhost", vhost), name]),
            "delete operator-policy" => self.delete(&["operator-policies", vhost, name]),
            "close" => self.close_connection(&format!("{}{}", operation.name, names.suffix)),
            verb => Err(format!("no such operation: {verb}")),
        }
    }

    /// Undoes what a step of a script made.
    pub(crate) fn undo(&self, made: &Operation, vhost: &str, names: &Names) -> Fallible<()> {
        if matches!(&*made.verb, "user" | "policy" | "operator-policy") {
            let delete = Operation {
                verb: format!("delete {}", made.verb),
                name: made.name.clone(),
                options: made.options.clone(),
            };
            return self.carry_out(&delete, vhost, names);
        }
        Ok(())
    }

    /// By the name that the client gave to its connection.
    fn close_connection(&self, provided_name: &str) -> Fallible<()> {
        let connection = self.connection(provided_name)?;
        self.delete(&["connections", connection["name"].as_str().unwrap_or("")])
    }

    /// What is known of the connection to which a client gave that name.
    pub(crate) fn connection(&self, provided_name: &str) -> Fallible<serde_json::Value> {
        let end = Instant::now() + DEADLINE;
        loop {
            let mut list = self.list(&["connections"])?.into_iter();
            if let Some(found) = list.find(|of| of["user_provided_name"] == provided_name) {
                return Ok(found);
            }
            if Instant::now() > end {
                return Err(format!("management knows no connection {provided_name}"));
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    fn list(&self, path: &[&str]) -> Fallible<Vec<serde_json::Value>> {
        let answer = self.request("GET", path, "")?;
        serde_json::from_str(&answer).map_err(|error| error.to_string())
    }

    fn put(&self, path: &[&str], body: &serde_json::Value) -> Fallible<()> {
        self.request("PUT", path, &body.to_string()).map(drop)
    }

    fn delete(&self, path: &[&str]) -> Fallible<()> {
        match self.request("DELETE", path, "") {
            // It is gone already.
            Err(status) if status.contains(" 404") => Ok(()),
            other => other.map(drop),
        }
    }

    fn request(&self, verb: &str, path: &[&str], body: &str) -> Fallible<String> {
        let segments: Vec<String> = path
            .iter()
            .map(|segment| utf8_percent_encode(segment, NON_ALPHANUMERIC).to_string())
            .collect();
        let path = format!("/api/{}", segments.join("/"));
        let what = format!("{verb} {path} {body}");
        let login = format!("Basic {}", STANDARD.encode(&self.credentials));
        let headers = [
            ("Authorization", login.as_str()),
            ("Content-Type", "application/json"),
        ];
        let request = http::request(&self.address, verb, &path, &headers, body);
        let answer = RUNTIME.block_on(async { tokio::time::timeout(DEADLINE, request).await });
        let answer = answer.map_err(|_| format!("{what}: no answer"))?;
        match answer.map_err(|error| format!("{what}: {error}"))? {
            (200..300, body) => Ok(body),
            (status, body) => Err(format!("{what}: {status} {body}")),
        }
    }
}

fn object(table: &Table) -> Map<String, serde_json::Value> {
    let fields = table.fields.iter();
    fields
        .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), json_of(value)))
        .collect()
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => String::from_utf8_lossy(text).into(),
        Value::Integer(_, number) => (*number as i64).into(),
        Value::Bool(yes) => (*yes).into(),
        Value::Table(table) => object(table).into(),
        Value::Array(array) => array.items.iter().map(json_of).collect(),
        _ => serde_json::Value::Null,
    }
}

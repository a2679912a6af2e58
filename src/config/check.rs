//! Turns what people typed into a [`Config`], or into every mistake at once: a setting that is wrong is noted, its default stands in, and
//! the rest is checked too.

use std::collections::HashSet;

use ::config::{Map, Value, ValueKind};

use super::raw::{DEFAULTS, Mistake, Mistakes, POLICY, Raw};
use super::value::{
    SHORTSTR, address, management_url, number, pattern, prefix, shortstr, size, threads, upstream,
    wait, word,
};
use super::{ApplyTo, Config, Definition, Policy};

/// Checks everything.
pub(super) fn check(raw: Raw) -> Result<Config, Mistakes> {
    let Raw {
        values,
        defaults,
        mistakes,
    } = raw;
    let mut c = Checker {
        values,
        defaults,
        mistakes,
        wrong: HashSet::new(),
    };
    let config = Config {
        listen: c.get("listen", address),
        admin: c.get("admin", address),
        upstream: c.get_secret("upstream", upstream),
        management_url: c.get_secret("management-url", management_url),
        vhosts: c.vhosts("vhosts"),
        prefix: c.get("prefix", prefix),
        mode: c.get("mode", word),
        history: c.get("history", word),
        bcc: c.get("bcc", word),
        on_unroutable: c.get("on-unroutable", word),
        max_history: c.get("max-history", number(1..=100_000)),
        nack_retries: c.get("nack-retries", number(0..=1_000)),
        confirm_timeout: c.get("confirm-timeout", wait),
        retry_for: c.get("retry-for", wait),
        intake_queue_type: c.get("intake-queue-type", word),
        intake_prefetch: c.get("intake-prefetch", number(1..=u16::MAX)),
        max_intake_exchanges: c.get("max-intake-exchanges", number(1..=1_000_000)),
        max_connections: c.get("max-connections", number(1..=1_000_000)),
        retained_bytes: c.get("retained-bytes", size),
        retained_bytes_per_connection: c.get("retained-bytes-per-connection", size),
        max_tickets_per_connection: c.get("max-tickets-per-connection", number(1..=1_000_000)),
        close_wait: c.get("close-wait", wait),
        probe_timeout: c.get("probe-timeout", wait),
        handshake_timeout: c.get("handshake-timeout", wait),
        drain_timeout: c.get("drain-timeout", wait),
        worker_threads: c.get("worker-threads", threads),
        log_format: c.get("log-format", word),
        log_level: c.get("log-level", word),
        policies: c.policies(),
    };
    c.relations(&config);
    if c.mistakes.is_empty() {
        Ok(config)
    } else {
        Err(Mistakes(c.mistakes))
    }
}

struct Checker {
    values: Map<String, Value>,
    defaults: Map<String, Value>,
    mistakes: Vec<Mistake>,
    /// Settings whose default stands in: comparing that with others would tell nonsense.
    wrong: HashSet<String>,
}

/// A table of the file while it is read: what is left at the end are keys that mean nothing.
struct Table {
    path: &'static str,
    place: String,
    entries: Map<String, Value>,
}

// === impl Checker ===

impl Checker {
    fn get<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.top(name, true, parse)
    }

    /// For values that may hold a password: a mistake does not show them.
    fn get_secret<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.top(name, false, parse)
    }

    fn top<T>(&mut self, name: &str, show: bool, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let value = self.values.get(name).cloned();
        value
            .and_then(|value| self.parse(name, &value, show, &parse))
            .unwrap_or_else(|| {
                let default = self
                    .defaults
                    .get(name)
                    .and_then(text)
                    .expect("default.toml has every setting");
                parse(&default).expect("default.toml has no mistakes")
            })
    }

    fn parse<T>(
        &mut self,
        name: &str,
        value: &Value,
        show: bool,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let one = text(value).ok_or_else(|| "write one value, not a list or a table".to_owned());
        match one.and_then(|text| parse(&text)) {
            Ok(typed) => Some(typed),
            Err(problem) => {
                let subject = if show {
                    format!("{name} = {}", shown(value))
                } else {
                    name.to_owned()
                };
                self.mistake(name, value.origin().unwrap_or_default(), subject, problem);
                None
            }
        }
    }

    fn mistake(&mut self, name: &str, place: &str, subject: String, problem: String) {
        self.wrong.insert(name.to_owned());
        self.mistakes
            .push(Mistake::new(place, Some(subject), problem));
    }

    fn vhosts(&mut self, name: &str) -> Vec<String> {
        let items = match self.values.get(name) {
            Some(Value {
                kind: ValueKind::Array(items),
                ..
            }) => items.clone(),
            // One text: from the environment, which has no lists.
            Some(list) => {
                let place = list.origin().map(str::to_owned);
                let text = text(list).unwrap_or_default();
                text.split(',')
                    .map(|item| Value::new(place.as_ref(), item))
                    .collect()
            }
            None => Vec::new(),
        };
        let mut vhosts = Vec::new();
        for item in &items {
            let new = |text: &str| match shortstr(1..=SHORTSTR)(text)? {
                vhost if vhosts.contains(&vhost) => Err("is there twice".to_owned()),
                vhost => Ok(vhost),
            };
            vhosts.extend(self.parse(name, item, true, new));
        }
        vhosts
    }

    fn policies(&mut self) -> Vec<Policy> {
        let Some(value) = self.values.get(POLICY).cloned() else {
            return Vec::new();
        };
        let place = value.origin().unwrap_or_default().to_owned();
        let ValueKind::Array(items) = value.kind else {
            self.mistake(
                POLICY,
                &place,
                POLICY.to_owned(),
                "write [[policy]]".to_owned(),
            );
            return Vec::new();
        };
        let mut policies = Vec::<Policy>::new();
        for item in items {
            let Some(table) = self.table(POLICY, item) else {
                continue;
            };
            let place = table.place.clone();
            let policy = self.policy(table);
            if policies
                .iter()
                .any(|other| (&other.vhost, &other.name) == (&policy.vhost, &policy.name))
            {
                let subject = format!("policy.name = {:?}", policy.name);
                self.mistake(
                    POLICY,
                    &place,
                    subject,
                    "another policy of this vhost has that name".to_owned(),
                );
            }
            policies.push(policy);
        }
        policies
    }

    fn policy(&mut self, mut table: Table) -> Policy {
        let policy = Policy {
            name: self.required(&mut table, "name", shortstr(1..=SHORTSTR)),
            vhost: self
                .field(&mut table, "vhost", shortstr(1..=SHORTSTR))
                .unwrap_or_else(|| "/".to_owned()),
            pattern: self.required(&mut table, "pattern", pattern),
            apply_to: self
                .field(&mut table, "apply-to", word)
                .unwrap_or(ApplyTo::Queues),
            priority: self
                .field(&mut table, "priority", number(i64::MIN..=i64::MAX))
                .unwrap_or_default(),
            mode: self.field(&mut table, "mode", word),
            definition: match table
                .entries
                .remove("definition")
                .and_then(|value| self.table("policy.definition", value))
            {
                Some(table) => self.definition(table),
                None => Definition::default(),
            },
        };
        if policy.mode.is_none() && policy.definition == Definition::default() {
            let problem = "sets nothing; give it a `mode`, or a `dead-letter-exchange` in [policy.definition]";
            self.mistake(
                POLICY,
                &table.place,
                format!("policy {:?}", policy.name),
                problem.to_owned(),
            );
        }
        self.nothing_left(table);
        policy
    }

    fn definition(&mut self, mut table: Table) -> Definition {
        let definition = Definition {
            dead_letter_exchange: self.field(
                &mut table,
                "dead-letter-exchange",
                shortstr(0..=SHORTSTR),
            ),
            dead_letter_routing_key: self.field(
                &mut table,
                "dead-letter-routing-key",
                shortstr(0..=SHORTSTR),
            ),
        };
        self.nothing_left(table);
        definition
    }

    fn table(&mut self, path: &'static str, value: Value) -> Option<Table> {
        let place = value.origin().unwrap_or_default().to_owned();
        if let ValueKind::Table(entries) = value.kind {
            return Some(Table {
                path,
                place,
                entries,
            });
        }
        self.mistake(
            path,
            &place,
            format!("{path} = {}", shown(&value)),
            "write a table".to_owned(),
        );
        None
    }

    fn field<T>(
        &mut self,
        table: &mut Table,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = table.entries.remove(key)?;
        self.parse(&format!("{}.{key}", table.path), &value, true, parse)
    }

    fn required(
        &mut self,
        table: &mut Table,
        key: &str,
        parse: impl Fn(&str) -> Result<String, String>,
    ) -> String {
        if !table.entries.contains_key(key) {
            let name = format!("{}.{key}", table.path);
            self.mistake(&name, &table.place, name.clone(), "is missing".to_owned());
        }
        self.field(table, key, parse).unwrap_or_default()
    }

    fn nothing_left(&mut self, table: Table) {
        let mut left: Vec<_> = table.entries.into_iter().collect();
        left.sort_by(|a, b| a.0.cmp(&b.0)); // a map has no order
        for (key, value) in left {
            let name = format!("{}.{key}", table.path);
            let problem =
                "there is no such key; `dlx-proxy print-default-config` shows a policy".to_owned();
            self.mistake(
                &name,
                value.origin().unwrap_or_default(),
                name.clone(),
                problem,
            );
        }
    }

    /// What no setting shows alone.
    fn relations(&mut self, config: &Config) {
        let same_port = config.listen == config.admin && config.listen.port() != 0;
        self.relation(
            same_port,
            ["admin", "listen"],
            "is the same as `listen`; take another port",
        );
        let too_much = config.retained_bytes_per_connection > config.retained_bytes;
        let names = ["retained-bytes-per-connection", "retained-bytes"];
        self.relation(
            too_much,
            names,
            "is more than `retained-bytes`, which is for all connections together",
        );
    }

    fn relation(&mut self, broken: bool, names: [&str; 2], problem: &str) {
        if !broken || names.iter().any(|name| self.wrong.contains(*name)) {
            return;
        }
        let place_of = |name: &&str| self.values.get(*name).and_then(Value::origin);
        let written = |place: &&str| !place.starts_with(DEFAULTS);
        let place = names
            .iter()
            .filter_map(place_of)
            .find(written)
            .unwrap_or(DEFAULTS)
            .to_owned();
        let shown = self.values.get(names[0]).map(shown).unwrap_or_default();
        self.mistake(
            names[0],
            &place,
            format!("{} = {shown}", names[0]),
            problem.to_owned(),
        );
    }
}

/// The text of a single value, whatever it was written as; `None` for lists and tables.
fn text(value: &Value) -> Option<String> {
    value.clone().into_string().ok()
}

/// A value as TOML writes it, at least nearly.
fn shown(value: &Value) -> String {
    match (&value.kind, text(value)) {
        (ValueKind::String(text), _) => format!("{text:?}"),
        (ValueKind::Array(_), _) => "[…]".to_owned(),
        (_, Some(text)) => text,
        (_, None) => "{…}".to_owned(),
    }
}

//! The policies of the file: tables of the same shape, each key of which is checked as a setting is.

use ::config::{Map, Value, ValueKind};

use super::super::Config;
use super::super::gone;
use super::super::raw::{POLICY, WRITE_POLICY, nearest};
use super::super::value::{
    SHORTSTR, ack_timeout, delay, delays, jitter, lenient, number, pattern, retry_type, shortstr,
    word, yes_or_no,
};
use super::{Checker, place, shown, text};
use crate::dead_letter::schedule::Schedule;
use crate::registry::lenient::Lenient;
use crate::registry::policy::{Definition, Mode, Policy};
use crate::registry::said_retries::SaidRetries;

/// A table of the file. Keys left at the end are unknown.
struct Table {
    path: &'static str,
    place: String,
    entries: Map<String, Value>,
    /// All valid keys, for suggestions.
    known: Vec<&'static str>,
}

// === impl Checker ===

impl Checker {
    pub(super) fn policies(&mut self) -> Vec<Policy> {
        let Some(value) = self.values.get(POLICY).cloned() else {
            return Vec::new();
        };
        let ValueKind::Array(items) = &value.kind else {
            self.mistake(place(&value), POLICY, WRITE_POLICY);
            return Vec::new();
        };
        let mut policies = Vec::<Policy>::new();
        for item in items {
            let Some(table) = self.table(POLICY, item) else {
                continue;
            };
            let policy = self.policy(table);
            let named_alike =
                |other: &Policy| (&other.vhost, &other.name) == (&policy.vhost, &policy.name);
            if !policy.name.is_empty() && policies.iter().any(named_alike) {
                self.mistake(
                    place(item),
                    format!("policy {:?}", policy.name),
                    "another policy of its vhost has this name",
                );
            }
            policies.push(policy);
        }
        policies
    }

    fn policy(&mut self, mut table: Table) -> Policy {
        if !["mode", "lenient", "definition"]
            .iter()
            .any(|key| table.entries.contains_key(*key))
        {
            self.mistake(
                &table.place,
                POLICY,
                "sets nothing; give it a `mode`, `lenient` or a [policy.definition]",
            );
        }
        let default = Policy::default();
        let policy = Policy {
            name: self.required(&mut table, "name", default.name, shortstr(1..=SHORTSTR)),
            vhost: self
                .field(&mut table, "vhost", shortstr(1..=SHORTSTR))
                .unwrap_or(default.vhost),
            pattern: self.required(&mut table, "pattern", default.pattern, pattern),
            apply_to: self
                .field(&mut table, "apply-to", word)
                .unwrap_or(default.apply_to),
            priority: self
                .field(&mut table, "priority", number(i64::MIN..=i64::MAX))
                .unwrap_or(default.priority),
            mode: self.field(&mut table, "mode", word),
            lenient: self.lenient(&mut table),
            overrules_arguments: self
                .field(&mut table, "overrules-arguments", yes_or_no)
                .unwrap_or_default(),
            definition: self.definition(table.take("definition")),
        };
        self.nothing_left(table);
        policy
    }

    fn lenient(&mut self, table: &mut Table) -> Option<Lenient> {
        let value = table.take("lenient")?;
        let items = self.items(&table.name_of("lenient"), &value, lenient);
        Some(Lenient::new(items))
    }

    fn definition(&mut self, value: Option<Value>) -> Definition {
        let Some(mut table) = value.and_then(|value| self.table("policy.definition", &value))
        else {
            return Definition::default();
        };
        let (exchange, key) = ("dead-letter-exchange", "dead-letter-routing-key");
        let place = table.place.clone();
        let definition = Definition {
            dead_letter_exchange: self.field(&mut table, exchange, shortstr(0..=SHORTSTR)),
            dead_letter_routing_key: self.field(&mut table, key, shortstr(0..=SHORTSTR)),
            retries: self.retries(&mut table),
        };
        if let Some(problem) = definition.retries.contradiction() {
            self.mistake(&place, "policy.definition", problem);
        }
        self.nothing_left(table);
        definition
    }

    fn retries(&mut self, table: &mut Table) -> SaidRetries {
        SaidRetries {
            delayed_retry_type: self.field(table, "delayed-retry-type", retry_type),
            delayed_retry_min: self.field(table, "delayed-retry-min", delay("minimum")),
            delayed_retry_max: self.field(table, "delayed-retry-max", delay("maximum")),
            delayed_retry_multiplier: self.field(
                table,
                "delayed-retry-multiplier",
                number(1..=u32::MAX),
            ),
            delayed_retry_delays: self.schedule(table),
            delayed_retry_jitter: self.field(table, "delayed-retry-jitter", jitter).flatten(),
            delivery_limit: self.field(table, "delivery-limit", number(-1..=i32::MAX)),
            delivery_limit_counts: self.field(table, "delivery-limit-counts", word),
            on_crash: self.field(table, "on-crash", word),
            ack_timeout: self.field(table, "ack-timeout", ack_timeout),
        }
    }

    /// A list, or one text with commas, as in the argument of a queue.
    fn schedule(&mut self, table: &mut Table) -> Option<Schedule> {
        let key = "delayed-retry-delays";
        let mut value = table.take(key)?;
        if let ValueKind::Array(items) = &value.kind {
            let items = items.iter().map(|item| text(item).unwrap_or_default());
            let items: Vec<_> = items.collect();
            value.kind = ValueKind::String(items.join(","));
        }
        self.parse(&table.name_of(key), &value, true, delays)
    }

    fn table(&mut self, path: &'static str, value: &Value) -> Option<Table> {
        if let ValueKind::Table(entries) = &value.kind {
            return Some(Table {
                path,
                place: place(value).to_owned(),
                entries: entries.clone(),
                known: Vec::new(),
            });
        }
        self.mistake(
            place(value),
            format!("{path} = {}", shown(value)),
            "write a table",
        );
        None
    }

    fn field<T>(
        &mut self,
        table: &mut Table,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let value = table.take(key)?;
        self.parse(&table.name_of(key), &value, true, parse)
    }

    /// `instead`: the value to go on with after a mistake.
    fn required<T>(
        &mut self,
        table: &mut Table,
        key: &'static str,
        instead: T,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        if !table.entries.contains_key(key) {
            self.mistake(&table.place, table.name_of(key), "is missing");
        }
        self.field(table, key, parse).unwrap_or(instead)
    }

    fn nothing_left(&mut self, table: Table) {
        let mut left: Vec<_> = table.entries.iter().collect();
        left.sort_by_key(|(key, _)| *key); // a map has no order
        for (key, value) in left {
            let remedy = match (
                gone::instead(key, None),
                nearest(key, table.known.iter().copied()),
            ) {
                (Some(instead), _) => instead.to_owned(),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => "`dlx-proxy config default` shows a policy".to_owned(),
            };
            let problem = format!("there is no such key; {remedy}");
            self.mistake(place(value), table.name_of(key), problem);
        }
    }

    /// Reports policies that the mode makes ineffective.
    pub(super) fn natives(&mut self, config: &Config) {
        let Some(ValueKind::Array(items)) = self.values.get(POLICY).map(|value| value.kind.clone())
        else {
            return;
        };
        for (item, policy) in items.iter().zip(&config.reloadable.policies) {
            let native = policy.mode.unwrap_or(config.mode) == Mode::Off;
            if native && policy.definition != Definition::default() {
                self.mistake(
                    place(item),
                    format!("policy {:?}", policy.name),
                    "mode `off` leaves its queues to the broker, which does not know this definition; take another mode, or a policy of the broker",
                );
            }
        }
    }
}

// === impl Table ===

impl Table {
    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.entries.remove(key)
    }

    fn name_of(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }
}

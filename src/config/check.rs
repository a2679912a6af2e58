//! Turns what people typed into a [`Config`], or into every mistake at once: a setting that is wrong is noted, its default stands in, and
//! the rest is checked too.

use ::config::{Map, Value, ValueKind};

use crate::letter::ErrorHeaders;
use crate::machine::Limits;
use crate::net::ports::At;
use crate::net::proxy_protocol::Trusted;
use crate::registry::lenient::Lenient;
use crate::tls;
use crate::url::hidden;

use super::raw::{DEFAULTS, Mistake, Mistakes, Raw};
use super::value::{
    SHORTSTR, address_or_none, connections, header, hook_url, lenient, management_url, number,
    part, place_or_none, prefix, shortstr, size, text_or_none, threads, upstream, wait,
    wait_or_never, word, yes_or_no,
};
use super::{Config, Reloadable, gone};

mod policies;

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
    };
    let memory = c.get("memory", size);
    let retained_bytes = c.get("retained-bytes", part(memory / 4));
    let config = Config {
        listen: c.get("listen", place_or_none),
        listen_tls: c.get("listen-tls", address_or_none),
        listen_proxy_protocol: Trusted(c.list("listen-proxy-protocol", Trusted::network)),
        admin: c.get("admin", address_or_none),
        admin_tls: c.get("admin-tls", address_or_none),
        admin_api: c.get("admin-api", yes_or_no),
        admin_edit: c.get("admin-edit", yes_or_no),
        upstream: c.get_secret("upstream", upstream),
        upstream_proxy_protocol: c.get("upstream-proxy-protocol", word),
        upstream_order: c.get("upstream-order", word),
        management_url: c.get_secret("management-url", management_url),
        vhosts: c.list("vhosts", shortstr(1..=SHORTSTR)),
        ready_when_refused: c.get("ready-when-refused", yes_or_no),
        names: c.get("prefix", prefix),
        mode: c.get("mode", word),
        lenient: Lenient::new(c.list("lenient", lenient)),
        delayed_publish: c.list("delayed-publish", word),
        on_dead_letter: c.get_secret("on-dead-letter", hook_url),
        history: c.get("history", word),
        on_unroutable: c.get("on-unroutable", word),
        intake_queue_type: c.get("intake-queue-type", word),
        intake_prefetch: c.get("intake-prefetch", number(1..=u16::MAX)),
        worker_threads: c.get("worker-threads", threads),
        log_format: c.get("log-format", word),
        reloadable: Reloadable {
            limits: c.limits(memory, retained_bytes),
            max_connections: c.get("max-connections", connections),
            memory,
            retained_bytes,
            max_admin_connections: c.get("max-admin-connections", number(1..=1_000_000)),
            max_browses: c.get("max-browses", number(1..=1_000)),
            error_headers: ErrorHeaders(c.list("error-headers", header)),
            tls: c.tls_settings(),
            drain_timeout: c.get("drain-timeout", wait),
            log_level: c.get("log-level", word),
            policies: c.policies(),
        },
    };
    c.tls(&config);
    c.ports(&config);
    c.natives(&config);
    if c.mistakes.is_empty() {
        Ok(config)
    } else {
        Err(Mistakes(c.mistakes))
    }
}

/// Settings that decide whether a certificate file has any effect.
const TLS_DEPENDS_ON: [&str; 8] = [
    "listen-tls",
    "admin-tls",
    "upstream",
    "management-url",
    "on-dead-letter",
    "upstream-tls-verify",
    "tls-client-auth",
    "tls-cert-file",
];

struct Checker {
    values: Map<String, Value>,
    defaults: Map<String, Value>,
    mistakes: Vec<Mistake>,
}

// === impl Checker ===

impl Checker {
    /// `memory` and the part of it that sessions may retain are read already.
    fn limits(&mut self, memory: usize, retained_bytes: usize) -> Limits {
        Limits {
            max_history: self.get("max-history", number(1..=100_000)),
            stamp: self.get("stamp", yes_or_no),
            nack_retries: self.get("nack-retries", number(0..=1_000)),
            confirm_timeout: self.get("confirm-timeout", wait),
            retry_for: self.get("give-up-after", wait),
            parked_retry: self.get("parked-retry", wait_or_never),
            intake_quiet: self.get("intake-quiet", wait_or_never),
            publisher_bytes: self.get("publisher-bytes", part(memory / 8)),
            intake_bytes: self.get("intake-bytes", part(memory / 16)),
            max_intake_exchanges: self.get("max-intake-exchanges", number(1..=1_000_000)),
            retained_bytes_per_connection: self
                .get("retained-bytes-per-connection", part(retained_bytes / 8)),
            max_tickets_per_connection: self
                .get("max-tickets-per-connection", number(1..=1_000_000)),
            close_wait: self.get("close-wait", wait),
            probe_timeout: self.get("probe-timeout", wait),
            handshake_timeout: self.get("handshake-timeout", wait),
            admin_timeout: self.get("admin-timeout", wait),
            browse_limit: self.get("browse-limit", number(1..=65_535)),
            browse_bytes: self.get("browse-bytes", part(memory / 16)),
            browse_timeout: self.get("browse-timeout", wait),
            max_queues_per_connection: self.get("max-queues-per-connection", number(1..=1_000_000)),
            max_replies_per_connection: self
                .get("max-replies-per-connection", number(1..=1_000_000)),
            max_redeclared_queues: self.get("max-redeclared-queues", number(1..=1_000_000)),
            max_redrives: self.get("max-redrives", number(1..=1_000_000)),
            max_hook_letters: self.get("max-hook-letters", number(1..=1_000_000)),
        }
    }

    fn tls_settings(&mut self) -> tls::Settings {
        tls::Settings {
            upstream_ca_file: self.get("upstream-ca-file", text_or_none),
            upstream_tls_name: self.get("upstream-tls-name", text_or_none),
            upstream_cert_file: self.get("upstream-cert-file", text_or_none),
            upstream_key_file: self.get("upstream-key-file", text_or_none),
            upstream_tls_verify: self.get("upstream-tls-verify", yes_or_no),
            tls_cert_file: self.get("tls-cert-file", text_or_none),
            tls_key_file: self.get("tls-key-file", text_or_none),
            tls_client_ca_file: self.get("tls-client-ca-file", text_or_none),
            tls_client_auth: self.get("tls-client-auth", word),
        }
    }

    fn get<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.top(name, true, parse)
    }

    /// For values with passwords: mistakes do not show them.
    fn get_secret<T>(&mut self, name: &str, parse: impl Fn(&str) -> Result<T, String>) -> T {
        self.top(name, false, parse)
    }

    fn top<T>(&mut self, name: &str, show: bool, parse: impl Fn(&str) -> Result<T, String>) -> T {
        let value = self.values.get(name).cloned();
        let typed = value.and_then(|value| self.parse(name, &value, show, &parse));
        typed.unwrap_or_else(|| {
            let default = self.defaults.get(name).and_then(text);
            parse(&default.expect("default.toml has every setting"))
                .expect("default.toml has no mistakes")
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
        let parsed = one.and_then(|text| {
            let instead = |problem| gone::instead(name, Some(&text)).map_or(problem, str::to_owned);
            parse(&text).map_err(instead)
        });
        match parsed {
            Ok(typed) => return Some(typed),
            Err(problem) if show => {
                self.mistake(place(value), format!("{name} = {}", shown(value)), problem)
            }
            Err(problem) => self.mistake(place(value), name, problem),
        }
        None
    }

    fn mistake(&mut self, place: &str, subject: impl Into<String>, problem: impl Into<String>) {
        self.mistakes
            .push(Mistake::new(place, Some(subject.into()), problem));
    }

    fn list<T: PartialEq>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let value = self.values.get(name).cloned();
        value.map_or_else(Vec::new, |value| self.items(name, &value, parse))
    }

    fn items<T: PartialEq>(
        &mut self,
        name: &str,
        value: &Value,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Vec<T> {
        let items = match &value.kind {
            ValueKind::Array(items) => items.clone(),
            // One text: from the environment, which has no lists. An empty one is one without items.
            _ => {
                let text = text(value).unwrap_or_default();
                let items = text.split(',').filter(|_| !text.is_empty());
                items
                    .map(|item| Value::new(Some(&place(value).to_owned()), item))
                    .collect()
            }
        };
        let mut list = Vec::new();
        for item in &items {
            let new = |text: &str| match parse(text)? {
                value if list.contains(&value) => Err("is there twice".to_owned()),
                value => Ok(value),
            };
            list.extend(self.parse(name, item, true, new));
        }
        list
    }

    fn ports(&mut self, config: &Config) {
        let ports = [
            ("listen", config.listen.clone()),
            ("listen-tls", config.listen_tls.map(At::Tcp)),
            ("admin", config.admin.map(At::Tcp)),
            ("admin-tls", config.admin_tls.map(At::Tcp)),
        ];
        for (at, (name, address)) in ports.iter().enumerate() {
            let Some(address) = address.as_ref().filter(|address| !address.is_any()) else {
                continue;
            };
            for (other, _) in ports[..at]
                .iter()
                .filter(|(_, port)| port.as_ref() == Some(address))
            {
                let place = self.written(&[name, other]);
                let subject = format!("{name} = \"{address}\"");
                let other_one = match address {
                    At::Tcp(_) => "port",
                    At::Unix(_) => "path",
                };
                let problem = format!("is the same as `{other}`; take another {other_one}");
                self.mistake(&place, subject, problem);
            }
        }
        for [plain, tls] in [["listen", "listen-tls"], ["admin", "admin-tls"]] {
            let is_off = |name| ports.contains(&(name, None));
            if is_off(plain) && is_off(tls) && !self.is_mistaken(&[plain, tls]) {
                let place = self.written(&[plain, tls]);
                let problem = format!("neither `{plain}` nor `{tls}` has an address: set one");
                self.mistake(&place, plain, problem);
            }
        }
    }

    fn tls(&mut self, config: &Config) {
        // What stands in for a mistake would make others.
        if self.is_mistaken(&TLS_DEPENDS_ON) {
            return;
        }
        let settings = &config.reloadable.tls;
        let files = tls::Contents::read(settings);
        let checked = tls::Material::new(settings, config.tls_uses(), &files);
        for tls::Problem { setting, what } in checked.err().unwrap_or_default() {
            let mut places = vec![setting];
            places.extend(TLS_DEPENDS_ON);
            let place = self.written(&places);
            let subject = match self.values.get(setting) {
                Some(value) if self::place(value) == place && setting != "on-dead-letter" => {
                    format!("{setting} = {}", shown(value))
                }
                _ => setting.to_owned(),
            };
            self.mistake(&place, subject, what);
        }
    }

    /// The place of the first of these settings that is not a default.
    fn written(&self, names: &[&str]) -> String {
        let places = names
            .iter()
            .filter_map(|name| self.values.get(*name).map(place));
        let mut written = places.filter(|place| !place.starts_with(DEFAULTS));
        written.next().unwrap_or(DEFAULTS).to_owned()
    }

    fn is_mistaken(&self, names: &[&str]) -> bool {
        self.mistakes.iter().any(|mistake| {
            let subject = mistake.subject.as_deref().unwrap_or_default();
            let name = subject.split(" = ").next().unwrap_or_default();
            names.contains(&name)
        })
    }
}

fn place(value: &Value) -> &str {
    value.origin().unwrap_or_default()
}

fn text(value: &Value) -> Option<String> {
    value.clone().into_string().ok()
}

fn shown(value: &Value) -> String {
    match (&value.kind, text(value)) {
        (ValueKind::String(text), _) => format!("{:?}", hidden(text)),
        (ValueKind::Array(_), _) => "[…]".to_owned(),
        (_, Some(text)) => text,
        (_, None) => "{…}".to_owned(),
    }
}

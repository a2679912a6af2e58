//! Exchanges and queues are declared, deleted, purged.

use crate::codec::methods::{Arg, Args};
use crate::codec::value::{Bytes, Table, Value};

use super::arguments::{self, Kind, inequivalent, same_arguments, type_name};
use super::broker::{Broker, Conn, Rights, User};
use super::call::Call;
use super::channel::At;
use super::exchange::{Destination, Exchange, Type};
use super::facts::{Fact, Why};
use super::jobs::Job;
use super::queue::Queue;
use super::refusal::{Answer, refuse, show};

/// What somebody wants to do to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Configure,
    Write,
    Read,
}

impl Access {
    fn rights(self, user: &User) -> &Rights {
        match self {
            Access::Configure => &user.configure,
            Access::Write => &user.write,
            Access::Read => &user.read,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Access::Configure => "configure",
            Access::Write => "write",
            Access::Read => "read",
        }
    }
}

/// S7.8, as far as it fits a reply.
const TRANSIENT: &str = "Feature `transient_nonexcl_queues` is deprecated.\nIts use is not permitted per the configuration (overriding the default, which is permitted):\n    \"deprecated_features.permit.transient_nonexcl_queues = false\"\nIts use will not be permitted by default in a future minor RabbitMQ version";

impl Broker {
    pub(super) fn may(&self, conn: Conn, access: Access, kind: &str, name: &[u8]) -> Answer<()> {
        let name = match (kind, name) {
            ("exchange", b"") => b"amq.default",
            (_, name) => name,
        };
        let user = self.user(conn);
        if access.rights(user).include(name) {
            return Ok(());
        }
        let text = format!(
            "{} access to {} refused for user '{}'",
            access.name(),
            self.rs(kind, name),
            user.name
        );
        refuse(403, text)
    }

    fn may_anything(&self, conn: Conn, kind: &str, name: &[u8]) -> Answer<()> {
        let may = |access| self.may(conn, access, kind, name);
        may(Access::Read)
            .or_else(|_| may(Access::Write))
            .or_else(|_| may(Access::Configure))
    }

    pub(super) fn not_default(&self, name: &[u8]) -> Answer<()> {
        match name.is_empty() {
            true => refuse(403, "operation not permitted on the default exchange"),
            false => Ok(()),
        }
    }

    // === exchanges

    pub(super) fn exchange_declare(&mut self, at: At, call: &Call) -> Answer<()> {
        let name = call.name("exchange");
        if call.bit("passive") {
            self.not_default(&name)?;
            self.may_anything(at.conn, "exchange", &name)?;
            if !self.exchanges.contains_key(&name) {
                return self.no_exchange(&name);
            }
        } else {
            self.declare_exchange_checked(at, call, name)?;
        }
        self.done(at, call, "exchange.declare-ok", Args::new());
        Ok(())
    }

    fn declare_exchange_checked(&mut self, at: At, call: &Call, name: Bytes) -> Answer<()> {
        let kind = call.text("type");
        let Some(kind) = Type::named(&kind) else {
            return refuse(406, format!("unknown exchange type '{}'", show(&kind)));
        };
        self.not_default(&name)?;
        self.may(at.conn, Access::Configure, "exchange", &name)?;
        let wanted = Exchange {
            kind,
            durable: call.bit("durable"),
            auto_delete: call.bit("auto-delete"),
            internal: call.bit("internal"),
            arguments: call.arguments(),
        };
        let what = self.rs("exchange", &name);
        let Some(is) = self.exchanges.get(&name) else {
            if name.starts_with(b"amq.") {
                return reserved("exchange", &name);
            }
            match wanted.arguments.get("alternate-exchange") {
                None => {}
                Some(Value::Text(alternate)) => {
                    self.may(at.conn, Access::Read, "exchange", &name)?;
                    self.may(at.conn, Access::Write, "exchange", alternate)?;
                }
                Some(value) => {
                    let kind = type_name(value);
                    let text =
                        format!("invalid type '{kind}' for arg 'alternate-exchange' in {what}");
                    return refuse(406, text);
                }
            }
            self.exchanges.insert(name, wanted);
            return Ok(());
        };
        let fields = [
            ("type", is.kind.name().to_owned(), kind.name().to_owned()),
            (
                "durable",
                is.durable.to_string(),
                wanted.durable.to_string(),
            ),
            (
                "auto_delete",
                is.auto_delete.to_string(),
                wanted.auto_delete.to_string(),
            ),
            (
                "internal",
                is.internal.to_string(),
                wanted.internal.to_string(),
            ),
        ];
        for (field, is, wanted) in fields {
            if is != wanted {
                return inequivalent(field, &what, &format!("'{wanted}'"), &format!("'{is}'"));
            }
        }
        same_arguments(
            &["alternate-exchange"],
            &is.arguments,
            &wanted.arguments,
            &what,
        )
    }

    pub(super) fn exchange_delete(&mut self, at: At, call: &Call) -> Answer<()> {
        let name = call.name("exchange");
        self.not_default(&name)?;
        if name.starts_with(b"amq.") {
            let what = self.rs("exchange", &name);
            return refuse(403, format!("deletion of system {what} not allowed"));
        }
        self.may(at.conn, Access::Configure, "exchange", &name)?;
        let used = self.bindings.iter().any(|binding| binding.source == name);
        if call.bit("if-unused") && used {
            return refuse(406, format!("{} in use", self.rs("exchange", &name)));
        }
        self.remove_exchange(&name);
        self.done(at, call, "exchange.delete-ok", Args::new());
        Ok(())
    }

    pub(super) fn remove_exchange(&mut self, name: &[u8]) {
        if self.exchanges.remove(name).is_some() {
            self.unbind_all(|binding| {
                binding.source == name
                    || binding.destination == Destination::Exchange(name.to_vec())
            });
        }
    }

    // === queues

    pub(super) fn queue_declare(&mut self, at: At, call: &Call) -> Answer<()> {
        let mut name = call.name("queue");
        self.may_declare(&name)?;
        if call.bit("passive") {
            self.may_anything(at.conn, "queue", &name)?;
            if !self.queues.contains_key(&name) {
                return self.no_queue(&name);
            }
            self.check_exclusive(at.conn, &name)?;
        } else {
            let arguments = self.augmented(call);
            if name.is_empty() {
                if let Some(kind @ (Kind::Quorum | Kind::Stream)) = Kind::of(&arguments) {
                    let module = format!("rabbit_{}_queue", format!("{kind:?}").to_lowercase());
                    let text = format!("Cannot declare a server-named queue for type {module}");
                    return refuse(406, text);
                }
                let number = self.next_number();
                name = format!("amq.gen-{number:022}").into_bytes();
            } else if name.starts_with(b"amq.") {
                return reserved("queue", &name);
            }
            self.may(at.conn, Access::Configure, "queue", &name)?;
            match self.queues.contains_key(&name) {
                true => self.check_equivalence(at.conn, call, &name)?,
                false => self.make_queue(at.conn, call, &name)?,
            }
        }
        let now = self.now;
        let queue = self.queues.get_mut(&name).expect("it is there");
        queue.used = now;
        let args = vec![
            ("queue", Arg::Text(name.clone())),
            ("message-count", Arg::Number(queue.depth())),
            ("consumer-count", Arg::Number(queue.consumer_count())),
        ];
        self.channel(at).last_queue = name;
        self.done(at, call, "queue.declare-ok", args);
        Ok(())
    }

    /// The default type is not for queues that no quorum queue can be (`rabbit_channel:augment_declare_args`).
    fn augmented(&self, call: &Call) -> Table {
        let is_fit = call.bit("durable") && !call.bit("exclusive") && !call.bit("auto-delete");
        let default = if is_fit {
            self.options.default_type
        } else {
            "classic"
        };
        arguments::augmented(call.arguments(), default)
    }

    fn check_equivalence(&self, conn: Conn, call: &Call, name: &[u8]) -> Answer<()> {
        let queue = &self.queues[name];
        let owner = call.bit("exclusive").then_some(conn);
        if queue.exclusive != owner {
            return self.locked(name);
        }
        let durable = call.bit("durable") && owner.is_none();
        let what = self.rs("queue", name);
        for (field, is, wanted) in [
            ("durable", queue.durable, durable),
            ("auto_delete", queue.auto_delete, call.bit("auto-delete")),
        ] {
            if is != wanted {
                return inequivalent(field, &what, &format!("'{wanted}'"), &format!("'{is}'"));
            }
        }
        let wanted = self.augmented(call);
        arguments::equivalent(queue.kind, &queue.arguments, &wanted, &what)
    }

    fn make_queue(&mut self, conn: Conn, call: &Call, name: &[u8]) -> Answer<()> {
        let table = self.augmented(call);
        let what = self.rs("queue", name);
        match table.get("x-dead-letter-exchange") {
            None => {}
            Some(Value::Text(dlx)) => {
                self.may(conn, Access::Read, "queue", name)?;
                self.may(conn, Access::Write, "exchange", dlx)?;
            }
            Some(value) => {
                let kind = type_name(value);
                let text =
                    format!("invalid type '{kind}' for arg 'x-dead-letter-exchange' in {what}");
                return refuse(406, text);
            }
        }
        let kind = arguments::check(&table, &what)?;
        let exclusive = call.bit("exclusive").then_some(conn);
        let durable = call.bit("durable") && exclusive.is_none();
        let auto_delete = call.bit("auto-delete");
        if !call.bit("durable") && exclusive.is_none() {
            return refuse(541, TRANSIENT);
        }
        let lacks =
            |property: &str| refuse(406, format!("invalid property '{property}' for {what}"));
        match kind {
            Kind::Classic => {}
            Kind::Quorum | Kind::Stream if auto_delete => return lacks("auto-delete"),
            Kind::Quorum | Kind::Stream if exclusive.is_some() => return lacks("exclusive-owner"),
            Kind::Quorum | Kind::Stream => {}
        }
        let life = self.next_number();
        let mut queue = Queue::new(name, life, kind, table, self.now);
        queue.durable = durable;
        queue.exclusive = exclusive;
        queue.auto_delete = auto_delete;
        self.queues.insert(name.to_vec(), queue);
        Ok(())
    }

    /// May this connection use a queue that may be another's?
    pub(super) fn check_exclusive(&self, conn: Conn, name: &[u8]) -> Answer<()> {
        match self.queues.get(name).and_then(|queue| queue.exclusive) {
            Some(owner) if owner != conn => self.locked(name),
            _ => Ok(()),
        }
    }

    fn locked(&self, name: &[u8]) -> Answer<()> {
        let text = format!(
            "cannot obtain exclusive access to locked {}. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.",
            self.rs("queue", name)
        );
        refuse(405, text)
    }

    /// The name that is meant: an empty one is the last queue that this channel declared.
    pub(super) fn meant_queue(&mut self, at: At, call: &Call) -> Answer<Bytes> {
        let name = call.text("queue");
        if !name.is_empty() {
            return Ok(name);
        }
        let last = self.channel(at).last_queue.clone();
        match last.is_empty() {
            true => refuse(404, "no previously declared queue"),
            false => Ok(last),
        }
    }

    pub(super) fn queue_delete(&mut self, at: At, call: &Call) -> Answer<()> {
        let mut name = self.meant_queue(at, call)?;
        name.retain(|octet| !b"\r\n".contains(octet));
        self.may(at.conn, Access::Configure, "queue", &name)?;
        self.check_exclusive(at.conn, &name)?;
        let mut count = 0;
        if let Some(queue) = self.queues.get(&name) {
            count = queue.depth();
            if call.bit("if-unused") && !queue.consumers.is_empty() {
                return refuse(406, format!("{} in use", self.rs("queue", &name)));
            }
            if call.bit("if-empty") && count > 0 {
                return refuse(406, format!("{} not empty", self.rs("queue", &name)));
            }
        }
        self.remove_queue(&name, Why::QueueDeleted);
        let args = vec![("message-count", Arg::Number(count))];
        self.done(at, call, "queue.delete-ok", args);
        Ok(())
    }

    pub(super) fn queue_purge(&mut self, at: At, call: &Call) -> Answer<()> {
        let name = self.meant_queue(at, call)?;
        self.may(at.conn, Access::Read, "queue", &name)?;
        if !self.queues.contains_key(&name) {
            return self.no_queue(&name);
        }
        self.check_exclusive(at.conn, &name)?;
        if self.is_stream(&name) {
            let what = self.rs("queue", &name);
            let text = format!("queue.purge not supported by stream queues {what}");
            return refuse(540, text);
        }
        let count = self.purge_queue(&name);
        let args = vec![("message-count", Arg::Number(count))];
        self.done(at, call, "queue.purge-ok", args);
        Ok(())
    }

    pub(super) fn purge_queue(&mut self, name: &[u8]) -> u64 {
        let queue = self.queues.get_mut(name).expect("it is there");
        let mut entries: Vec<_> = queue.returned.drain(..).collect();
        entries.extend(queue.ready.drain(..));
        queue.full = false;
        for entry in &entries {
            self.facts.push(Fact::Dropped {
                queue: name.to_vec(),
                copy: entry.id,
                body: entry.message.body.clone(),
                why: Why::Purged,
            });
        }
        entries.len() as u64
    }

    /// Its consumers are told, its messages are gone.
    pub(super) fn remove_queue(&mut self, name: &[u8], why: Why) {
        let Some(queue) = self.queues.remove(name) else {
            return;
        };
        self.unbind_all(|binding| binding.destination == Destination::Queue(name.to_vec()));
        let taken = queue.unacked.values().map(|taken| &taken.entry);
        let all = queue.returned.iter().chain(&queue.ready).chain(taken);
        for entry in all {
            self.facts.push(Fact::Dropped {
                queue: name.to_vec(),
                copy: entry.id,
                body: entry.message.body.clone(),
                why,
            });
        }
        let mut consumers = Vec::from(queue.consumers);
        consumers.sort_by(|a, b| a.tag.cmp(&b.tag));
        for consumer in consumers {
            self.jobs.push(Job::Say {
                at: consumer.at,
                queue: name.to_vec(),
                name: "basic.cancel",
                tag: consumer.tag,
            });
        }
    }

    pub(super) fn delete_exclusive(&mut self, conn: Conn) {
        let owned = self
            .queues
            .values()
            .filter(|queue| queue.exclusive == Some(conn));
        let names: Vec<Bytes> = owned.map(|queue| queue.name.clone()).collect();
        for name in names {
            self.remove_queue(&name, Why::QueueDeleted);
        }
    }

    /// The reply, unless none is wanted.
    pub(super) fn done(&mut self, at: At, call: &Call, name: &str, args: Args) {
        if !call.bit("no-wait") {
            self.reply(at, name, args);
        }
    }
}

fn reserved<T>(kind: &str, name: &[u8]) -> Answer<T> {
    let text = format!(
        "{kind} name '{}' contains reserved prefix 'amq.*'",
        show(name)
    );
    refuse(403, text)
}

//! Queues and exchanges are bound and unbound.

use crate::codec::methods::Args;
use crate::codec::value::Bytes;

use super::broker::Broker;
use super::call::Call;
use super::channel::At;
use super::declaring::Access;
use super::exchange::{Binding, Destination};
use super::refusal::Answer;

impl Broker {
    pub(super) fn bind_or_unbind(&mut self, at: At, call: &Call) -> Answer<()> {
        let of_queue = call.method.name.starts_with("queue.");
        let (source, name, kind) = match of_queue {
            true => (call.name("exchange"), self.meant_queue(at, call)?, "queue"),
            false => (call.name("source"), call.name("destination"), "exchange"),
        };
        let mut name: Bytes = name;
        name.retain(|octet| !b"\r\n".contains(octet));
        let mut key = call.text("routing-key");
        if of_queue && call.text("queue").is_empty() && key.is_empty() {
            key.clone_from(&name);
        }
        self.may(at.conn, Access::Write, kind, &name)?;
        if !of_queue {
            self.not_default(&name)?;
        }
        self.not_default(&source)?;
        self.may(at.conn, Access::Read, "exchange", &source)?;
        // What is not there is unbound already.
        let binds = call.method.name.ends_with(".bind");
        if !self.exchanges.contains_key(&source) && binds {
            return self.no_exchange(&source);
        }
        let destination = match of_queue {
            true => {
                if !self.queues.contains_key(&name) && binds {
                    return self.no_queue(&name);
                }
                self.check_exclusive(at.conn, &name)?;
                Destination::Queue(name)
            }
            false if !self.exchanges.contains_key(&name) && binds => {
                return self.no_exchange(&name);
            }
            false => Destination::Exchange(name),
        };
        let binding = Binding {
            source,
            destination,
            key,
            arguments: call.arguments(),
        };
        match binds {
            true if self.bindings.contains(&binding) => {}
            true => self.bindings.push(binding),
            false => self.unbind_all(|other| *other == binding),
        }
        let ok = format!("{}-ok", call.method.name);
        self.done(at, call, &ok, Args::new());
        Ok(())
    }

    /// An exchange that deletes itself goes with its last binding.
    pub(super) fn unbind_all(&mut self, which: impl Fn(&Binding) -> bool) {
        let gone: Vec<Binding> = self.bindings.extract_if(.., |of| which(of)).collect();
        for binding in gone {
            let source = &binding.source;
            let left = self.bindings.iter().any(|other| other.source == *source);
            let auto_delete = self.exchanges.get(source).is_some_and(|of| of.auto_delete);
            if auto_delete && !left {
                self.remove_exchange(source);
            }
        }
    }

    /// Not refused: an operator does it.
    pub(super) fn bind_quietly(&mut self, binding: Binding) {
        if !self.bindings.contains(&binding) {
            self.bindings.push(binding);
        }
    }
}

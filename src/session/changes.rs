//! What a request of the client changes about exchanges and bindings, if the broker accepts it: told to the intake of the vhost, which
//! wants to know where dead letters go.

use crate::amqp::cursor::Malformed;
use crate::amqp::ids::ShortStr;
use crate::amqp::method::{
    ExchangeBind, ExchangeDeclare, ExchangeName, MethodId, QueueBind, QueueUnbind,
};
use crate::machine::{Binding, Change, Destination, Exchange, UNREADABLE};

use super::channel::Channel;

/// Octets of arguments that are kept until the reply comes.
const MOST_ARGUMENTS: usize = 1024;

/// `None`: nothing, or it cannot be read. (`queue.delete` is told apart, because it ends more than bindings.)
pub(super) fn change(state: &Channel, id: MethodId, payload: &[u8]) -> Option<Change> {
    read(state, id, payload).ok().flatten()
}

fn read(state: &Channel, id: MethodId, payload: &[u8]) -> Result<Option<Change>, Malformed> {
    let name = |name| ShortStr::copy(name).ok_or(Malformed);
    Ok(Some(match id {
        MethodId::EXCHANGE_DECLARE => {
            let declare = ExchangeDeclare::parse(payload)?;
            if declare.bits & ExchangeDeclare::PASSIVE != 0 {
                return Ok(None); // It does not say what the exchange is like.
            }
            Change::Declared(Exchange {
                name: name(declare.exchange)?,
                kind: name(declare.kind)?,
                arguments: kept(declare.arguments),
                policy: false,
            })
        }
        MethodId::EXCHANGE_DELETE => {
            Change::ExchangeDeleted(name(ExchangeName::parse(payload)?.exchange)?)
        }
        MethodId::EXCHANGE_BIND | MethodId::EXCHANGE_UNBIND => {
            let bind = ExchangeBind::parse(payload)?;
            let binding = Binding {
                source: name(bind.source)?,
                destination: Destination::Exchange(name(bind.destination)?),
                routing_key: name(bind.routing_key)?,
                arguments: kept(bind.arguments),
            };
            match id {
                MethodId::EXCHANGE_BIND => Change::Bound(binding),
                _ => Change::Unbound(binding),
            }
        }
        MethodId::QUEUE_BIND => {
            let bind = QueueBind::parse(payload)?;
            let (queue, routing_key) = queue_and_key(state, bind.queue, bind.routing_key);
            Change::Bound(Binding {
                source: name(bind.exchange)?,
                destination: Destination::Queue(queue),
                routing_key,
                arguments: kept(bind.arguments),
            })
        }
        MethodId::QUEUE_UNBIND => {
            let bind = QueueUnbind::parse(payload)?;
            let (queue, routing_key) = queue_and_key(state, bind.queue, bind.routing_key);
            Change::Unbound(Binding {
                source: name(bind.exchange)?,
                destination: Destination::Queue(queue),
                routing_key,
                arguments: kept(bind.arguments),
            })
        }
        _ => return Ok(None),
    }))
}

/// Those that nobody needs to be so long are as good as not to be read.
fn kept(arguments: &[u8]) -> Vec<u8> {
    match arguments.len() <= MOST_ARGUMENTS {
        true => arguments.to_vec(),
        false => UNREADABLE.to_vec(),
    }
}

/// A binding of the last queue declared, whose name only the reply told.
pub(super) fn name_queue(change: &mut Change, last: &ShortStr) {
    if let Change::Bound(binding) | Change::Unbound(binding) = change
        && let Destination::Queue(queue) = &mut binding.destination
        && queue.is_empty()
    {
        *queue = last.clone();
        if binding.routing_key.is_empty() {
            binding.routing_key = last.clone();
        }
    }
}

/// An empty name is the last queue that was declared; an empty key with it is that queue's name (`expand_routing_key_shortcut`).
fn queue_and_key(state: &Channel, queue: &[u8], key: &[u8]) -> (ShortStr, ShortStr) {
    let named = state.queue(queue);
    match ShortStr::copy(key) {
        Some(key) if !queue.is_empty() || !key.is_empty() => (named, key),
        _ => (named.clone(), named),
    }
}

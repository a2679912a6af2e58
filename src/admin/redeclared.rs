//! The queues whose last declare said something else of dead letters than their own arguments, for people.

use serde::Serialize;
use utoipa::ToSchema;

use crate::amqp::ids::{ShortStr, Vhost};
use crate::machine::DeadLettersTo;
use crate::objects::Names;
use crate::registry::live::LivePolicies;

/// What they are known from, and how the names of intake exchanges are read. Clones are the same.
#[derive(Clone, Default)]
pub struct Redeclared {
    /// Where the last declares stand.
    pub policies: LivePolicies,
    /// The names of the proxy's own objects.
    pub names: Names,
}

/// A queue, and what was said of it.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) struct RedeclaredQueue {
    /// Its name.
    #[schema(value_type = String)]
    pub(super) queue: ShortStr,
    /// Where its own arguments send dead letters.
    pub(super) own_arguments: String,
    /// Where its last declare sends them.
    pub(super) last_declare: String,
}

// === impl Redeclared ===

impl Redeclared {
    /// Those of a vhost.
    pub(super) fn of(&self, vhost: &Vhost) -> Vec<RedeclaredQueue> {
        let redeclared = self.policies.redeclared();
        let of_vhost = redeclared.iter().filter(|(of, ..)| *of == vhost);
        let listed = of_vhost.filter_map(|(_, queue, entry)| {
            let own = DeadLettersTo::from(&entry.existing.said(&self.names));
            let said = DeadLettersTo::from(entry.said.as_ref()?);
            Some(RedeclaredQueue {
                queue: queue.clone(),
                own_arguments: own.to_string(),
                last_declare: said.to_string(),
            })
        });
        listed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::ShortStr;
    use crate::dead_letter::Target;
    use crate::objects::DeclaredTarget;
    use crate::registry::redeclared::Existing;

    #[test]
    fn a_queue_is_listed_while_its_last_declare_said_something_else() {
        let name = |text: &str| ShortStr::copy(text.as_bytes()).expect("a short name");
        let said = |key: &str| {
            DeclaredTarget::Target(Target {
                exchange: name(""),
                routing_key: Some(name(key)),
                at_least_once: false,
            })
        };
        let redeclared = Redeclared::default();
        let existing = Existing::taken_over(&name("dlx-proxy//old"));
        let declare = |key| {
            let (vhost, queue) = (name("/"), name("orders"));
            redeclared
                .policies
                .redeclare(&vhost, &queue, &existing, &said("old"), &said(key))
        };
        assert_eq!(redeclared.of(&name("/")), []);
        declare("new");
        let listed = RedeclaredQueue {
            queue: name("orders"),
            own_arguments: "exchange \"\", key \"old\"".to_owned(),
            last_declare: "exchange \"\", key \"new\"".to_owned(),
        };
        assert_eq!(redeclared.of(&name("/")), [listed]);
        assert_eq!(redeclared.of(&name("other")), []);
        declare("old");
        assert_eq!(redeclared.of(&name("/")), []);
    }
}

//! The list of queues whose last declare said something else of dead letters than their own arguments, for people.

use crate::columns::aligned;
use crate::machine::DeadLettersTo;
use crate::registry::intake_name::Names;
use crate::registry::live::LivePolicies;

/// One line a queue, below a heading; nothing if there is none.
pub(super) fn list(policies: &LivePolicies, names: &Names) -> String {
    let redeclared = policies.redeclared();
    let heading = [
        "VHOST",
        "QUEUE",
        "ITS ARGUMENTS SAY",
        "THE LAST DECLARE SAID",
    ];
    let mut rows = vec![heading.map(str::to_owned)];
    rows.extend(redeclared.iter().filter_map(|(vhost, queue, entry)| {
        let own = DeadLettersTo::from(&entry.existing.said(names));
        let said = DeadLettersTo::from(entry.said.as_ref()?);
        Some([
            vhost.to_string(),
            queue.to_string(),
            own.to_string(),
            said.to_string(),
        ])
    }));
    match rows.len() {
        1 => String::new(),
        _ => aligned(&rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::ShortStr;
    use crate::dead_letter::Target;
    use crate::registry::declared_target::DeclaredTarget;
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
        let (policies, names) = (LivePolicies::default(), Names::default());
        let existing = Existing::taken_over(&name("dlx-proxy//old"));
        let declare = |key| {
            let (vhost, queue) = (name("/"), name("orders"));
            policies.redeclare(&vhost, &queue, &existing, &said("old"), &said(key))
        };
        assert_eq!(list(&policies, &names), "");
        declare("new");
        let listed = list(&policies, &names);
        let lines: Vec<_> = listed.lines().collect();
        assert_eq!(
            lines,
            [
                "VHOST  QUEUE   ITS ARGUMENTS SAY       THE LAST DECLARE SAID",
                "/      orders  exchange \"\", key \"old\"  exchange \"\", key \"new\"",
            ]
        );
        declare("old");
        assert_eq!(list(&policies, &names), "");
    }
}

//! Why messages are parked, and what to do: two sentences for each cause.

use crate::amqp::ids::ShortStr;
use crate::machine::{Cause, DeadLetter};

const GRANT: &str = "Give the permission that `dlx-proxy doctor` prints";
const BUSY: &str = "See that its queues are up and have room";
const LOOK: &str = "The proxy does not try them again. Look at them, then redrive or purge them.";

/// `newest`: the newest one of this process. `None`: nothing is parked for that cause.
pub(super) fn says(cause: Cause, newest: Option<&DeadLetter>) -> Option<(String, String)> {
    let is_queue = newest.is_some_and(|dead| dead.exchange.is_empty());
    let target = match newest {
        None => "their dead-letter exchange".to_owned(),
        Some(dead) if is_queue => format!("queue `{}`", dead.routing_key),
        Some(dead) => format!("exchange `{}`", dead.exchange),
    };
    // What is wrong, and what would help.
    let (why, help) = match cause {
        Cause::NoExchange => ("TARGET does not exist", "Declare it"),
        Cause::Unroutable if is_queue => ("TARGET does not exist", "Declare it"),
        Cause::Unroutable => (
            "no queue is bound to TARGET for their routing keys",
            "Bind one",
        ),
        Cause::Forbidden => ("the proxy's user may not publish to TARGET", GRANT),
        Cause::Nacked => ("TARGET refuses them", "See that its queues have room"),
        Cause::TimedOut => ("TARGET does not confirm them", "See that its queues are up"),
        Cause::TargetBusy => (
            "TARGET has been refusing messages or has not answered",
            BUSY,
        ),
        Cause::NoTarget => (
            "their queue has no dead-letter exchange",
            "Name one in a policy",
        ),
        Cause::TargetUnknown => ("only RabbitMQ knows where they go", "Set `management-url`"),
        Cause::Cycle => ("they would go round in a cycle", ""),
        Cause::Delayed => ("no queue took them, but TARGET may deliver them later", ""),
        Cause::Poison => ("publishing them closed a channel or a connection", ""),
        Cause::Implausible => ("they have no death that RabbitMQ wrote", ""),
        Cause::TooBig | Cause::UserId | Cause::QueueFull => return None,
        Cause::PublisherAway | Cause::Unconfirmed | Cause::ParkingBusy => return None,
    };
    let advice = match help {
        "" => LOOK.to_owned(),
        help => format!("{help}, and they go out by themselves."),
    };
    Some((why.replace("TARGET", &target), advice))
}

/// A cause that somebody else wrote. Empty: none.
pub(super) fn of_others(cause: &ShortStr) -> (String, String) {
    let why = match cause.is_empty() {
        true => "they do not say why".to_owned(),
        false => format!("their cause is `{cause}`"),
    };
    (why, LOOK.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amqp::ids::name;
    use crate::machine::{Outcome, Reason};

    #[test]
    fn each_cause_of_parking_has_its_sentences() {
        let newest = |exchange: &str, cause| DeadLetter {
            queue: name("orders"),
            reason: Reason::Rejected,
            exchange: name(exchange),
            routing_key: name("dead"),
            bytes: 3,
            outcome: Outcome::Parked(cause),
            by: None,
        };
        let of = |cause: Cause| {
            let said = ["dlx", ""].map(|to| Some(says(cause, Some(&newest(to, cause)))?.0));
            let [exchange, queue] = said;
            let queue = queue.filter(|queue| Some(queue) != exchange.as_ref());
            let queue = queue.map_or(String::new(), |queue| format!(" | {queue}"));
            let advice = says(cause, None)?.1;
            Some(format!(
                "{}: {}{queue}. {advice}\n",
                cause.as_str(),
                exchange?
            ))
        };
        let all: String = Cause::ALL.into_iter().filter_map(of).collect();
        insta::assert_snapshot!(all, @r"
        unroutable: no queue is bound to exchange `dlx` for their routing keys | queue `dead` does not exist. Bind one, and they go out by themselves.
        delayed: no queue took them, but exchange `dlx` may deliver them later | no queue took them, but queue `dead` may deliver them later. The proxy does not try them again. Look at them, then redrive or purge them.
        no_exchange: exchange `dlx` does not exist | queue `dead` does not exist. Declare it, and they go out by themselves.
        forbidden: the proxy's user may not publish to exchange `dlx` | the proxy's user may not publish to queue `dead`. Give the permission that `dlx-proxy doctor` prints, and they go out by themselves.
        nacked: exchange `dlx` refuses them | queue `dead` refuses them. See that its queues have room, and they go out by themselves.
        timed_out: exchange `dlx` does not confirm them | queue `dead` does not confirm them. See that its queues are up, and they go out by themselves.
        poison: publishing them closed a channel or a connection. The proxy does not try them again. Look at them, then redrive or purge them.
        cycle: they would go round in a cycle. The proxy does not try them again. Look at them, then redrive or purge them.
        implausible: they have no death that RabbitMQ wrote. The proxy does not try them again. Look at them, then redrive or purge them.
        target_busy: exchange `dlx` has been refusing messages or has not answered | queue `dead` has been refusing messages or has not answered. See that its queues are up and have room, and they go out by themselves.
        no_target: their queue has no dead-letter exchange. Name one in a policy, and they go out by themselves.
        target_unknown: only RabbitMQ knows where they go. Set `management-url`, and they go out by themselves.
        ");
    }
}

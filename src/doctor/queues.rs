//! The proxy's own queues: what is parked, and whether anybody takes the signals.

use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;
use tokio::time::timeout;

use crate::amqp::ids::ShortStr;

use super::nodes::Entered;
use super::{PATIENCE, Patient, Report};

/// What a queue has: messages, consumers.
type Counted = (u32, u32);

pub(super) async fn examine(patient: &Patient, entered: &Entered, report: &mut Report) {
    let about = |queue: &ShortStr| format!("queue {queue}, vhost {}", entered.vhost);
    let parking = patient.names.parking();
    match count(entered, parking).await {
        None => report.ok(
            about(parking),
            "It is not there yet: the first proxy makes it.",
        ),
        Some((0, _)) => report.ok(about(parking), "Nothing is parked."),
        Some((messages, _)) => {
            let says = parked(messages);
            report.note(
                about(parking),
                says,
                "docs/parking.md says how to see why, and how they go on.",
            );
        }
    }
    let intake = patient.names.intake_queue();
    match count(entered, intake).await {
        None => report.ok(
            about(intake),
            "It is not there yet: the first proxy makes it.",
        ),
        Some((_, 0)) => {
            let says = "No proxy consumes it: what expires or overflows waits there.";
            report.note(about(intake), says, "Start the proxy, if it does not run.");
        }
        Some((messages, _)) => report.ok(
            about(intake),
            format!("A proxy consumes it; {}.", waiting(messages)),
        ),
    }
}

/// `None`: there is no such queue, or it may not be seen, of which the rights tell.
async fn count(entered: &Entered, queue: &ShortStr) -> Option<Counted> {
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    // A refusal closes its channel.
    let channel = timeout(PATIENCE, entered.connection.create_channel())
        .await
        .ok()?
        .ok()?;
    let asked = channel.queue_declare(queue.to_string().into(), passive, FieldTable::default());
    let declared = timeout(PATIENCE, asked).await.ok()?.ok()?;
    Some((declared.message_count(), declared.consumer_count()))
}

fn parked(messages: u32) -> String {
    match messages {
        1 => "1 dead letter is parked: no queue took it.".to_owned(),
        _ => format!("{messages} dead letters are parked: no queue took them."),
    }
}

fn waiting(signals: u32) -> String {
    match signals {
        0 => "no signal waits".to_owned(),
        1 => "1 signal waits".to_owned(),
        _ => format!("{signals} signals wait"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        assert_eq!(parked(1), "1 dead letter is parked: no queue took it.");
        assert_eq!(parked(2), "2 dead letters are parked: no queue took them.");
        assert_eq!(
            [waiting(0), waiting(1), waiting(2)],
            ["no signal waits", "1 signal waits", "2 signals wait"]
        );
    }
}
